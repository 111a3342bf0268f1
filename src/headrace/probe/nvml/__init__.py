"""NVIDIA's management library, call by call: every one may fail alone, and a missing answer is None."""

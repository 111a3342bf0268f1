"""Differential tests: our own chain, one link added at a time; a foreign service, one thing changed at a time."""

"""Measurements that are run by hand: `python -m bench.NAME`."""

"""Asking a server on purpose: the load tester."""

"""Judging differential tests: what one more link, or one thing left out, changes. Pure."""

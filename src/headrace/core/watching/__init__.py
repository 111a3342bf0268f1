"""Figures of a watched service, as its samples come in."""

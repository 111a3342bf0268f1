"""The rows of a capture's tables, one class a table."""

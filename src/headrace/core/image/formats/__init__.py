"""Headers of image formats: one file for each, all pure functions of the bytes.

A reader returns the header, or raises `Malformed`. It reads only what the bytes hold, allocates nothing that the bytes ask for,
and follows no pointer twice.
"""

from __future__ import annotations


class Malformed(Exception):
    """The bytes start like this format and then contradict it or end too early. The text says where."""

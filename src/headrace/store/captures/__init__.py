"""Captures on disk.

A folder:

    manifest.json   what it is, written first
    NAME.arrows     one table: an Arrow IPC stream, zstd inside, only ever appended to
    index.jsonl     one line for each piece appended: table, offset, bytes, rows, CRC-32
    notes.jsonl     what happened
    end.json        written last; without it the writing was cut

A piece counts when its line in the index is whole and its checksum right; so a capture cut anywhere reads up to the cut.
"""

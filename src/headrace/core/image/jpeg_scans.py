"""Leaving out the scans of a progressive JPEG that a reduced decode does not need.

A progressive file sends every coefficient in several passes. A decode at 1/4 makes 2x2 pixels of each 8x8 luma block, little more
than its lowest coefficients, yet a decoder reads every pass, and that is most of its time. Dropping whole scans from the byte string
is legal: a decoder shows what it got. Two things are put right so that it shows it well:

* Precision. A first AC scan sends values divided by 2^Al; the refinements that bring the low bits are dropped. The scan is rewritten
  to claim Al = 0 and the quantisation steps it uses are multiplied by 2^Al instead: the same values, declared complete.
* Guessing. A decoder that sees unfinished coefficients smooths between blocks, which costs a third of the time and
  moves pixels. An all-zero scan for the coefficients never sent (some bytes: runs of empty blocks) declares them complete, too.

Terms of ITU-T T.81: Ss..Se is the band of coefficients in zigzag order, Ah and Al the bit position before and after a scan.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from headrace.core.image.formats import Malformed
from headrace.core.image.formats.jpeg import DHT, DQT, DRI, EOI, SOS, Segment, segments
from headrace.records.image import Data, Header

_LAST_USED = {1: 0, 2: 4, 4: 24, 8: 63}
"""Points of a component's inverse transform -> last zigzag index of the n x n low-frequency corner.

libjpeg's reduced transforms read a little outside the corner, too; leaving that out adds 0.05 levels at 1/4 (measured).
"""

_MAX_SCANS = 128


@dataclass(frozen=True, slots=True)
class _Scan:
    """One scan: `head` is its SOS payload, its entropy-coded data is `data[start:end]`."""

    head: bytes
    start: int
    end: int

    @property
    def components(self) -> bytes:
        return self.head[1 : 1 + 2 * self.head[0] : 2]

    @property
    def band(self) -> tuple[int, int]:
        return self.head[-3], self.head[-2]

    @property
    def bits(self) -> tuple[int, int]:
        return self.head[-1] >> 4, self.head[-1] & 15


def reduced(data: Data, header: Header, eighths: int) -> bytes | None:
    """The JPEG without the scans a decode at `eighths`/8 can do without; None when this file has to be decoded as it is.

    Raises Malformed when the file's structure is broken before its end.
    """
    try:
        file = _File(data, header, eighths)
    except _Unusual:
        return None
    return file.reduced()


class _Unusual(Exception):
    """The file is legal but not of the common shape: leave it alone."""


class _File:
    def __init__(self, data: Data, header: Header, eighths: int) -> None:
        self._data = data
        self._last_used = _last_used(header, eighths)
        self._parts: list[Data] = []
        self._tables: dict[int, bytearray] = {}
        self._table_of: dict[int, int] = {}
        self._step_shift: dict[int, dict[int, int]] = {}
        self._sent: dict[int, int] = {}
        self._blocks: dict[int, int] = {}
        self._read()

    def _read(self) -> None:
        marks = _entropy_ends(self._data)
        at, scans = 2, 0
        while True:
            segment = Segment(0, at, at)
            for segment in segments(self._data, at):
                if segment.marker not in (SOS, EOI):
                    self._table_or_frame(segment)
            if segment.marker == EOI:
                return
            scans += 1
            scan = _Scan(
                bytes(self._data[segment.start : segment.end]), segment.end, _next(marks, segment.end)
            )
            if scans > _MAX_SCANS or not _well_formed(scan.head):
                raise _Unusual
            self._scan(scan)
            at = scan.end

    def _table_or_frame(self, segment: Segment) -> None:
        payload = bytes(self._data[segment.start : segment.end])
        if segment.marker == DQT:
            self._quantisation(payload)
        elif segment.marker == 0xC2:
            self._frame(payload)
            self._keep(segment.marker, payload)
        elif segment.marker == DRI and payload != b"\0\0":
            raise _Unusual
        elif segment.marker in (DHT, 0xEE):
            self._keep(segment.marker, payload)

    def _quantisation(self, payload: bytes) -> None:
        at = 0
        while at < len(payload):
            precision, table = payload[at] >> 4, payload[at] & 15
            step = payload[at + 1 : at + 1 + 64 * (precision + 1)]
            if precision > 1 or len(step) < 64 * (precision + 1) or table in self._tables:
                raise _Unusual
            self._tables[table] = bytearray(
                step if precision else b"".join(b"\0" + step[n : n + 1] for n in range(64))
            )
            at += 1 + 64 * (precision + 1)

    def _frame(self, payload: bytes) -> None:
        if self._table_of or len(payload) != 6 + 3 * len(self._last_used):
            raise _Unusual
        height, width = int.from_bytes(payload[1:3], "big"), int.from_bytes(payload[3:5], "big")
        rows = [payload[at : at + 3] for at in range(6, 6 + 3 * payload[5], 3)]
        most_h, most_v = max(row[1] >> 4 for row in rows), max(row[1] & 15 for row in rows)
        for index, (identifier, sampling, table) in enumerate(rows):
            across = -(-width * (sampling >> 4) // (8 * most_h))
            down = -(-height * (sampling & 15) // (8 * most_v))
            self._blocks[identifier] = across * down
            self._table_of[identifier] = table
            self._step_shift.setdefault(identifier, {})
            self._sent[identifier] = 0
            self._last_used[identifier] = self._last_used.pop(-1 - index)

    def _scan(self, scan: _Scan) -> None:
        (first, last), (high, low) = scan.band, scan.bits
        if first == 0:
            self._keep(SOS, scan.head, self._data[scan.start : scan.end])
            return
        (component,) = scan.components if len(scan.components) == 1 else (None,)
        if component is None or component not in self._sent:
            raise _Unusual
        if high:
            return
        if first > self._last_used[component]:
            return
        if first != self._sent[component] + 1:
            raise _Unusual
        self._sent[component] = last
        for index in range(first, last + 1):
            self._step_shift[component][index] = low
        self._keep(SOS, scan.head[:-1] + b"\0", self._data[scan.start : scan.end])

    def _keep(self, marker: int, payload: bytes, after: Data = b"") -> None:
        self._parts += (bytes((0xFF, marker)), (len(payload) + 2).to_bytes(2, "big"), payload, after)

    def reduced(self) -> bytes | None:
        """The parts, tables first, empty scans last."""
        if not self._sent or set(self._table_of.values()) - set(self._tables):
            return None
        tables = self._rewritten_tables()
        if tables is None:
            return None
        return b"".join([b"\xff\xd8", tables, *self._parts, *self._empty_scans(), b"\xff\xd9"])

    def _rewritten_tables(self) -> bytes | None:
        """Quantisation with the steps of shortened scans enlarged; None when two components that share a table disagree."""
        shifts: dict[int, dict[int, int]] = {}
        for component, table in self._table_of.items():
            mine = dict(self._step_shift[component])
            known = shifts.setdefault(table, mine)
            if any(known.get(index, shift) != shift for index, shift in mine.items()):
                return None
            known.update(mine)
        out = b""
        for table, steps in self._tables.items():
            for index, shift in shifts.get(table, {}).items():
                step = int.from_bytes(steps[2 * index : 2 * index + 2], "big") << shift
                if step > 0xFFFF:
                    return None
                steps[2 * index : 2 * index + 2] = step.to_bytes(2, "big")
            out += b"\xff\xdb" + (131).to_bytes(2, "big") + bytes((0x10 | table,)) + bytes(steps)
        return out

    def _empty_scans(self) -> list[bytes]:
        scans = []
        for component, sent in self._sent.items():
            if sent < 63:
                scans.append(_empty_scan(component, sent + 1, self._blocks[component]))
        return scans


def _last_used(header: Header, eighths: int) -> dict[int, int]:
    """Last zigzag index needed, by -1 - position of the component until its identifier is known.

    A component with coarser sampling is decoded at a larger scale instead of being enlarged afterwards, up to the full 8 points.
    """
    most_h, most_v = max(h for h, _ in header.sampling), max(v for _, v in header.sampling)
    used = {}
    for index, (h, v) in enumerate(header.sampling):
        points = eighths
        while (
            points < 8
            and most_h % (2 * h * points // eighths) == 0
            and most_v % (2 * v * points // eighths) == 0
        ):
            points *= 2
        used[-1 - index] = _LAST_USED[points]
    return used


def _entropy_ends(data: Data) -> npt.NDArray[np.intp]:
    """Positions of every 0xFF that starts a marker other than a restart: entropy-coded data has none."""
    array = np.frombuffer(data, np.uint8)
    at = np.flatnonzero(array[:-1] == 0xFF)
    after = array[at + 1]
    ends: npt.NDArray[np.intp] = at[(after != 0) & (after != 0xFF) & ((after < 0xD0) | (after > 0xD7))]
    return ends


def _next(marks: npt.NDArray[np.intp], at: int) -> int:
    index = int(np.searchsorted(marks, at))
    if index >= len(marks):
        raise Malformed("the JPEG ends in the middle of a scan")
    return int(marks[index])


def _well_formed(head: bytes) -> bool:
    return (
        len(head) >= 6 and 1 <= head[0] <= 4 and len(head) == 4 + 2 * head[0] and head[-3] <= head[-2] <= 63
    )


_RUN_BITS = 14


def _empty_scan(component: int, first: int, blocks: int) -> bytes:
    """Tables and a first scan of the band `first`..63 in which every block is empty.

    One code, `0`, stands for the symbol EOB14: a run of 2^14 + (14 following bits) empty blocks. Shorter ends use smaller runs, whose codes
    follow it in the table.
    """
    symbols = bytes(run << 4 for run in range(_RUN_BITS, -1, -1))
    counts = bytes([0, 0, 0, len(symbols)]) + bytes(12)
    table = bytes((0x10,)) + counts + symbols
    bits, left = [], blocks
    while left:
        run = min(left.bit_length() - 1, _RUN_BITS)
        count = min(left, (1 << (run + 1)) - 1)
        bits.append(f"{_RUN_BITS - run:04b}")
        if run:
            bits.append(f"{count - (1 << run):0{run}b}")
        left -= count
    text = "".join(bits)
    text += "1" * (-len(text) % 8)
    body = int(text, 2).to_bytes(len(text) // 8, "big").replace(b"\xff", b"\xff\0")
    head = bytes((1, component, 0x00, first, 63, 0))
    return (
        b"".join(
            bytes((0xFF, marker)) + (len(payload) + 2).to_bytes(2, "big") + payload
            for marker, payload in ((DHT, table), (SOS, head))
        )
        + body
    )

"""A referee: reads and writes the coefficients of a small progressive JPEG (ITU-T T.81, annexes F and G), plainly and slowly."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np


@dataclass
class Component:
    across: int
    down: int
    padded_across: int
    padded_down: int
    h: int
    v: int
    table: int
    blocks: np.ndarray = field(default_factory=lambda: np.zeros(0))


class Bits:
    """Entropy-coded data, stuffing removed."""

    def __init__(self, data: bytes) -> None:
        self._bits = "".join(f"{byte:08b}" for byte in data.replace(b"\xff\0", b"\xff"))
        self._at = 0

    def take(self, count: int) -> int:
        if not count:
            return 0
        assert self._at + count <= len(self._bits), "the scan ends too early"
        text = self._bits[self._at : self._at + count]
        self._at += count
        return int(text, 2)

    def symbol(self, codes: dict[str, int]) -> int:
        for length in range(1, 17):
            found = codes.get(self._bits[self._at : self._at + length])
            if found is not None:
                self._at += length
                return found
        raise AssertionError("no such code")

    def signed(self, size: int) -> int:
        value = self.take(size)
        return value if not size or value >> (size - 1) else value - (1 << size) + 1

    def at_the_end(self) -> bool:
        """Only the padding with ones is left."""
        rest = self._bits[self._at :]
        return len(rest) < 8 and "0" not in rest


def coefficients(data: bytes) -> dict[int, np.ndarray]:
    """By component identifier: int[blocks down, blocks across, 64] in zigzag order, times their quantisation steps."""
    parts, steps = read(data)
    return {name: part.blocks[: part.down, : part.across] * steps[part.table] for name, part in parts.items()}


def read(data: bytes) -> tuple[dict[int, Component], dict[int, np.ndarray]]:
    """Components with their quantised blocks, and the quantisation steps by table."""
    parts: dict[int, Component] = {}
    steps: dict[int, np.ndarray] = {}
    codes: dict[int, dict[str, int]] = {}
    at = 2
    while True:
        assert data[at] == 0xFF, f"no marker at {at}"
        marker = data[at + 1]
        if marker == 0xD9:
            assert at + 2 == len(data), "bytes after the end"
            break
        end = at + 2 + int.from_bytes(data[at + 2 : at + 4], "big")
        payload = data[at + 4 : end]
        at = end
        if marker == 0xDB:
            _quantisation(payload, steps)
        elif marker == 0xC2:
            parts = _frame(payload)
        elif marker == 0xC4:
            _huffman(payload, codes)
        elif marker == 0xDA:
            while not (data[end] == 0xFF and data[end + 1] not in (0,)):
                end += 1
            _scan(payload, data[at:end], parts, codes)
            at = end
    return parts, steps


def _quantisation(payload: bytes, steps: dict[int, np.ndarray]) -> None:
    at = 0
    while at < len(payload):
        wide, table = payload[at] >> 4, payload[at] & 15
        kind, size = (">u2", 128) if wide else ("u1", 64)
        steps[table] = np.frombuffer(payload[at + 1 : at + 1 + size], kind).astype(np.int64)
        at += 1 + size


def _frame(payload: bytes) -> dict[int, Component]:
    height, width = int.from_bytes(payload[1:3], "big"), int.from_bytes(payload[3:5], "big")
    rows = [payload[n : n + 3] for n in range(6, 6 + 3 * payload[5], 3)]
    most_h, most_v = max(row[1] >> 4 for row in rows), max(row[1] & 15 for row in rows)
    units_x, units_y = -(-width // (8 * most_h)), -(-height // (8 * most_v))
    parts = {}
    for name, sampling, table in rows:
        h, v = sampling >> 4, sampling & 15
        part = Component(
            -(-width * h // (8 * most_h)),
            -(-height * v // (8 * most_v)),
            units_x * h,
            units_y * v,
            h,
            v,
            table,
        )
        part.blocks = np.zeros((part.padded_down, part.padded_across, 64), np.int64)
        parts[name] = part
    return parts


def _huffman(payload: bytes, codes: dict[int, dict[str, int]]) -> None:
    at = 0
    while at < len(payload):
        table, counts = payload[at], payload[at + 1 : at + 17]
        symbols = iter(payload[at + 17 : at + 17 + sum(counts)])
        found, code = {}, 0
        for length, count in enumerate(counts, 1):
            for _ in range(count):
                found[f"{code:0{length}b}"] = next(symbols)
                code += 1
            code <<= 1
        codes[table] = found
        at += 17 + sum(counts)


def _scan(head: bytes, data: bytes, parts: dict[int, Component], codes: dict[int, dict[str, int]]) -> None:
    names = [(head[1 + 2 * n], head[2 + 2 * n]) for n in range(head[0])]
    first, last, high, low = head[-3], head[-2], head[-1] >> 4, head[-1] & 15
    bits = Bits(data)
    if first == 0:
        _dc(bits, names, parts, codes, high, low)
    else:
        ((name, table),) = names
        part = parts[name]
        blocks = [part.blocks[y, x] for y in range(part.down) for x in range(part.across)]
        (_ac_more if high else _ac_first)(bits, blocks, codes[0x10 | (table & 15)], first, last, low)
    assert bits.at_the_end(), "bits are left over"


def _dc(
    bits: Bits,
    names: list[tuple[int, int]],
    parts: dict[int, Component],
    codes: dict[int, dict[str, int]],
    high: int,
    low: int,
) -> None:
    before = dict.fromkeys(parts, 0)
    for name, table, y, x in _order(names, parts):
        block = parts[name].blocks[y, x]
        if high:
            block[0] |= bits.take(1) << low
        else:
            before[name] += bits.signed(bits.symbol(codes[table >> 4]))
            block[0] = before[name] << low


def _order(names: list[tuple[int, int]], parts: dict[int, Component]) -> list[tuple[int, int, int, int]]:
    if len(names) == 1:
        ((name, table),) = names
        part = parts[name]
        return [(name, table, y, x) for y in range(part.down) for x in range(part.across)]
    any_part = parts[names[0][0]]
    return [
        (name, table, uy * parts[name].v + y, ux * parts[name].h + x)
        for uy in range(any_part.padded_down // any_part.v)
        for ux in range(any_part.padded_across // any_part.h)
        for name, table in names
        for y in range(parts[name].v)
        for x in range(parts[name].h)
    ]


def _ac_first(
    bits: Bits, blocks: list[np.ndarray], codes: dict[str, int], first: int, last: int, low: int
) -> None:
    empty = 0
    for block in blocks:
        if empty:
            empty -= 1
            continue
        at = first
        while at <= last:
            run, size = divmod(bits.symbol(codes), 16)
            if size:
                at += run
                block[at] = bits.signed(size) * (1 << low)
                at += 1
            elif run == 15:
                at += 16
            else:
                empty = (1 << run) + bits.take(run) - 1
                break
    assert not empty, "the run of empty blocks leaves the picture"


def _ac_more(
    bits: Bits, blocks: list[np.ndarray], codes: dict[str, int], first: int, last: int, low: int
) -> None:
    empty = 0
    for block in blocks:
        at = first
        while not empty and at <= last:
            run, size = divmod(bits.symbol(codes), 16)
            new = 0
            if size:
                new = (1 << low) if bits.take(1) else -(1 << low)
            elif run < 15:
                empty = (1 << run) + bits.take(run)
                break
            while at <= last:
                if block[at]:
                    _refine(bits, block, at, low)
                elif run == 0:
                    block[at] = new
                    at += 1
                    break
                else:
                    run -= 1
                at += 1
        if empty:
            for index in range(at, last + 1):
                if block[index]:
                    _refine(bits, block, index, low)
            empty -= 1
    assert not empty, "the run of empty blocks leaves the picture"


def _refine(bits: Bits, block: np.ndarray, at: int, low: int) -> None:
    if bits.take(1):
        block[at] += (1 << low) if block[at] > 0 else -(1 << low)


# --- writing: first scans only, any script ------------------------------------------------------------------------------------

Script = list[tuple[list[int], int, int, int]]
"""Scans in order: (component identifiers, first and last zigzag index, bits left out)."""

_SYMBOLS = {0x00: bytes(range(16)), 0x10: bytes(range(251))}
"""DC and AC: all codes are eight bits long and are the symbol itself."""


def written(
    parts: dict[int, Component],
    steps: dict[int, np.ndarray],
    size: tuple[int, int],
    script: Script,
    before: bytes = b"",
) -> bytes:
    """A progressive file of these coefficients; `before` goes in front of the first scan."""
    out = [b"\xff\xd8"]
    for table, values in steps.items():
        out.append(_segment(0xDB, bytes((0x10 | table,)) + values.astype(">u2").tobytes()))
    rows = b"".join(bytes((name, part.h << 4 | part.v, part.table)) for name, part in parts.items())
    frame = (
        bytes((8,)) + size[1].to_bytes(2, "big") + size[0].to_bytes(2, "big") + bytes((len(parts),)) + rows
    )
    tables = b"".join(
        bytes((kind, *[0] * 7, len(symbols), *[0] * 8)) + symbols for kind, symbols in _SYMBOLS.items()
    )
    out += [_segment(0xC2, frame), _segment(0xC4, tables), before]
    for names, first, last, low in script:
        head = bytes((len(names),)) + b"".join(bytes((name, 0)) for name in names) + bytes((first, last, low))
        text = _dc_text(names, parts, low) if first == 0 else _ac_text(parts[names[0]], first, last, low)
        text += "1" * (-len(text) % 8)
        body = int(text or "0", 2).to_bytes(len(text) // 8, "big").replace(b"\xff", b"\xff\0")
        out.append(_segment(0xDA, head) + body)
    return b"".join([*out, b"\xff\xd9"])


def _segment(marker: int, payload: bytes) -> bytes:
    return bytes((0xFF, marker)) + (len(payload) + 2).to_bytes(2, "big") + payload


def _dc_text(names: list[int], parts: dict[int, Component], low: int) -> str:
    before = dict.fromkeys(names, 0)
    text = []
    for name, _, y, x in _order([(name, 0) for name in names], parts):
        value = int(parts[name].blocks[y, x, 0]) >> low
        text.append(_number(0, value - before[name]))
        before[name] = value
    return "".join(text)


def _ac_text(part: Component, first: int, last: int, low: int) -> str:
    text = []
    for y in range(part.down):
        for x in range(part.across):
            run = 0
            for value in part.blocks[y, x, first : last + 1].tolist():
                shown = (abs(value) >> low) * (1 if value > 0 else -1)
                if not shown:
                    run += 1
                    continue
                text.extend([f"{0xF0:08b}"] * (run // 16))
                text.append(_number(run % 16, shown))
                run = 0
            if run:
                text.append(f"{0:08b}")
    return "".join(text)


def _number(run: int, value: int) -> str:
    size = abs(value).bit_length()
    bits = value if value > 0 else value + (1 << size) - 1
    return f"{run << 4 | size:08b}" + (f"{bits:0{size}b}" if size else "")

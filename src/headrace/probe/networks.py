"""Network interfaces, and TCP as a whole."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from headrace.probe.proc_text import number, numbers, readable, whole_lines
from headrace.probe.readings import KeptFile, Window, amounts, reason
from headrace.probe.unseen import UnseenOnce
from headrace.records.capture import Unseen
from headrace.records.rows.host import NetworkRow, TcpRow

_TCP = (b"Tcp:OutSegs", b"Tcp:RetransSegs", b"TcpExt:ListenOverflows", b"Tcp:OutRsts")


class NetworksProbe:
    """Network interfaces and TCP of one network name space: `NetworkRow` and `TcpRow`.

    Once a second: the kernel gathers these tables from all cores for each reading.
    """

    name = "networks"
    period_s = 1.0

    def __init__(self, process: Path = Path("/proc/self"), sys: Path | None = Path("/sys")) -> None:
        """`process` is one that lives in the name space; `sys` is None where that is not this program's own."""
        self._files = {name: KeptFile(process / "net" / name, 1 << 20) for name in ("dev", "snmp", "netstat")}
        self._sys = sys
        self._window, self._missing = Window(), UnseenOnce(self.name)
        if sys is None:
            self._missing.add(
                "networks of the machine",
                "the service lives in a network name space of its own, whose interfaces are read instead, without the links' speeds",
            )
        self._interfaces: dict[str, tuple[int, ...]] = {}
        self._tcp: dict[bytes, int] = {}
        self._speeds: dict[str, int | None] = {}

    def read(self, now_s: float) -> Iterable[NetworkRow | TcpRow]:
        interfaces = interface_totals(self._raw("dev"))
        tcp = protocol_totals(self._raw("snmp")) | protocol_totals(self._raw("netstat"))
        window_s = self._window.step(now_s)
        last_interfaces, self._interfaces = self._interfaces, interfaces
        last_tcp, self._tcp = self._tcp, tcp
        if window_s is None:
            return []
        rows: list[NetworkRow | TcpRow] = []
        for interface, now in interfaces.items():
            if grown := amounts(now, last_interfaces.get(interface)):
                received, sent, packets_in, packets_out, lost = grown
                speed = self._speed(interface)
                rows.append(
                    NetworkRow(
                        now_s, window_s, interface, received, sent, packets_in, packets_out, lost, speed
                    )
                )
        return rows + _tcp_rows(now_s, window_s, tcp, last_tcp)

    def _raw(self, name: str) -> bytes:
        try:
            return self._files[name].read_all()
        except OSError as error:
            self._missing.add(f"/proc/net/{name}", reason(error))
            return b""

    def _speed(self, interface: str) -> int | None:
        """Read once: asking a driver can be slow."""
        if interface not in self._speeds and self._sys is not None:
            self._speeds[interface] = _speed_bytes_per_s(self._sys / "class" / "net" / interface / "speed")
        return self._speeds.get(interface)

    def unseen(self) -> Sequence[Unseen]:
        return self._missing.all()

    def close(self) -> None:
        for file in self._files.values():
            file.close()


def interface_totals(raw: bytes) -> dict[str, tuple[int, ...]]:
    """Of each interface: bytes received and sent, packets received and sent, packets dropped or damaged."""
    found: dict[str, tuple[int, ...]] = {}
    for line in whole_lines(raw):
        name, colon, rest = line.partition(b":")
        values = numbers(rest.split())
        if colon and values is not None and len(values) == 16:
            received, packets_in, damaged_in, dropped_in, *_ = values
            sent, packets_out, damaged_out, dropped_out = values[8:12]
            lost = damaged_in + dropped_in + damaged_out + dropped_out
            found[readable(name.strip())] = (received, sent, packets_in, packets_out, lost)
    return found


def protocol_totals(raw: bytes) -> dict[bytes, int]:
    """The counters `_TCP` of `snmp` or `netstat`: a line of names, then one of numbers."""
    found = {}
    lines = whole_lines(raw)
    for heads, values in zip(lines[::2], lines[1::2], strict=False):
        protocol = heads.partition(b" ")[0]
        if protocol not in (b"Tcp:", b"TcpExt:") or not values.startswith(protocol + b" "):
            continue
        of_name = dict(zip(heads.split(), values.split(), strict=False))
        for key in _TCP:
            value = number(of_name.get(key.removeprefix(protocol)))
            if value is not None and key.startswith(protocol):
                found[key] = value
    return found


def _tcp_rows(
    now_s: float, window_s: float, now: dict[bytes, int], last: dict[bytes, int]
) -> list[NetworkRow | TcpRow]:
    sent, again, overflows, resets = (
        now[key] - last[key] if key in now and key in last and now[key] >= last[key] else None for key in _TCP
    )
    if sent is None or again is None:
        return []
    return [TcpRow(now_s, window_s, sent, again, overflows, resets)]


def _speed_bytes_per_s(file: Path) -> int | None:
    """A link that tells no speed refuses to be read, or says -1."""
    try:
        megabits = int(file.read_text())
    except (OSError, ValueError):
        return None
    return megabits * 125_000 if megabits > 0 else None

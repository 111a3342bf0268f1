"""Ctrl-C, SIGTERM and a closed terminal as a wish to end well: what was measured is kept."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event
from types import FrameType


@contextmanager
def stopping() -> Iterator[Event]:
    """An event that is set by the first Ctrl-C, SIGTERM or SIGHUP; the second interrupts as usual.

    Where SIGHUP is ignored (nohup) it stays so: then the closing of the terminal is no wish to end.
    """
    stop = Event()

    def ask(number: int, frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    before = {number: signal.signal(number, ask) for number in numbers}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

"""How large a share of the last seconds a growing total of busy time makes up."""

from __future__ import annotations


class ShareWindow:
    """Told the total at any moments; remembers one older reading, between one and two windows old. Not synchronised."""

    __slots__ = ("_last", "_older", "_window_s")

    def __init__(self, now_s: float, window_s: float) -> None:
        self._window_s = window_s
        self._older = self._last = (now_s, 0.0)

    def share(self, now_s: float, total_s: float) -> tuple[float, float]:
        """(window in seconds, share 0..1 of it). Call it at least once a window for the window to stay short."""
        if now_s - self._last[0] >= self._window_s:
            self._older, self._last = self._last, (now_s, total_s)
        span_s = now_s - self._older[0]
        if span_s <= 0:
            return 0.0, 0.0
        return span_s, min(1.0, max(0.0, (total_s - self._older[1]) / span_s))

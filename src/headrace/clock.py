"""The real clocks. Edges read them and hand the value to the pure core as `now_s`."""

from __future__ import annotations

import time

monotonic_s = time.monotonic
"""Seconds on the clock that never jumps: for durations, deadlines, windows."""

wall_s = time.time
"""Seconds since the epoch: for journals and people."""

"""A process with 500 threads, to be watched: most sleep, some wake up often and work a little.

`python -m bench.workers.many_threads [ASLEEP] [OFTEN] [SELDOM]` prints one JSON line and lives until its input ends.
"""

from __future__ import annotations

import json
import sys
import threading
import time

ASLEEP, OFTEN, SELDOM = 384, 16, 100
"""Threads that never wake, that wake 50 times a second for 1 ms of work, that wake 10 times a second for next to none."""


def wake(pause_s: float, work_s: float) -> None:
    while True:
        time.sleep(pause_s)
        end = time.thread_time() + work_s
        while time.thread_time() < end:
            pass


def main() -> None:
    asleep, often, seldom = map(int, sys.argv[1:]) if len(sys.argv) > 1 else (ASLEEP, OFTEN, SELDOM)
    forever = threading.Event()
    threads = [threading.Thread(target=forever.wait, daemon=True) for _ in range(asleep)]
    threads += [threading.Thread(target=wake, args=(0.02, 1e-3), daemon=True) for _ in range(often)]
    threads += [threading.Thread(target=wake, args=(0.1, 2e-5), daemon=True) for _ in range(seldom)]
    for thread in threads:
        thread.start()
    print(json.dumps({"threads": threading.active_count()}), flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()

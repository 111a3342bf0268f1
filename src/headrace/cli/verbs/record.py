"""`headrace record`."""

from __future__ import annotations

import argparse
import signal
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.cli import output
from headrace.cli.flags import duration_s, json_flag
from headrace.cli.screen import Screen
from headrace.cli.stopping import stopping

if TYPE_CHECKING:
    from headrace.core.watching.figures import Figures
    from headrace.workflows.record import Recorded


def flags(verb: argparse.ArgumentParser) -> None:
    target = verb.add_mutually_exclusive_group()
    target.add_argument("--pid", type=int, metavar="N", help="watch this process and those it starts")
    target.add_argument(
        "--port", type=int, metavar="P", help="watch the processes that listen on this TCP port"
    )
    target.add_argument("--cgroup", metavar="PATH", help="watch the processes of this control group")
    target.add_argument(
        "--service",
        metavar="URL",
        help="watch the service at this address, and read its stages from its metrics page",
    )
    verb.add_argument(
        "--for",
        dest="seconds",
        type=duration_s,
        default=60.0,
        metavar="TIME",
        help="how long, as in 5m; default 1m",
    )
    verb.add_argument(
        "-o", "--output", type=Path, metavar="DIR", help="the capture; default: capture-DATE-TIME here"
    )
    verb.add_argument(
        "--stacks",
        action="store_true",
        help="also read the stacks of Python threads, once a second, by py-spy",
    )
    verb.add_argument(
        "--progress",
        action="append",
        default=[],
        metavar="SOURCE",
        help="count the work done: log:FILE for an access log, metric:URL#NAME for a counter; may be repeated",
    )
    json_flag(verb)


def run(options: argparse.Namespace) -> int:
    from headrace.workflows.record import new_folder, record
    from headrace.workflows.record_target import Watch

    watch = Watch(
        pid=options.pid,
        port=options.port,
        cgroup=options.cgroup,
        service=options.service,
        seconds=options.seconds,
        stacks=options.stacks,
        progress=tuple(options.progress),
    )
    screen = Screen()
    with stopping() as stop:
        told = record(
            watch,
            options.output or new_folder("capture"),
            stop,
            (lambda figures, now_s: screen.draw(_live(figures, now_s, options.seconds)))
            if screen.live
            else None,
        )
    screen.clear()
    print(output.as_json(told.as_dict()) if options.json else _result(told))
    return 128 + signal.SIGINT if told.end.how == "interrupted" else 0


def _live(figures: Figures, now_s: float, seconds: float) -> list[str]:
    from headrace.core.watching.lines import columns_of, main_lines

    head = f"recording, {now_s:.0f} of {seconds:.0f} s; Ctrl-C ends it and keeps what there is"
    return [head, "", *columns_of(main_lines(figures), end=False)]


def _result(told: Recorded) -> str:
    from headrace.core.watching.lines import columns_of, main_lines, own_cost

    parts = [
        [told.sentence],
        [f"{told.name}: {told.end.t_s:.1f} s, {told.end.how}"],
        columns_of(main_lines(told.figures), end=True),
        [output.EMULATED] if told.emulated else [],
        [own_cost(told.figures), *(f"not seen: {item.what}: {item.why}" for item in told.unseen)],
    ]
    return "\n\n".join("\n".join(filter(None, part)) for part in parts if any(part))

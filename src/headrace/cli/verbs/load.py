"""`headrace load`."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from headrace.cli import output
from headrace.cli.flags import at_least_one, duration_s, json_flag
from headrace.cli.screen import Screen
from headrace.cli.stopping import stopping
from headrace.errors import StorageError, UsageError
from headrace.units import parse_duration_s

if TYPE_CHECKING:
    from headrace.core.load.patterns import Clients, Open, Replay
    from headrace.workflows.load import Load

EXIT_NOT_VALID = 3
"""The figures are not to be believed; the output says why."""
CLIENTS, CONNECTIONS = 16, 1000

T = TypeVar("T")


def _value(read: Callable[[str], T], right: Callable[[T], bool], says: str) -> Callable[[str], T]:
    """A flag's value."""

    def value(text: str) -> T:
        try:
            found = read(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is {says}") from None
        if not right(found):
            raise argparse.ArgumentTypeError(f"{text!r} is {says}")
        return found

    return value


_positive = _value(float, lambda value: 0 < value < 1e6, "no number above 0")
_percent = _value(
    lambda text: float(text.removesuffix("%")) / 100, lambda share: 0 < share < 1, "no share such as 5%"
)
_seed = _value(int, lambda number: 0 <= number < 2**63, "no whole number from 0 up")
_duration_or_none = _value(parse_duration_s, lambda seconds: seconds >= 0, "no time such as 2s")


def flags(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("url", metavar="URL", help="where requests go, as in http://127.0.0.1:8000/predict")
    verb.add_argument(
        "--images",
        type=Path,
        nargs="+",
        required=True,
        metavar="PATH",
        help="image files, folders, lists (.txt: a path or URL a line) and im2rec packs (.rec)",
    )
    verb.add_argument("--most", type=at_least_one, metavar="N", help="use the first N images only")
    _when(verb.add_argument_group("when", "default: a closed loop of 16 clients for 30 s"))
    _what(verb.add_argument_group("what"))
    _end(verb.add_argument_group("until when, and what for"))
    verb.add_argument("-o", "--output", type=Path, metavar="DIR", help="write a capture into this new folder")
    json_flag(verb)


def _when(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--rate",
        metavar="RATE",
        help="open loop: 200/s, 30/m, or poisson:200/s for callers who do not know of each other",
    )
    group.add_argument("--burst", type=at_least_one, metavar="N", help="with --rate: N requests at a time")
    group.add_argument(
        "--steps", metavar="STEPS", help="open loop, rates one after the other: 50,100,200x30s"
    )
    group.add_argument(
        "--ramp", metavar="FROM..TO", help="open loop, a rate that grows or falls evenly: 10..500"
    )
    group.add_argument(
        "--replay",
        type=Path,
        metavar="LOG",
        help="open loop, at the times of an access log; the images are those of --images",
    )
    group.add_argument("--speed", type=_positive, metavar="X", help="with --replay: X times as fast")
    group.add_argument(
        "--clients", type=at_least_one, metavar="N", help="closed loop: N clients that wait for their answers"
    )
    group.add_argument(
        "--connections", type=at_least_one, metavar="N", help="open at most so many (default 1000)"
    )


def _what(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--mix",
        metavar="MIX",
        help="which image: uniform (the default), in-order, or zipf:EXPONENT; a replay sends the same one where the log asks for the same",
    )
    group.add_argument(
        "--seed", type=_seed, default=1, metavar="N", help="of everything drawn by lot (default 1)"
    )
    group.add_argument(
        "--as",
        dest="kind",
        default="body",
        metavar="KIND",
        help="body (the image as it is), form or form:FIELD, url or url:KEY (JSON), oip (Open Inference Protocol v2) or oip-json",
    )
    group.add_argument(
        "--template",
        type=Path,
        metavar="FILE",
        help="any request: METHOD PATH, fields, an empty line, a body; {image}, {image_base64}, {url}, {name} and {number} are filled in",
    )
    group.add_argument("--recipe", type=Path, metavar="FILE", help="with --as oip: decode here, send tensors")
    group.add_argument(
        "--header",
        action="append",
        default=[],
        metavar="FIELD",
        help="'Name: value', sent along; may be repeated",
    )
    group.add_argument(
        "--expect",
        metavar="WHAT",
        help="a right answer has this status, or a body that this regular expression finds",
    )
    group.add_argument("--anyway", action="store_true", help="measure also when the first requests fail")


def _end(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--for", dest="seconds", type=duration_s, metavar="TIME", help="measure so long (default 30s)"
    )
    group.add_argument(
        "--warm-up",
        type=_duration_or_none,
        default=2.0,
        metavar="TIME",
        help="before that, not counted (default 2s; 0s: none)",
    )
    group.add_argument(
        "--stop-at",
        type=_percent,
        metavar="N%",
        help="end as soon as the p99 is known to within N percent, up and down (after 10 minutes, or --for, in any case)",
    )
    group.add_argument(
        "--capacity",
        metavar="GOAL",
        help="search the highest rate that holds it: p99<200ms; Poisson arrivals, unless --rate says how and where to begin",
    )
    group.add_argument(
        "--deadline", type=duration_s, metavar="TIME", help="count the answers that come within it (goodput)"
    )
    group.add_argument(
        "--timeout",
        type=duration_s,
        default=10.0,
        metavar="TIME",
        help="after it a request has failed (default 10s)",
    )


def run(options: argparse.Namespace) -> int:
    from headrace.cli.load_text import progress, text
    from headrace.workflows.load import load
    from headrace.workflows.loading.findings import as_dict

    asked = _asked(options)
    screen = Screen()
    with stopping() as stop:
        report = load(asked, options.output, stop, lambda told: screen.draw([progress(told)]))
    screen.clear()
    print(output.as_json(as_dict(report)) if options.json else text(report))
    if report.trouble is not None:
        print(f"headrace: {report.trouble}", file=sys.stderr)
        return StorageError.exit_code
    if report.interrupted:
        return 128 + signal.SIGINT
    return 0 if report.valid else EXIT_NOT_VALID


def _asked(options: argparse.Namespace) -> Load:
    from headrace.core.load.goal import parse_goal
    from headrace.core.load.mix import parse_mix
    from headrace.load.run import Limits, most_connections
    from headrace.workflows.load import Load
    from headrace.workflows.loading.makers import Sending

    connections = options.connections or max(min(CONNECTIONS, most_connections()), options.clients or 0)
    return Load(
        url=options.url,
        images=tuple(options.images),
        most=options.most,
        mix=parse_mix(options.mix) if options.mix is not None else None,
        sending=Sending(
            kind=options.kind,
            template=options.template,
            recipe=options.recipe,
            fields=tuple(options.header),
            expect=options.expect,
        ),
        pattern=_pattern(options),
        run_s=options.seconds,
        warm_up_s=options.warm_up,
        seed=options.seed,
        deadline_s=options.deadline,
        goal=None if options.capacity is None else parse_goal(options.capacity),
        stop_at=options.stop_at,
        limits=Limits(connections=connections, timeout_s=options.timeout, grace_s=options.timeout + 1.0),
        anyway=options.anyway,
    )


def _pattern(options: argparse.Namespace) -> Clients | Open:
    from headrace.core.load.patterns import Clients, parse_ramp, parse_rate, parse_steps

    given = [
        name for name in ("rate", "steps", "ramp", "replay", "clients") if getattr(options, name) is not None
    ]
    if len(given) > 1:
        raise UsageError(f"--{given[0]} and --{given[1]} are two ways to send; give one of them")
    for name, of in (("burst", "rate"), ("speed", "replay")):
        if getattr(options, name) is not None and getattr(options, of) is None:
            raise UsageError(f"--{name} says something of --{of}, which is not there")
    if options.rate is not None:
        return parse_rate(options.rate)._replace(burst=options.burst or 1)
    if options.steps is not None:
        return parse_steps(options.steps)
    if options.ramp is not None:
        return parse_ramp(options.ramp)
    if options.replay is not None:
        return _replay(options.replay, options.speed or 1.0)
    return Clients(options.clients or CLIENTS)


def _replay(path: Path, speed: float) -> Replay:
    from headrace.workflows.loading.replays import replay_of

    return replay_of(path, speed)

"""`headrace estimate`."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.cli import output
from headrace.cli.flags import at_least_one, duration_s, json_flag
from headrace.errors import UsageError
from headrace.units import format_ms, per_s

if TYPE_CHECKING:
    from headrace.workflows.estimate import Busy, Estimate


def flags(verb: argparse.ArgumentParser) -> None:
    verb.add_argument(
        "capture",
        type=Path,
        nargs="?",
        metavar="CAPTURE",
        help="a capture of a headrace server, whose stages are taken; --stage then replaces one of them",
    )
    verb.add_argument(
        "--stage",
        action="append",
        default=[],
        metavar="NAME=TIME/WORKERS",
        help="one stage, in the order of the way, as in decode=250ms/2; model=40ms/1x8 takes up to 8 images in 40 ms, "
        "model=2ms+5ms/1x8 takes 2 ms and 5 ms an image; @cpu or @device at the end says what it takes up "
        "(default: @device for model, infer, gpu)",
    )
    verb.add_argument(
        "--concurrency", type=at_least_one, metavar="N", help="clients that wait for their answers"
    )
    verb.add_argument(
        "--think", type=duration_s, default=0.0, metavar="TIME", help="pause of a client between two requests"
    )
    verb.add_argument(
        "--rate", type=_rate, metavar="N/s", help="requests that come whatever happens to earlier ones"
    )
    verb.add_argument(
        "--waiting", type=at_least_one, default=64, metavar="N", help="say when N requests wait (default 64)"
    )
    verb.add_argument("--cores", type=_cores, metavar="N", help="cores that the stages on the CPU share")
    json_flag(verb)


def run(options: argparse.Namespace) -> int:
    from headrace.core.queueing.laws import Chain
    from headrace.core.queueing.stations import parse_stations
    from headrace.workflows.estimate import Asked, estimate, from_capture

    stations = parse_stations(options.stage)
    if options.capture is not None:
        chain, measured = from_capture(options.capture, stations, options.cores)
    elif stations:
        chain, measured = Chain(stations, options.cores), None
    else:
        raise UsageError(
            "there is no stage; give each with --stage, as in --stage decode=250ms/1 --stage model=40ms/1, or a capture"
        )
    found = estimate(
        Asked(chain, options.concurrency, options.think, options.rate, options.waiting), measured
    )
    print(output.as_json(found.as_dict()) if options.json else "\n".join(_lines(found)))
    return 0


def _rate(text: str) -> float:
    from headrace.core.queueing.stations import parse_rate_per_s

    try:
        return parse_rate_per_s(text)
    except ValueError as problem:
        raise argparse.ArgumentTypeError(str(problem)) from None


def _cores(text: str) -> float:
    try:
        cores = float(text)
    except ValueError:
        cores = 0.0
    if not 0.0 < cores <= 1e6:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of cores above 0")
    return cores


def _lines(found: Estimate) -> Iterator[str]:
    yield found.sentence
    yield ""
    yield _stage_table(found)
    for block in (_measured(found), _open(found), _closed(found)):
        if lines := list(block):
            yield ""
            yield from lines
    yield ""
    yield _ceiling_table(found)
    if found.measured and found.measured.notes:
        yield ""
        yield from found.measured.notes
    if found.measured and found.measured.emulated:
        yield ""
        yield output.EMULATED


def _stage_table(found: Estimate) -> str:
    head = ["stage", "workers", "time", "images a go", "can do", "busy at the limit"]
    rows = [_stage_row(stage) for stage in found.stages]
    if found.measured:
        head.append("busy as measured")
        for row, stage in zip(rows, found.stages, strict=True):
            row.append("-" if stage.measured is None else f"{stage.measured:.0%}")
    return output.table(head, rows, frozenset(range(1, 7)))


def _stage_row(stage: Busy) -> list[str]:
    return [
        stage.name,
        str(stage.workers),
        _time(stage.service_s),
        f"{stage.batch:.3g}",
        per_s(stage.rate_per_s),
        f"{stage.utilisation:.0%}",
    ]


def _measured(found: Estimate) -> Iterator[str]:
    if found.measured is None:
        return
    seen = found.measured
    yield (
        f"measured: {per_s(seen.rate_per_s)}, {seen.inside:.3g} requests inside on average, "
        f"{_time(seen.latency_s)} each (Little's law)"
    )
    yield from (f"not read: {line}" for line in seen.damage)


def _open(found: Estimate) -> Iterator[str]:
    if found.asked.rate_per_s is None:
        return
    if found.full_after_s is not None:
        growing = max(found.offered, key=lambda row: row.grows_per_s)
        yield (
            f"{per_s(found.asked.rate_per_s)} cannot be kept up with: the queue before {growing.name} grows by "
            f"{growing.grows_per_s:.3g} requests a second, {found.asked.waiting} wait after {found.full_after_s:.3g} s"
        )
    else:
        yield f"{per_s(found.asked.rate_per_s)} can be kept up with: no queue grows without end"
    rows = [
        [
            row.name,
            per_s(row.arrives_per_s),
            f"{row.utilisation:.0%}",
            f"{row.grows_per_s:.3g}/s" if row.grows_per_s else "-",
            f"{_time(row.mean_wait_s / 2)} to {_time(row.mean_wait_s)}"
            if row.mean_wait_s is not None
            else "-",
        ]
        for row in found.offered
    ]
    yield ""
    yield output.table(
        ["stage", "arrives", "busy", "queue grows by", "mean wait"], rows, frozenset({1, 2, 3, 4})
    )
    yield ""
    if any(row.mean_wait_s is not None for row in found.offered):
        yield (
            "mean wait: approximation for random (Poisson) arrivals, from constant service times to such that vary "
            "like exponential ones (Allen-Cunneen, M/M/c)"
        )


def _closed(found: Estimate) -> Iterator[str]:
    if found.closed is None:
        return
    got = found.closed
    yield f"{got.clients} clients, each waiting for its answer:"
    line = f"  throughput  at most {per_s(got.most_per_s)}"
    if got.balanced is not None:
        low, high = got.balanced
        line += f"; {per_s(low)} to {per_s(high)} if service times vary like exponential ones (balanced job bounds)"
    yield line
    yield f"  latency     at least {_time(got.least_latency_s)} (Little's law)"
    enough = max(1, -int(-got.enough_clients // 1))
    yield (
        f"  enough      {enough} clients could keep the slowest stage busy (N* = {got.enough_clients:.3g}); "
        f"each one more adds {_time(got.each_adds_s)} of latency and no throughput"
    )


def _ceiling_table(found: Estimate) -> str:
    rows = [
        [
            row.change if row.resource == "cores" else f"{row.resource} {row.change}",
            per_s(row.most_per_s),
            f"+{row.gain:.0%}" if row.gain >= 0.005 else "nothing: a placebo",
            f"{row.busy_before:.0%} -> {row.busy_after:.0%}",
        ]
        for row in found.ceilings
    ]
    return output.table(
        ["what if", "then at most", "wins at most", "its busy share"], rows, frozenset({1, 2, 3})
    )


def _time(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 1.0 else format_ms(seconds)

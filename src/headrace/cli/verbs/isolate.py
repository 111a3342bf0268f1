"""`headrace isolate`."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.cli import output
from headrace.cli.flags import (
    at_least_one,
    duration_s,
    image_flags,
    json_flag,
    model_flags,
    model_of,
    setting_flags,
    settings_of,
)
from headrace.cli.screen import Screen
from headrace.units import format_rate

if TYPE_CHECKING:
    from headrace.core.isolation.buildup import Change, Step
    from headrace.core.isolation.foreign import Answers, Part
    from headrace.workflows.isolation.chain import ChainReport
    from headrace.workflows.isolation.foreign import ForeignReport


def flags(verb: argparse.ArgumentParser) -> None:
    model_flags(verb)
    image_flags(verb)
    _measuring(verb.add_argument_group("how much"))
    _service(verb.add_argument_group("a running service in place of our own chain"))
    verb.add_argument(
        "-o", "--output", type=Path, metavar="DIR", help="write a capture into this new folder, too"
    )
    json_flag(verb)
    setting_flags(verb)


def _service(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--against",
        metavar="URL",
        help="take a running service apart by its answers, as in http://127.0.0.1:8000/predict; it gets up to "
        "`--clients` requests at once",
    )
    group.add_argument(
        "--as",
        dest="kind",
        default="body",
        metavar="KIND",
        help="how the service takes an image: body (default), form or form:FIELD, oip or oip-json",
    )
    group.add_argument("--template", type=Path, metavar="FILE", help="any request, as for `headrace load`")
    group.add_argument(
        "--header",
        action="append",
        default=[],
        metavar="FIELD",
        help="'Name: value', sent to the service; may be repeated",
    )
    group.add_argument("--expect", metavar="WHAT", help="the service's right answers, as for `headrace load`")
    group.add_argument(
        "--images-only",
        action="store_true",
        help="send the service no body that is no image: some log each with a stack; HTTP is then not told apart",
    )


def _measuring(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--clients",
        type=_numbers,
        default=(1, 2, 4, 16),
        metavar="N,N,...",
        help="requests at once (default 1,2,4,16); our own chain is measured with the most",
    )
    group.add_argument(
        "--rounds",
        type=at_least_one,
        default=5,
        metavar="N",
        help="measure everything N times, in turns (default 5)",
    )
    group.add_argument(
        "--window",
        type=duration_s,
        default=0.5,
        metavar="TIME",
        help="length of each measurement (default 500ms)",
    )


def run(options: argparse.Namespace) -> int:
    from headrace.workflows.image_sets import open_images
    from headrace.workflows.isolate import Isolation, isolate
    from headrace.workflows.isolation.chain import ChainReport
    from headrace.workflows.isolation.meter import Rounds
    from headrace.workflows.loading.makers import Sending

    settings = settings_of(options)
    asked = Isolation(
        model=options.model if options.against else model_of(options, settings),
        recipe=options.recipe,
        images=open_images(*options.images, most=options.most),
        settings=settings,
        against=options.against,
        sending=Sending(
            kind=options.kind, template=options.template, fields=tuple(options.header), expect=options.expect
        ),
        images_only=options.images_only,
        clients=options.clients,
        rounds=Rounds(options.rounds, options.window),
    )
    screen = Screen()
    try:
        report = isolate(asked, options.output, lambda text: screen.draw([text]))
    finally:
        screen.clear()
    if options.json:
        print(output.as_json(report.as_dict()))
    else:
        print("\n".join(chain_lines(report) if isinstance(report, ChainReport) else foreign_lines(report)))
    return 0


def _numbers(text: str) -> tuple[int, ...]:
    numbers = tuple(at_least_one(part.strip()) for part in text.split(","))
    if max(numbers) > 1000:
        raise argparse.ArgumentTypeError(
            f"{max(numbers)} clients are more than 1000, the most that are asked for here"
        )
    return tuple(sorted(set(numbers)))


# --- our own chain -------------------------------------------------------------------------------------------------------------


def chain_lines(report: ChainReport) -> Iterator[str]:
    """For people."""
    changes = {change.link: change for change in report.buildup.changes}
    yield report.sentence
    yield ""
    yield output.table(
        [
            "link",
            "images/s",
            "slowest-fastest",
            "ms/image",
            "against before",
            "device busy",
            "CPU ms",
            "what is measured",
        ],
        [_step_row(step, changes.get(step.link)) for step in (*report.steps, report.preparing)],
        frozenset(range(1, 7)),
    )
    yield ""
    yield output.table(
        ["the model alone", "images/s", "slowest-fastest", "ms/image"],
        [[f"batch {size}", *_step_row(step, None)[1:4]] for size, step in sorted(report.batches.items())],
        frozenset({1, 2, 3}),
    )
    yield ""
    yield "In brackets: no more than noise."
    stages = ", ".join(f"{name} x{workers}" for name, workers in report.stages.items())
    yield (
        f"path {report.path} ({stages}), device {report.device}, {report.images} of {report.of} images, {report.inside} inside at once, "
        f"{report.rounds.rounds} rounds; clients over HTTP took {report.client_cores:.2f} cores of this machine"
    )
    yield ""
    yield from (f"- {note}" for note in report.notes)
    yield from (f"not read: {line}" for line in report.refused)
    if report.emulated:
        yield ""
        yield output.EMULATED


def _step_row(step: Step, change: Change | None) -> list[str]:
    if not step.windows:
        return [step.link, *["-"] * 6, step.absent]
    low, high = step.spread
    return [
        step.link,
        format_rate(step.rate_per_s),
        f"{format_rate(low)}-{format_rate(high)}",
        f"{1e3 / step.rate_per_s:.3g}",
        "-" if change is None else f"{change.share:+.0%}" if change.counts else f"({change.share:+.0%})",
        "-" if step.busy is None else f"{step.busy:.0%}",
        "-" if step.cpu_s is None else f"{1e3 * step.cpu_s:.3g}",
        step.contains,
    ]


# --- a foreign service -----------------------------------------------------------------------------------------------------------


def foreign_lines(report: ForeignReport) -> Iterator[str]:
    """For people."""
    yield report.sentence
    yield ""
    yield output.table(
        ["request", "clients", "megapixels", "KiB", "answers/s", "slowest-fastest", "ms/image", "median ms"],
        [_answer_row(answers) for answers in report.answers],
        frozenset(range(1, 8)),
    )
    yield ""
    few, many = min(each.clients for each in report.answers), report.verdict.clients
    yield output.table(
        [
            "part",
            f"of a request's time, {few} at once",
            f"of an image's time, {many} at once",
            "rounds",
            "what it is",
        ],
        [_part_row(part, report.verdict.alone) for part in report.verdict.parts],
        frozenset({1, 2, 3}),
    )
    yield "In brackets: no more than noise."
    yield ""
    yield from (f"- {note}" for note in report.notes)
    if report.emulated:
        yield ""
        yield output.EMULATED


def _answer_row(answers: Answers) -> list[str]:
    return [
        answers.kind,
        str(answers.clients),
        f"{answers.megapixels:.3g}" if answers.megapixels else "-",
        f"{answers.body_bytes / 1024:,.0f}",
        format_rate(answers.rate_per_s),
        f"{format_rate(min(answers.rates_per_s))}-{format_rate(max(answers.rates_per_s))}",
        f"{1e3 / answers.rate_per_s:.3g}",
        f"{1e3 * answers.latency_s:.3g}",
    ]


def _part_row(part: Part, alone: tuple[Part, ...]) -> list[str]:
    from headrace.core.isolation.foreign import SAYS

    one = next((other for other in alone if other.name == part.name), None)
    return [
        part.name,
        "-" if one is None else _share(one),
        _share(part),
        f"{part.low:.0%}-{part.high:.0%}",
        ", ".join(SAYS[part.name]),
    ]


def _share(part: Part) -> str:
    text = f"{part.share:.0%}, {1e3 * part.seconds:.3g} ms"
    return text if part.counts else f"({text})"

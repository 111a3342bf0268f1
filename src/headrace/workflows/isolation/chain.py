"""Our own chain, one link added at a time (R5)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

from headrace.core.isolation.buildup import Buildup, Step, Window, judge
from headrace.core.isolation.sentences import chain_notes, chain_sentence
from headrace.errors import UsageError
from headrace.load.shot import Target
from headrace.load.wire import Endpoint, Item, as_body
from headrace.records.recipe import RecipeFile
from headrace.records.rows.load import ImageRow
from headrace.records.settings import Settings
from headrace.serve.engine.memory import keep_freed_memory
from headrace.workflows.image_sets import ImageSet, spelled
from headrace.workflows.isolation.asking import Asker, Sink
from headrace.workflows.isolation.links import Link, links_of
from headrace.workflows.isolation.meter import Pace, Rounds, Tell
from headrace.workflows.isolation.own_server import OwnServer, own_server
from headrace.workflows.isolation.parts import Measure, Parts, Subject, roomy
from headrace.workflows.isolation.samples import Sample, Samples, take_samples


@dataclass(frozen=True, slots=True)
class ChainReport:
    """Our chain, judged."""

    sentence: str
    path: str
    device: str
    emulated: bool
    images: int
    """Measured with, of those in the set."""
    of: int
    refused: tuple[str, ...]
    inside: int
    stages: dict[str, int]
    """Threads of each stage of the plan."""
    batches: dict[int, Step]
    """The model alone, by batch size."""
    steps: tuple[Step, ...]
    buildup: Buildup
    preparing: Step
    """Everything but the model: the engine with a device that takes no time."""
    client_cores: float
    """CPU time that asking over HTTP took on this same machine, in cores."""
    notes: tuple[str, ...]
    rounds: Rounds

    def as_dict(self) -> dict[str, Any]:
        return {
            "format": 1,
            **{name: getattr(self, name) for name in _PLAIN},
            "buildup": asdict(self.buildup),
            "rounds": asdict(self.rounds),
            "batches": {str(size): _figures(step) for size, step in self.batches.items()},
            "steps": [_figures(step) for step in self.steps],
            "preparing": _figures(self.preparing),
        }


_PLAIN = (
    "sentence",
    "path",
    "device",
    "emulated",
    "images",
    "of",
    "refused",
    "inside",
    "stages",
    "client_cores",
    "notes",
)


def _figures(step: Step) -> dict[str, Any]:
    if not step.windows:
        return {"link": step.link, "absent": step.absent}
    return {
        "link": step.link,
        "contains": step.contains,
        "rate_per_s": step.rate_per_s,
        "slowest_per_s": step.spread[0],
        "fastest_per_s": step.spread[1],
        "seconds_per_image": 1.0 / step.rate_per_s,
        "busy": step.busy,
        "cpu_s": step.cpu_s,
        "windows": [asdict(window) for window in step.windows],
    }


def isolate_chain(
    model: Path | None,
    recipe: Path | None,
    recipe_file: RecipeFile,
    images: ImageSet,
    settings: Settings,
    inside: int,
    rounds: Rounds,
    *,
    began_s: float,
    sink: Sink,
    tell: Tell,
) -> ChainReport:
    """Measures every step `rounds.rounds` times, in turns. As a server does, it keeps freed memory in this process if the settings say so.

    Raises ModelError, SettingError, UsageError when no image can be served.
    """
    if settings.memory_keep:
        keep_freed_memory()
    samples = take_samples(images, recipe_file.recipe, settings)
    sink([_row(sample) for sample in samples.images])
    subject = Subject(model, recipe_file, settings, images, samples, inside)
    with ExitStack() as closing:
        tell("opening the model")
        parts = Parts(subject, closing)
        tell("starting a server")
        server = closing.enter_context(own_server(model, recipe, roomy(settings, inside)))
        http = _Http(server, samples, inside, Asker(Target("127.0.0.1", server.port), began_s, sink))
        return _report(subject, parts, http, rounds, tell)


def _row(sample: Sample) -> ImageRow:
    header = sample.header
    return ImageRow(
        sample.number,
        spelled(sample.encoded.name),
        header.format,
        len(sample.encoded.data),
        header.width,
        header.height,
    )


class _Http:
    """The last step."""

    def __init__(self, server: OwnServer, samples: Samples, inside: int, asker: Asker) -> None:
        self._server, self._inside, self._asker = server, inside, asker
        make = as_body(Endpoint.of(f"http://127.0.0.1:{server.port}/predict")).make
        self._shots = cycle(
            [
                make(Item(image.number, spelled(image.encoded.name), bytes(image.encoded.data)))
                for image in samples.images
            ]
        )
        self.client_cores: list[float] = []

    def measure(self, pace: Pace) -> Window:
        asked = self._asker.ask(self._shots, self._inside, pace, "http", read=self._server.read)
        self.client_cores.append(asked.client_cores)
        if not asked.window.images:
            raise UsageError(
                f"the server in a process of its own does not answer as it should: {asked.failed}"
            )
        return asked.window


def _report(subject: Subject, parts: Parts, http: _Http, rounds: Rounds, tell: Tell) -> ChainReport:
    batches, steps, preparing = _climb(parts, http, rounds, tell)
    buildup, device = judge(steps), parts.runner.device
    ceiling = max(batches.items(), key=lambda entry: entry[1].rate_per_s)
    return ChainReport(
        sentence=chain_sentence(steps, buildup, ceiling, device),
        path=subject.plan.path,
        device=device,
        emulated=parts.runner.emulated,
        images=len(subject.samples.images),
        of=subject.samples.of,
        refused=subject.samples.refused,
        inside=subject.inside,
        stages={stage.name: stage.workers for stage in subject.plan.stages},
        batches=batches,
        steps=steps,
        buildup=buildup,
        preparing=preparing,
        client_cores=max(http.client_cores),
        notes=(*chain_notes(steps, buildup, preparing, batches, device), *parts.runner.notes),
        rounds=rounds,
    )


def _climb(
    parts: Parts, http: _Http, rounds: Rounds, tell: Tell
) -> tuple[dict[int, Step], tuple[Step, ...], Step]:
    """The model by batch size, the steps, and preparation without the model, which is measured beside the step it is compared with."""
    links = links_of(parts, http.measure)
    at = 1 + next(number for number, link in enumerate(links) if link.link == "decode")
    without_model = Link(
        "preparing",
        "encoded images, a device that takes no time",
        parts.through(parts.preparing, parts.encoded()),
    )
    smaller = [Link("model", f"batches of {size}", parts.model_alone(size)) for size in parts.sizes[:-1]]
    pace = Pace(rounds.window_s, parts.batch, parts.batch + 1)
    found = _measure([*smaller, *links[:at], without_model, *links[at:]], rounds.rounds, pace, tell)
    alone, found = found[: len(smaller)], found[len(smaller) :]
    preparing = found.pop(at)
    return dict(zip(parts.sizes, [*alone, found[0]], strict=True)), tuple(found), preparing


def _measure(links: list[Link], rounds: int, pace: Pace, tell: Tell) -> list[Step]:
    """In turns, every other round backwards, so that a machine that slows down weighs on all alike."""
    windows: list[list[Window]] = [[] for _ in links]
    for number in range(rounds):
        for at, measure in _in_turn(links, backwards=number % 2 == 1):
            tell(f"round {number + 1} of {rounds}: {links[at].link}")
            windows[at].append(measure(pace))
    return [
        Step(link.link, link.contains, tuple(seen), link.absent)
        for link, seen in zip(links, windows, strict=True)
    ]


def _in_turn(links: list[Link], *, backwards: bool) -> Iterator[tuple[int, Measure]]:
    order = range(len(links))
    for at in reversed(order) if backwards else order:
        measure = links[at].measure
        if measure is not None:
            yield at, measure

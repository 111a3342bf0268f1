"""`headrace isolate`: which link of the chain the accelerator waits for (R5)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from headrace.clock import monotonic_s
from headrace.core.policy.plan import model_threads
from headrace.models.opening import open_runner
from headrace.models.resident import resident_run
from headrace.records.capture import End, Note
from headrace.records.settings import Settings
from headrace.serve.engine.cores import usable_cores
from headrace.store.captures.writer import CaptureWriter
from headrace.workflows.image_sets import ImageSet
from headrace.workflows.isolation.asking import Sink
from headrace.workflows.isolation.chain import ChainReport, isolate_chain
from headrace.workflows.isolation.foreign import ForeignReport, Known, Service, isolate_foreign
from headrace.workflows.isolation.loops import loop_model
from headrace.workflows.isolation.meter import Pace, Rounds, Tell
from headrace.workflows.isolation.samples import batch_of, take_samples
from headrace.workflows.loading.makers import Sending, maker_of
from headrace.workflows.manifests import manifest
from headrace.workflows.recipes import find_recipe


@dataclass(frozen=True, slots=True, kw_only=True)
class Isolation:
    """What to take apart."""

    model: Path | None
    recipe: Path | None
    images: ImageSet
    settings: Settings
    against: str | None = None
    """A service's endpoint; None: our own chain."""
    sending: Sending = field(default_factory=Sending)
    """How it takes an image."""
    images_only: bool = False
    """It is sent no body that is no image."""
    clients: tuple[int, ...] = (1, 2, 4, 16)
    rounds: Rounds = field(default_factory=Rounds)

    def as_dict(self) -> dict[str, Any]:
        """For the manifest."""
        return {
            "model": str(self.model) if self.model else None,
            "against": self.against,
            "sending": self.sending.as_dict(),
            "clients": self.clients,
            "rounds": asdict(self.rounds),
            "images": self.images.count,
            **asdict(self.settings),
        }


def isolate(
    asked: Isolation, folder: Path | None, tell: Tell = lambda text: None
) -> ChainReport | ForeignReport:
    """Our own chain, or the service at `asked.against`; with `folder`, into a capture too.

    Raises ModelError, SettingError, UsageError, StorageError.
    """
    began_s = monotonic_s()
    with _capture(asked, folder, began_s) as (sink, finish):
        report = (
            _chain(asked, began_s, sink, tell)
            if asked.against is None
            else _foreign(asked, asked.against, began_s, sink, tell)
        )
        finish(report.as_dict())
        return report


def _chain(asked: Isolation, began_s: float, sink: Sink, tell: Tell) -> ChainReport:
    recipe_file = find_recipe(asked.model, asked.recipe)
    return isolate_chain(
        asked.model,
        asked.recipe,
        recipe_file,
        asked.images,
        asked.settings,
        max(asked.clients),
        asked.rounds,
        began_s=began_s,
        sink=sink,
        tell=tell,
    )


def _foreign(asked: Isolation, url: str, began_s: float, sink: Sink, tell: Tell) -> ForeignReport:
    service = Service(url, maker_of(url, asked.sending), asked.clients, asked.images_only)
    known = Known()
    if asked.model is not None or asked.recipe is not None:
        recipe = find_recipe(asked.model, asked.recipe).recipe
        if asked.model is not None:
            tell("measuring the model alone")
        known = Known(recipe, _model_alone_s(asked) if asked.model is not None else None)
    return isolate_foreign(service, asked.images, known, asked.rounds, began_s=began_s, sink=sink, tell=tell)


def _model_alone_s(asked: Isolation) -> float:
    """Seconds of one image after the other through the model, with as many threads as there are cores."""
    recipe_file = find_recipe(asked.model, asked.recipe)
    settings, recipe = asked.settings, recipe_file.recipe
    threads = max(model_threads(settings, usable_cores()), usable_cores())
    runner = open_runner(asked.model, recipe_file, accelerator=settings.accelerator, threads=threads)
    try:
        batch = batch_of(take_samples(asked.images, recipe, settings), 1)
        window = loop_model([resident_run(runner, batch)], 1, runner, Pace(asked.rounds.window_s, 1, 4))
        return 1.0 / window.rate_per_s
    finally:
        runner.close()


Finish = Callable[[dict[str, Any]], None]


@contextmanager
def _capture(asked: Isolation, folder: Path | None, began_s: float) -> Iterator[tuple[Sink, Finish]]:
    """Where outcomes go, and the report at the end."""
    if folder is None:
        yield (lambda rows: None), (lambda summary: None)
        return
    head = manifest(
        "isolate",
        began_s,
        target={"url": asked.against} if asked.against else {"model": str(asked.model)},
        settings=asked.as_dict(),
        emulated=asked.settings.accelerator.startswith("emulated"),
    )
    with CaptureWriter.create(folder, head) as writer:

        def finish(summary: dict[str, Any]) -> None:
            now_s = monotonic_s() - began_s
            if summary["emulated"] and not head.emulated:
                writer.note(Note(now_s, "remark", "an emulated accelerator answered"))
            writer.finish(End(now_s, "finished", summary))

        yield writer.add, finish

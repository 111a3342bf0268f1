"""`headrace serve`: a model behind the pipeline, over HTTP."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from headrace.core.policy.plan import Plan
from headrace.records.settings import Settings
from headrace.serve.engine.engine import open_engine
from headrace.serve.engine.memory import keep_freed_memory
from headrace.serve.server import Server
from headrace.workflows.recipes import find_recipe


@dataclass(frozen=True, slots=True)
class Announcement:
    """What the operator is told once the server is ready."""

    name: str
    host: str
    port: int
    metrics_port: int
    device: str
    emulated: bool
    plan: Plan
    notes: tuple[str, ...]


def serve(
    model: Path | None, recipe: Path | None, settings: Settings, announce: Callable[[Announcement], None]
) -> bool:
    """Serves until it is told to stop. True when every request inside ended in time.

    Raises UsageError and its kin before anything listens.
    """
    recipe_file = find_recipe(model, recipe)
    server = Server(settings.server_host, settings.server_port, settings.server_metrics_port)
    if settings.memory_keep:
        keep_freed_memory()
    engine = open_engine(model, recipe_file, settings)
    name = settings.model_name or (model.stem if model is not None else "emulated")

    def ready() -> None:
        announce(
            Announcement(
                name,
                settings.server_host,
                server.port,
                server.metrics_port,
                engine.runner.device,
                engine.runner.emulated,
                engine.plan,
                engine.runner.notes,
            )
        )

    return server.run(engine, recipe_file, name, on_ready=ready)

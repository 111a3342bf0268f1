"""A service of which nothing is known but its endpoint, asked in ways that differ in one thing (R5)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from headrace.core.isolation.foreign import (
    FULL,
    GARBAGE,
    LARGE_GARBAGE,
    TINY,
    Answers,
    Verdict,
    judge,
)
from headrace.core.isolation.sentences import foreign_notes, foreign_sentence
from headrace.errors import UsageError
from headrace.load.preflight import ask_once
from headrace.load.shot import Target
from headrace.load.wire import Maker
from headrace.records.recipe import Recipe
from headrace.records.rows.load import ImageRow
from headrace.workflows.image_sets import ImageSet
from headrace.workflows.isolation.asking import LONGEST_S, Asked, Asker, Sink
from headrace.workflows.isolation.kinds import AT_MODEL_SIZE, Kind, kinds_of, shots
from headrace.workflows.isolation.meter import Pace, Rounds, Tell

AT_MOST = (GARBAGE, LARGE_GARBAGE, TINY, FULL)
"""Kinds that are also asked with the most clients."""
FEWEST = 8
"""Answers of a window, at least."""
MOST_NO_IMAGES = 32
"""Bodies that are no image are sent this often, or three times a client, and no more: a service may log each with a stack."""
BUSY_CLIENT = 0.8
"""Cores: a single thread that asks this much may be slower than what it asks."""


@dataclass(frozen=True, slots=True)
class ForeignReport:
    """A service, judged by its answers."""

    sentence: str
    url: str
    answers: tuple[Answers, ...]
    verdict: Verdict
    model_s: float | None
    """Seconds an image of the model alone, where it was given."""
    emulated: bool
    """An emulated accelerator answered."""
    notes: tuple[str, ...]
    rounds: Rounds

    def as_dict(self) -> dict[str, Any]:
        scaling = {str(clients): share for clients, share in self.verdict.scaling.items()}
        return {"format": 1, **asdict(self), "verdict": {**asdict(self.verdict), "scaling": scaling}}


@dataclass(frozen=True, slots=True)
class _Try:
    """One kind of request at one number of clients."""

    kind: Kind
    source: int
    clients: int


@dataclass(frozen=True, slots=True)
class Service:
    """Whom to ask, and how."""

    url: str
    maker: Maker
    clients: Sequence[int]
    """Numbers of requests at once."""
    images_only: bool = False
    """Send no body that is no picture: some services log each with a stack."""


@dataclass(frozen=True, slots=True)
class Known:
    """The model behind it, where that is known."""

    recipe: Recipe | None = None
    seconds: float | None = None
    """An image alone."""


def isolate_foreign(
    service: Service,
    images: ImageSet,
    known: Known,
    rounds: Rounds,
    *,
    began_s: float,
    sink: Sink,
    tell: Tell,
) -> ForeignReport:
    """Asks every kind `rounds.rounds` times, in turns. Raises UsageError when the service does not take the full picture."""
    offered = [kind for kind in kinds_of(images, known.recipe) if kind.picture or not service.images_only]
    target = Target.of(service.url)
    tell(f"asking {service.url}")
    kinds, left_out, emulated = try_out(target, service, offered)
    kinds.sort(key=lambda kind: (kind.megapixels, len(kind.bodies[0])))
    sink([_row(source, kind) for source, kind in enumerate(kinds)])
    tries = _tries(kinds, service.clients)
    answers, asked_notes = _ask(Asker(target, began_s, sink), tries, service.maker, rounds, tell)
    verdict = judge(answers)
    notes = foreign_notes(verdict, answers, known.seconds)
    return ForeignReport(
        sentence=foreign_sentence(verdict),
        url=service.url,
        answers=answers,
        verdict=verdict,
        model_s=known.seconds,
        emulated=emulated,
        notes=(*notes, *left_out, *asked_notes),
        rounds=rounds,
    )


def _row(source: int, kind: Kind) -> ImageRow:
    width, height = kind.size or (None, None)
    return ImageRow(source, kind.name, "jpeg" if kind.size else None, len(kind.bodies[0]), width, height)


def _tries(kinds: Sequence[Kind], clients: Sequence[int]) -> list[_Try]:
    """Every kind with the fewest clients, some with the most, the full picture with each number."""
    few, many = min(clients), max(clients)
    tries = []
    for source, kind in enumerate(kinds):
        numbers = {few, many} if kind.name in AT_MOST else {few}
        if kind.name == FULL:
            numbers.update(clients)
        tries += [_Try(kind, source, number) for number in sorted(numbers)]
    return tries


def try_out(target: Target, service: Service, kinds: Sequence[Kind]) -> tuple[list[Kind], list[str], bool]:
    """One request of each kind, the full picture first. The kinds to go on with, notes on the others, and whether an emulated accelerator
    answers.

    Where the tiny picture is refused, the one of the model's size takes its place. Raises UsageError when the full one is refused, or
    both of these.
    """
    taken: list[Kind] = []
    notes: list[str] = []
    emulated = False
    for kind in sorted(kinds, key=lambda kind: kind.name != FULL):
        shot = next(shots(kind, 0, service.maker))
        try:
            reply = ask_once(target, shot, LONGEST_S)
            problem = reply.failure(shot)
            emulated = emulated or reply.field(b"x-headrace-emulated") == "true"
        except UsageError as nobody:
            if kind.name == FULL:
                raise
            notes.append(f"{kind.name}: left out, {nobody}.")
            continue
        if kind.name == FULL and problem is not None:
            raise UsageError(
                f"{service.url} does not take a picture: {problem}; is it the right path and --as?"
            )
        if kind.picture == (problem is None):
            taken.append(kind)
        elif kind.picture:
            notes.append(f"{kind.name}: left out, it is answered {problem}.")
        else:
            notes.append(
                f"{kind.name}: left out, it is answered like a picture (--expect tells right answers from wrong ones)."
            )
    return _with_tiny(taken, service.url), notes, emulated


def _with_tiny(taken: list[Kind], url: str) -> list[Kind]:
    names = [kind.name for kind in taken]
    if TINY in names:
        return taken
    if AT_MODEL_SIZE not in names:
        raise UsageError(
            f"{url} takes neither a tiny picture nor one of the model's size, so nothing can be told apart"
        )
    at = names.index(AT_MODEL_SIZE)
    return [*taken[:at], replace(taken[at], name=TINY), *taken[at + 1 :]]


def _ask(
    asker: Asker, tries: Sequence[_Try], maker: Maker, rounds: Rounds, tell: Tell
) -> tuple[tuple[Answers, ...], tuple[str, ...]]:
    """In turns, every other round backwards. The answers, and notes on what may spoil them."""
    seen: list[list[Asked]] = [[] for _ in tries]
    endless = [shots(each.kind, each.source, maker) for each in tries]
    for number in range(rounds.rounds):
        order = range(len(tries))
        for at in reversed(order) if number % 2 else order:
            each = tries[at]
            name = f"{each.kind.name} x{each.clients}"
            tell(f"round {number + 1} of {rounds.rounds}: {name}")
            least = max(FEWEST, 2 * each.clients + 1)
            pace = Pace(rounds.window_s, each.clients, least)
            most = None if each.kind.picture else max(MOST_NO_IMAGES, 3 * each.clients)
            asked = asker.ask(endless[at], each.clients, pace, name, most=most)
            seen[at].append(asked)
    answers = tuple(_answers(each, found) for each, found in zip(tries, seen, strict=True))
    every = [asked for found in seen for asked in found]
    return answers, (*_failed_note(every), *_client_note(max(asked.client_cores for asked in every)))


def _answers(each: _Try, found: Sequence[Asked]) -> Answers:
    lost = next((asked.failed for asked in found if not asked.window.images), None)
    if lost is not None:
        failures = ", ".join(f"{count} {kind}" for kind, count in lost.items())
        raise UsageError(f"{each.kind.name} at {each.clients} clients was not answered ({failures})")
    return Answers(
        each.kind.name,
        each.clients,
        each.kind.megapixels,
        round(sum(map(len, each.kind.bodies)) / len(each.kind.bodies)),
        tuple(asked.window.rate_per_s for asked in found),
        tuple(asked.latency_s for asked in found),
    )


def _failed_note(every: Sequence[Asked]) -> tuple[str, ...]:
    failed: Counter[str] = Counter()
    for asked in every:
        failed.update(asked.failed)
    kinds = ", ".join(f"{count} {kind}" for kind, count in failed.items())
    return (f"Requests that failed, and are not in the figures: {kinds}.",) if failed else ()


def _client_note(cores: float) -> tuple[str, ...]:
    if cores < BUSY_CLIENT:
        return ()
    return (
        f"Asking took up to {cores:.1f} cores of this machine: the smallest requests may be limited by that.",
    )

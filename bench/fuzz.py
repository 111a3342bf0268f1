"""Does any input crash, hang or bloat the image core? `python -m bench.fuzz [--inputs 10000] [--seed 1] [--seconds S]`.

Spoiled images go through read_header, plan_decode, decode and resize under the default limits, in a process of its own
with a limit on its address space. What counts as found: a signal, an exception outside RequestError, more than ten seconds,
or more memory than the plan promised. The input is saved, the process replaced, and the run goes on. Exits 1 when anything was found.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import re
import resource
import sys
import time
import traceback
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np

from bench.fuzz_inputs import Hostile, Seed, format_by_magic, hostile, made_corpus, read_corpus
from headrace.core.image.canvas import FreshCanvas
from headrace.core.image.decode import decode
from headrace.core.image.decode_plan import Limits, plan_decode
from headrace.core.image.header import read_header
from headrace.core.image.resize import Resizer
from headrace.errors import RequestError
from headrace.records.image import Encoded, Header
from headrace.records.recipe import Recipe
from headrace.records.settings import Settings

ADDRESS_SPACE = 4 * 2**30
"""Far above what an honest decode needs, far below what a bomb takes."""
MEMORY_SLACK = 64 * 2**20
"""Beside the pixels and copies of the body: the scratch of resizer and codec, the allocator's own reserve."""
WALL_S = 10.0

RECIPES: tuple[tuple[Recipe, str], ...] = (
    (Recipe(width=384, height=384), "fast"),
    (Recipe(width=32, height=24), "fast"),
    (Recipe(width=224, height=224, fit="center_crop", crop_fraction=0.875, colour="bgr"), "exact"),
    (Recipe(width=160, height=96, fit="letterbox", colour="grey"), "fast"),
    (Recipe(width=64, height=64, alpha="#ffffff", icc="srgb", filter="bilinear"), "exact"),
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one input."""

    format: str
    result: str
    """`decoded`, the code of a request error, or `found: ...`."""
    detail: str = ""

    @property
    def found(self) -> bool:
        return self.result.startswith("found")


def judge(data: bytes, number: int, limits: Limits) -> Outcome:
    """Runs one input through the image core."""
    recipe, fidelity = RECIPES[number % len(RECIPES)]
    header: Header | None = None
    promised = 0
    before = _reset_peak()
    try:
        header = read_header(data)
        plan = plan_decode(header, recipe, fidelity, True, limits)
        promised = plan.bytes_needed
        pixels = decode(Encoded(data), header, plan, recipe, FreshCanvas)
        slot = np.zeros((recipe.height, recipe.width, recipe.channels), np.uint8)
        Resizer(recipe).write(pixels, slot)
        pixels.release()
        result, detail = "decoded", ""
    except RequestError as problem:
        result, detail = problem.code, str(problem)
    except BaseException as problem:
        result, detail = f"found: {type(problem).__name__}", traceback.format_exc()
    name = header.format if header else format_by_magic(data)
    grown = _peak() - before
    if grown > promised + MEMORY_SLACK + 3 * len(data):
        used, planned = grown // 2**20, promised // 2**20
        return Outcome(name, "found: memory", f"{used} MiB used, {planned} MiB planned; {result} {detail}")
    return Outcome(name, result, detail)


def _reset_peak() -> int:
    """Resident bytes now, as the new peak (Linux); elsewhere the memory of a run is not judged."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return sys.maxsize
    return _peak()


def _peak() -> int:
    try:
        text = Path("/proc/self/status").read_text("ascii")
    except OSError:
        return 0
    found = re.search(r"VmHWM:\s+(\d+) kB", text)
    return int(found[1]) * 1024 if found else 0


def worker(link: Connection) -> None:
    """Answers (data, number) with an Outcome until the other end closes."""
    warnings.simplefilter("ignore")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # libtiff writes its complaints there
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    defaults = Settings()
    limits = Limits(defaults.limits_max_pixels, defaults.limits_max_decode_bytes)
    while True:
        try:
            data, number = link.recv()
        except EOFError:
            return
        link.send(judge(data, number, limits))


class Cage:
    """A worker process that is replaced when an input kills or stalls it."""

    def __init__(self, wall_s: float = WALL_S, serve: Callable[[Connection], None] = worker) -> None:
        self._context = multiprocessing.get_context("spawn")
        self._wall_s = wall_s
        self._serve = serve
        self._start()

    def _start(self) -> None:
        self._link, theirs = self._context.Pipe()
        self._process = self._context.Process(target=self._serve, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()

    def run(self, data: bytes, number: int) -> Outcome:
        try:
            self._link.send((data, number))
            if self._link.poll(self._wall_s):
                outcome: Outcome = self._link.recv()
                return outcome
            outcome = Outcome("unknown", "found: hang", f"no answer within {self._wall_s:g} s")
        except (EOFError, OSError):
            self._process.join(5)
            outcome = Outcome("unknown", f"found: exit {self._process.exitcode}", "the process ended")
        self.close()
        self._start()
        return replace(outcome, format=format_by_magic(data))

    def close(self) -> None:
        self._link.close()
        self._process.kill()
        self._process.join()


def fuzz(
    inputs: Iterable[Hostile], deadline: float, keep: Path, cage: Cage
) -> Iterator[tuple[Hostile, Outcome]]:
    """Judges inputs until they or the time run out; saves those that found something."""
    try:
        for spoiled in inputs:
            if time.monotonic() > deadline:
                return
            outcome = cage.run(spoiled.data, spoiled.number)
            if outcome.found:
                keep.mkdir(parents=True, exist_ok=True)
                (keep / f"{spoiled.number}.bin").write_bytes(spoiled.data)
                notes = f"{spoiled.number} from {spoiled.made_from}\n{outcome.result}\n{outcome.detail}\n"
                (keep / f"{spoiled.number}.txt").write_text(notes, "utf-8")
            yield spoiled, outcome
    finally:
        cage.close()


def table(counts: dict[str, Counter[str]]) -> str:
    """One row a format: decoded, refused by code, found."""
    results = sorted({result for row in counts.values() for result in row}, key=_column_order)
    widths = [max(7, len(result)) for result in results]
    lines = [f"{'format':<10}" + "".join(f"  {name:>{w}}" for name, w in zip(results, widths, strict=True))]
    total: Counter[str] = sum(counts.values(), Counter())
    for name, row in [*sorted(counts.items()), ("all", total)]:
        cells = "".join(f"  {row[result]:>{w}}" for result, w in zip(results, widths, strict=True))
        lines.append(f"{name:<10}{cells}")
    return "\n".join(lines)


def _column_order(result: str) -> tuple[int, str]:
    return (0 if result == "decoded" else 2 if result.startswith("found") else 1, result)


def corpus(folders: list[Path]) -> list[Seed]:
    return made_corpus() + read_corpus(folders)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.fuzz", description=__doc__)
    parser.add_argument("--inputs", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=3600.0, help="stop after so long")
    parser.add_argument("--from", dest="folders", type=Path, action="append", default=[], metavar="FOLDER")
    parser.add_argument("--keep", type=Path, default=Path("build/fuzz"), help="where finds are saved")
    parser.add_argument("--only", type=int, help="judge this one input again, in this process")
    options = parser.parse_args(arguments)
    seeds = corpus(options.folders)
    if options.only is not None:
        spoiled = hostile(options.seed, options.only, seeds)
        print(spoiled.made_from, judge(spoiled.data, spoiled.number, Limits(200_000_000, 2**28)))
        return 0
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    began = time.monotonic()
    inputs = (hostile(options.seed, number, seeds) for number in range(options.inputs))
    for spoiled, outcome in fuzz(inputs, began + options.seconds, options.keep, Cage()):
        counts[outcome.format][outcome.result] += 1
        if outcome.found:
            print(f"input {spoiled.number} from {spoiled.made_from}: {outcome.result}", flush=True)
    judged = sum(sum(row.values()) for row in counts.values())
    found = sum(
        count for row in counts.values() for result, count in row.items() if result.startswith("found")
    )
    print(
        f"\n{judged} inputs from {len(seeds)} files, seed {options.seed}, {time.monotonic() - began:.0f} s\n"
    )
    print(table(counts))
    print(f"\nfound {found}" + (f"; inputs in {options.keep}" if found else ""))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

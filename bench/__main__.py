"""`make bench`: every contestant on the same files, interleaved round by round in one run, ratios first.

`python -m bench [--rounds N] [--seconds S] [--only WORKLOAD ...]` writes docs/performance.md.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from bench.inputs import TITLES, workload
from bench.process import Worker, cost, peak_bytes, reset_peak
from bench.report import Row, write

FAST_DEVICE = "emulated:0.5ms+0ms"
FOUR_IN_40_MS = "emulated:1=40ms,4=40ms"
OURS = "headrace, over HTTP"
RIVAL = "rival: FastAPI, same decoder, resize, batching"
ECHO = "echo: bare application, same ASGI server"
PAGE = Path("docs/performance.md")


@dataclass
class Contestant:
    """`worker` does the work; with a `client`, the client is told to load it over HTTP."""

    name: str
    worker: Worker
    client: Worker | None = None
    rounds: list[Row] = field(default_factory=list)

    def window(self, seconds: float) -> Row:
        reset_peak(self.worker.pid)
        before = cost(self.worker.pid)
        driver, order = (
            (self.worker, "run") if self.client is None else (self.client, f"run {self.worker.hello['port']}")
        )
        result = driver.order(f"{order} {seconds}")
        after, images = cost(self.worker.pid), max(1, int(result["images"]))
        return Row(
            rate=images / result["seconds"],
            cpu_ms=1e3 * (after.cpu_s - before.cpu_s) / images,
            faults=(after.minor_faults - before.minor_faults) / images,
            peak_bytes=peak_bytes(self.worker.pid),
            p50_ms=result.get("p50_ms"),
            p99_ms=result.get("p99_ms"),
            failed=int(result.get("failed", 0)),
        )


@dataclass(frozen=True)
class Match:
    """One table of the page."""

    title: str
    workload: str
    recipe: str
    baseline: str
    contestants: dict[str, tuple[str, ...]]


def headrace(device: str, *settings: str) -> tuple[str, ...]:
    return ("bench.workers.server", "headrace", "{recipe}", f"accelerator={device}", *settings)


def rival(device: str, *max_items: str) -> tuple[str, ...]:
    return ("bench.workers.rival", "{recipe}", device, *max_items)


def photographs(name: str) -> Match:
    legacy = ("prepare.path=legacy", "door.max_inside=64")
    return Match(
        f"{TITLES[name]} to 384x384, 16 connections, device never the limit",
        name,
        "384",
        "floor",
        {
            "floor": ("bench.workers.floor", "{workload}", "{recipe}"),
            "headrace, in process": ("bench.workers.engine", "{workload}", "{recipe}", FAST_DEVICE),
            OURS: headrace(FAST_DEVICE),
            RIVAL: rival(FAST_DEVICE),
            "legacy (Pillow), allocator as it comes": headrace(FAST_DEVICE, *legacy, "memory.keep=false"),
            "legacy (Pillow), allocator tuned": headrace(FAST_DEVICE, *legacy),
            "naive FastAPI with OpenCV, allocator tuned": (
                "bench.workers.opencv_naive",
                "{recipe}",
                FAST_DEVICE,
                "tuned",
            ),
        },
    )


def small(recipe: str, fit: str) -> Match:
    return Match(
        f"256x256 JPEG, {fit}, 16 connections, device never the limit: the server's own cost",
        "small",
        recipe,
        ECHO,
        {
            ECHO: ("bench.workers.server", "echo", "{recipe}"),
            "bare loop of decode and resize": ("bench.workers.floor", "{workload}", "{recipe}"),
            "headrace, in process": ("bench.workers.engine", "{workload}", "{recipe}", FAST_DEVICE),
            OURS: headrace(FAST_DEVICE),
            RIVAL: rival(FAST_DEVICE),
        },
    )


MATCHES = {
    "baseline": photographs("baseline"),
    "progressive": photographs("progressive"),
    "png": photographs("png"),
    "device": Match(
        "12 MP baseline JPEG, device takes 40 ms for up to 4 images",
        "baseline",
        "384",
        OURS,
        {
            OURS: headrace(FOUR_IN_40_MS, "batch.max_items=4"),
            RIVAL: rival(FOUR_IN_40_MS, "4"),
        },
    ),
    "small": small("224crop", "usual 224x224 centre crop"),
    "small-resized": small("224", "stretched to 224x224"),
}


def start(match: Match) -> list[Contestant]:
    contestants = []
    for name, (module, *arguments) in match.contestants.items():
        filled = [text.format(recipe=match.recipe, workload=match.workload) for text in arguments]
        worker = Worker(module, *filled)
        path = "/predict"
        client = (
            Worker("bench.workers.client", match.workload, path, "16") if "port" in worker.hello else None
        )
        contestants.append(Contestant(name, worker, client))
    return contestants


def play(match: Match, rounds: int, seconds: float) -> list[Contestant]:
    workload(match.workload)
    contestants = start(match)
    try:
        for contestant in contestants:
            contestant.window(min(2.0, seconds))
        for number in range(rounds):
            for contestant in contestants if number % 2 == 0 else reversed(contestants):
                contestant.rounds.append(contestant.window(seconds))
                row = contestant.rounds[-1]
                print(f"  {contestant.name:<50} {row.rate:8.1f}/s {row.cpu_ms:8.2f} ms CPU", flush=True)
    finally:
        for contestant in contestants:
            contestant.worker.close()
            if contestant.client is not None:
                contestant.client.close()
    return contestants


def paired_ratio(contestant: Contestant, baseline: Contestant) -> float:
    return median(
        mine.rate / other.rate for mine, other in zip(contestant.rounds, baseline.rounds, strict=True)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--only", nargs="+", choices=list(MATCHES), default=list(MATCHES))
    options = parser.parse_args()
    tables = []
    for name in options.only:
        match = MATCHES[name]
        print(match.title, flush=True)
        contestants = play(match, options.rounds, options.seconds)
        baseline = next(contestant for contestant in contestants if contestant.name == match.baseline)
        rows = [
            (contestant.name, paired_ratio(contestant, baseline), contestant.rounds)
            for contestant in contestants
        ]
        tables.append((match.title, match.baseline, rows))
    text = write(tables, options.rounds, options.seconds)
    print(text)
    if set(options.only) == set(MATCHES):
        PAGE.write_text(text)
        print(f"written to {PAGE}")


if __name__ == "__main__":
    main()

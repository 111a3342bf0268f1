"""`make demo`: real photographs through a real model, along both paths.

It starts two servers, shows what they predict, where the time of a request goes, how the paths compare on the same photographs, and
what one of them looks like from outside.
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from threading import Event

from headrace.core.watching.lines import columns_of, main_lines
from headrace.errors import HeadraceError
from headrace.lab.assets import Assets, load
from headrace.lab.server_process import RunningServer, running_server
from headrace.lab.traffic import Traffic, drive, predict
from headrace.records.timeline import STAGES
from headrace.workflows.estimate import Asked, estimate, from_capture
from headrace.workflows.record import record
from headrace.workflows.record_target import Watch

CLIENTS = 8
ROUNDS = 3
WINDOW_S = 3.0
WATCHED_S = 6.0


def main() -> int:
    """0 when every prediction was right and no request failed; 1 otherwise."""
    try:
        assets = load()
        with (
            running_server(str(assets.model), "--recipe", str(assets.recipe)) as staged,
            running_server(
                str(assets.model), "--recipe", str(assets.recipe), "--prepare-path", "legacy"
            ) as legacy,
        ):
            return _show(assets, staged, legacy)
    except HeadraceError as problem:
        print(f"headrace: {problem}", file=sys.stderr)
        return problem.exit_code


def _show(assets: Assets, staged: RunningServer, legacy: RunningServer) -> int:
    print("headrace demo: EfficientNet-Lite0 on the CPU, real photographs\n")
    wrong = _predictions(assets, staged)
    failures: list[str] = []
    for title, photographs in (
        ("baseline", assets.large_baseline),
        ("progressive", assets.large_progressive),
    ):
        totals = _race(title, photographs, staged, legacy)
        failures += [failure for traffic in totals.values() for failure in traffic.failures]
        if title == "baseline":
            _stage_bill(totals)
    _watched(assets.large_baseline, legacy)
    for failure in failures[:5]:
        print(f"failed: {failure}")
    print(
        "\nall predictions right, no request failed"
        if not wrong and not failures
        else "\nNOT as it should be, see above"
    )
    return 1 if wrong or failures else 0


def _predictions(assets: Assets, server: RunningServer) -> int:
    print(f"{'photograph':<24} {'is a':<18} {'predicted':<18} score")
    wrong = 0
    for path, expected in sorted(assets.answers.items(), key=lambda row: Path(row[0]).name):
        best = predict(server.port, Path(path).read_bytes())["predictions"][0]
        right = best["label"].lower() == expected.lower()
        wrong += not right
        print(
            f"{Path(path).name[:24]:<24} {expected:<18} {best['label']:<18} {best['score']:.2f} {'' if right else '  WRONG'}"
        )
    return wrong


def _race(
    title: str, photographs: tuple[Path, ...], staged: RunningServer, legacy: RunningServer
) -> dict[str, Traffic]:
    """Both paths in turn, round by round, on the same photographs."""
    images = [path.read_bytes() for path in photographs]
    totals, ratios = {"staged": Traffic(), "legacy": Traffic()}, []
    for server in (staged, legacy):
        drive(server.port, images, CLIENTS, 0.5)
    for _ in range(ROUNDS):
        first = drive(staged.port, images, CLIENTS, WINDOW_S)
        second = drive(legacy.port, images, CLIENTS, WINDOW_S)
        ratios.append(first.rate / second.rate if second.rate else float("inf"))
        totals = {"staged": totals["staged"] + first, "legacy": totals["legacy"] + second}
    size = sum(map(len, images)) / len(images) / 2**20
    print(
        f"\n{len(images)} {title} JPEGs of about 12 megapixels, {size:.1f} MiB on average, {CLIENTS} clients, {ROUNDS} rounds in turn:"
    )
    for path, traffic in totals.items():
        worst = max(traffic.latencies_s, default=float("nan"))
        middle = median(traffic.latencies_s) if traffic.latencies_s else float("nan")
        print(
            f"  {path:<8} {traffic.rate:6.1f} images/s   median {middle * 1e3:6.0f} ms   slowest {worst * 1e3:6.0f} ms"
        )
    print(
        f"  staged / legacy: {median(ratios):.1f}x (rounds: {', '.join(f'{ratio:.1f}' for ratio in ratios)})"
    )
    return totals


def _stage_bill(totals: dict[str, Traffic]) -> None:
    print("\nwhere the time of a request goes, mean ms (waiting + working):")
    print(f"  {'path':<8} " + " ".join(f"{stage:>16}" for stage in STAGES) + f" {'sum':>9}")
    for path, traffic in totals.items():
        bill = [traffic.stage_ms(stage) for stage in STAGES]
        cells = [f"{wait_ms:7.1f} + {service_ms:6.1f}" for wait_ms, service_ms in bill]
        print(f"  {path:<8} " + " ".join(cells) + f" {sum(map(sum, bill)):9.1f}")


def _watched(photographs: tuple[Path, ...], server: RunningServer) -> None:
    """The legacy path from outside, as any service would be watched, and what its figures come to."""
    images = [path.read_bytes() for path in photographs]
    with TemporaryDirectory() as folder, ThreadPoolExecutor(1) as client:
        capture = Path(folder) / "capture"
        asking = client.submit(drive, server.port, images, CLIENTS, WATCHED_S + 1)
        watch = Watch(service=f"http://127.0.0.1:{server.port}", seconds=WATCHED_S)
        told = record(watch, capture, Event())
        asking.result()
        print(f"\nthe legacy path watched from outside for {WATCHED_S:g} s, mean (headrace record):")
        for line in columns_of(main_lines(told.figures), end=True):
            print(f"  {line}")
        chain, measured = from_capture(capture)
        print(f"who waits for whom (headrace estimate): {estimate(Asked(chain, CLIENTS), measured).sentence}")


if __name__ == "__main__":
    sys.exit(main())

"""A short run of the fuzzer with a fixed seed: nothing crashes, hangs, bloats or raises what it should not."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def test_three_hundred_spoiled_images(tmp_path: Path) -> None:
    pytest.importorskip("resource", reason="the fuzzer limits its processes' memory, which needs a Unix")
    command = [sys.executable, "-m", "bench.fuzz", "--inputs", "300", "--seed", "11", "--keep", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "found 0" in done.stdout
    total = next(line for line in done.stdout.splitlines() if line.startswith("all"))
    decoded, *refused = (int(number) for number in re.findall(r"\d+", total))
    assert decoded >= 30
    assert decoded + sum(refused) == 300
    assert not list(tmp_path.iterdir())


EVIL = """
import os, signal, sys, time
from pathlib import Path
from bench.fuzz import Cage, Outcome, fuzz
from bench.fuzz_inputs import Hostile

def serve(link):
    while True:
        data, number = link.recv()
        if data == b"crash":
            os.kill(os.getpid(), signal.SIGKILL)
        if data == b"stall":
            time.sleep(60)
        link.send(Outcome("png", "found: KeyError" if data == b"raise" else "decoded"))

if __name__ == "__main__":
    inputs = [Hostile(n, "made", data) for n, data in enumerate([b"fine", b"crash", b"stall", b"raise", b"fine"])]
    for _, outcome in fuzz(inputs, time.monotonic() + 60, Path(sys.argv[1]), Cage(2.0, serve)):
        print(outcome.result)
"""


def test_crash_and_stall_are_found_and_the_run_goes_on(tmp_path: Path) -> None:
    script, keep = tmp_path / "evil.py", tmp_path / "keep"
    script.write_text(EVIL)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(script), str(keep)]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=90, check=False
    )
    results = ["decoded", "found: exit -9", "found: hang", "found: KeyError", "decoded"]
    assert done.stdout.splitlines() == results, done.stderr
    assert {path.name: path.read_bytes() for path in keep.glob("*.bin")} == {
        "1.bin": b"crash",
        "2.bin": b"stall",
        "3.bin": b"raise",
    }
    assert "hang" in (keep / "2.txt").read_text("utf-8")

"""Run a command of the system and keep what it said."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from headrace.errors import AssetError

TIMEOUT_S = 900.0


@dataclass(frozen=True)
class Outcome:
    """How a command ended, and its complaints."""

    code: int
    complaints: str

    def last_words(self) -> str:
        """The line worth showing: the last one that calls itself an error, or just the last one."""
        lines = [line.strip() for line in self.complaints.splitlines() if line.strip()]
        errors = [line for line in lines if line.lower().startswith(("error", "e:"))]
        return (errors or lines or [f"it ended with code {self.code}"])[-1]


class Runner(Protocol):
    """What fetching needs from the system; tests give their own."""

    def __call__(self, command: Sequence[str], cwd: Path, output: Path | None = None) -> Outcome: ...


def run_command(command: Sequence[str], cwd: Path, output: Path | None = None) -> Outcome:
    """Run without a shell and without asking anything; standard output goes to `output` or nowhere."""
    environment = {**os.environ, "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"}
    with (output or Path(os.devnull)).open("wb") as sink:
        try:
            ended = subprocess.run(
                command,
                cwd=cwd,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.PIPE,
                timeout=TIMEOUT_S,
            )
        except subprocess.TimeoutExpired:
            raise AssetError(f"{command[0]} did not end within {TIMEOUT_S:.0f} s; run again later") from None
        except OSError as error:
            raise AssetError(f"{command[0]} cannot be started: {error}") from error
    return Outcome(ended.returncode, ended.stderr.decode("utf-8", "replace"))

"""What the cache holds: the files every step produced, and how to see quickly whether they are still intact."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from headrace.lab.assets.files import sha256_of, write_atomically

NAME = "manifest.json"
_FORMAT = 1


@dataclass(frozen=True)
class FileRecord:
    """Size and modification time answer in microseconds; the checksum is asked when the time differs."""

    sha256: str
    size: int
    mtime_ns: int

    @classmethod
    def of(cls, path: Path) -> FileRecord:
        status = path.stat()
        return cls(sha256_of(path), status.st_size, status.st_mtime_ns)

    def same_size(self, path: Path) -> bool:
        """The cheapest look: the file is there and as long as it was."""
        try:
            return path.stat().st_size == self.size
        except OSError:
            return False

    def matches(self, path: Path, deep: bool) -> bool:
        """Whether the file is the recorded one; `deep` reads it even when nothing hints at a change."""
        if not self.same_size(path):
            return False
        return (not deep and path.stat().st_mtime_ns == self.mtime_ns) or sha256_of(path) == self.sha256


@dataclass(frozen=True)
class StepRecord:
    """The outcome of a step. `key` stands for all that went into it: another key, and the step is done again."""

    key: str
    files: Mapping[str, FileRecord]


class Manifest:
    """The record of all steps, saved after each of them, so that an interrupted run resumes where it was."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.complete = False
        self.steps: dict[str, StepRecord] = {}
        self.unavailable: dict[str, str] = {}
        self._saving = threading.Lock()

    @classmethod
    def read(cls, root: Path) -> Manifest:
        """The saved manifest; an absent or unreadable one is an empty one, and everything is done again."""
        manifest = cls(root)
        try:
            data = json.loads((root / NAME).read_text("utf-8"))
            if data["format"] == _FORMAT:
                manifest.steps = {name: _step(record) for name, record in data["steps"].items()}
                manifest.unavailable = dict(data["unavailable"])
                manifest.complete = bool(data["complete"])
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return cls(root)
        return manifest

    def save(self) -> None:
        steps = {name: asdict(record) for name, record in sorted(self.steps.items())}
        data = {"format": _FORMAT, "complete": self.complete, "unavailable": self.unavailable, "steps": steps}
        write_atomically(self.root / NAME, [json.dumps(data, indent=1, ensure_ascii=False).encode()])

    def is_current(self, step: str, key: str, deep: bool) -> bool:
        return step in self.steps and self.steps[step].key == key and self.is_intact(step, deep)

    def is_intact(self, step: str, deep: bool = False) -> bool:
        return all(file.matches(self.root / name, deep) for name, file in self.steps[step].files.items())

    def record(self, step: str, key: str, names: Iterable[str]) -> None:
        """Note what a step produced, and remove what only its former run produced."""
        fresh = {name: FileRecord.of(self.root / name) for name in names}
        with self._saving:
            former = self.steps.get(step)
            self.steps[step] = StepRecord(key, fresh)
            self._remove_orphans(former)
            self.save()

    def forget(self, steps: Iterable[str]) -> None:
        """Drop steps and the files only they produced."""
        doomed = [step for step in steps if step in self.steps]
        with self._saving:
            for step in doomed:
                self._remove_orphans(self.steps.pop(step))
            if doomed:
                self.complete = False
                self.save()

    def _remove_orphans(self, former: StepRecord | None) -> None:
        for name in (former.files if former else {}).keys() - self.files().keys():
            (self.root / name).unlink(missing_ok=True)

    def files(self) -> dict[str, FileRecord]:
        return {name: record for step in self.steps.values() for name, record in step.files.items()}


def _step(record: dict[str, Any]) -> StepRecord:
    return StepRecord(record["key"], {name: FileRecord(**file) for name, file in record["files"].items()})

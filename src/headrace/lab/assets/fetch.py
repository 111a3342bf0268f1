"""Fill the cache: fetch what is missing, make what is missing, leave alone what is intact.

The work is a list of steps. Each has a key that stands for all that goes into it; a step whose key is recorded and whose
files are intact costs a few file lookups. So the same call installs, resumes, repairs and, offline, merely verifies.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from importlib import resources
from pathlib import Path

from headrace.errors import AssetError
from headrace.lab.assets import catalogue
from headrace.lab.assets.archives import unpack
from headrace.lab.assets.commands import Runner, run_command
from headrace.lab.assets.files import cache_root, only_one, replacing, sweep, write_atomically
from headrace.lab.assets.lock import Package, packages
from headrace.lab.assets.manifest import Manifest
from headrace.lab.assets.registries import PRIVATE_APT, Progress, data_of_debian, download

KEEP_ARCHIVES = "HEADRACE_KEEP_ARCHIVES"
_WORK = ".work"
_WORKERS = 2
_TIGER_CAT = 282
_CONVERTER = 1  # raised when the converter writes another graph


@dataclass(frozen=True)
class Step:
    """One unit of work that is done wholly or again. `produce` writes files and returns their names below the root."""

    name: str
    key: str
    produce: Callable[[], Sequence[str]]
    title: str


@dataclass(frozen=True)
class Job:
    """One filling of the cache: where, how thoroughly, and whom to tell."""

    manifest: Manifest
    run: Runner
    progress: Progress
    deep: bool

    @property
    def root(self) -> Path:
        return self.manifest.root

    def ensure(self, step: Step) -> bool:
        """Do the step unless it is done; whether there was anything to do."""
        if self.manifest.is_current(step.name, step.key, self.deep):
            return False
        self.progress(step.title)
        self.manifest.complete = False
        self.manifest.record(step.name, step.key, step.produce())
        return True


def fetch(progress: Progress, *, run: Runner = run_command, deep: bool = False, retry: bool = False) -> Path:
    """Make the cache complete and return its folder. Needs no network when it already is.

    `deep` reads every file instead of trusting sizes and times; `retry` asks again for Debian packages that could not
    be had before. Raises AssetError.
    """
    root = cache_root()
    try:
        with only_one(root, lambda: progress(f"waiting for another run that fills {root}")):
            _fill(Job(Manifest.read(root), run, progress, deep), retry)
    except OSError as error:
        raise AssetError(
            f"cannot write the asset cache {root}: {error}; make room or set HEADRACE_ASSETS"
        ) from error
    return root


def _fill(job: Job, retry: bool) -> None:
    for folder in catalogue.FOLDERS:
        sweep(job.root / folder)
    if retry:
        job.manifest.unavailable.clear()
    _ensure_packages(job)
    if not os.environ.get(KEEP_ARCHIVES):
        shutil.rmtree(job.root / _WORK, ignore_errors=True)
    for step in _model_steps(job):
        job.ensure(step)
    with ThreadPoolExecutor(_WORKERS) as pool:  # the codecs release the interpreter's lock
        list(pool.map(job.ensure, _picture_steps(job)))
    job.ensure(_answers_step(job))
    job.manifest.forget(_obsolete(job.manifest))
    if not job.manifest.complete:
        job.manifest.complete = True
        job.manifest.save()


def _obsolete(manifest: Manifest) -> list[str]:
    """Steps of a former catalogue, and products of photographs that cannot be had any more and are damaged."""
    known = {f"package {name}" for name in catalogue.KEEPS} | {"model", "labels", "recipe", "answers"}
    known |= {f"large {large.name}" for large in catalogue.LARGE}
    known |= {f"decoded {name}" for name in catalogue.DECODED}
    return [name for name in manifest.steps if name not in known or not manifest.is_intact(name)]


def _ensure_packages(job: Job) -> None:
    """Python packages are needed; Debian packages are welcome, and their absence is said once, then remembered."""
    shutil.rmtree(job.root / _WORK / PRIVATE_APT, ignore_errors=True)
    known = dict(job.manifest.unavailable)
    for package in packages():
        _ensure_package(job, package)
    skipped: dict[str, list[str]] = {}
    for name, reason in job.manifest.unavailable.items():
        if name not in known:
            skipped.setdefault(reason, []).append(name)
    for reason, names in skipped.items():
        job.progress(
            f"skipped {', '.join(names)}: {reason}; the other photographs suffice, --retry asks again"
        )


def _ensure_package(job: Job, package: Package) -> None:
    keeps = catalogue.KEEPS[package.name]
    key = _key(asdict(package), [asdict(keep) for keep in keeps])
    step = Step(f"package {package.name}", key, partial(_fetch_package, job, package), f"fetching {package}")
    if package.name in job.manifest.unavailable and package.kind == "debian":
        return
    try:
        job.ensure(step)
    except AssetError as error:
        if package.kind != "debian":
            raise
        job.manifest.unavailable[package.name] = str(error)
        job.manifest.forget([step.name])
        job.manifest.save()


def _fetch_package(job: Job, package: Package) -> Sequence[str]:
    folder = job.root / _WORK / package.name
    shutil.rmtree(folder, ignore_errors=True)
    try:
        archive = download(package, folder, job.run, job.progress)
        source = data_of_debian(archive, job.run) if package.kind == "debian" else archive
        return unpack(source, catalogue.KEEPS[package.name], job.root)
    finally:
        if not os.environ.get(KEEP_ARCHIVES):
            shutil.rmtree(folder, ignore_errors=True)


def _model_steps(job: Job) -> list[Step]:
    root = job.root
    weights, names = _sha256(job, catalogue.WEIGHTS), _sha256(job, catalogue.CLASS_NAMES)
    recipe = resources.files(__package__).joinpath(Path(catalogue.RECIPE).name).read_bytes()
    write_recipe = partial(_write, root, catalogue.RECIPE, recipe)
    return [
        Step("model", _key(weights, _CONVERTER), partial(_convert, root), "converting the model to ONNX"),
        Step("labels", _key(names), partial(_write_labels, root), "writing the labels"),
        Step("recipe", _key(recipe.hex()), write_recipe, "writing the recipe"),
    ]


def _convert(root: Path) -> Sequence[str]:
    from headrace.lab.assets.efficientnet_lite import convert

    with replacing(root / catalogue.MODEL) as temporary:
        convert(root / catalogue.WEIGHTS, temporary)
    return [catalogue.MODEL]


def _write_labels(root: Path) -> Sequence[str]:
    """The 1000 names in the order of the logits; one is described there instead of named."""
    labels = json.loads((root / catalogue.CLASS_NAMES).read_text("utf-8"))
    if not isinstance(labels, list) or len(labels) != 1000:
        raise AssetError("the class names are no list of 1000; run again with --deep")
    labels[_TIGER_CAT] = "tiger cat"
    return _write(root, catalogue.LABELS, json.dumps(labels, indent=0, ensure_ascii=False).encode())


def _picture_steps(job: Job) -> list[Step]:
    """Only of photographs that are there: without Debian's the sets are smaller, not broken."""
    from headrace.lab.assets import pictures

    there, steps = job.manifest.files(), []
    for large in catalogue.LARGE:
        if large.source in there:
            key = _key(asdict(large), there[large.source].sha256, pictures.REVISION)
            make = partial(pictures.make_large, job.root, large)
            steps.append(Step(f"large {large.name}", key, make, f"making 12 MP pictures of {large.name}"))
    for name, source in catalogue.DECODED.items():
        key = _key(name, there[source].sha256, pictures.REVISION)
        decode = partial(pictures.make_decoded, job.root, name, source)
        steps.append(Step(f"decoded {name}", key, decode, f"decoding {name}"))
    return steps


def _answers_step(job: Job) -> Step:
    there = job.manifest.files()
    answers = {name: label for name, label in catalogue.KNOWN_ANSWERS.items() if name in there}
    write = partial(_write, job.root, catalogue.ANSWERS, json.dumps(answers, indent=1).encode())
    return Step("answers", _key(answers), write, "writing the answers")


def _write(root: Path, name: str, content: bytes) -> Sequence[str]:
    write_atomically(root / name, [content])
    return [name]


def _sha256(job: Job, name: str) -> str:
    return job.manifest.files()[name].sha256


def _key(*parts: object) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()

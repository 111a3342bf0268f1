"""Take named files out of an archive, and nothing else.

An archive is somebody else's list of file names, so it decides nothing here: what is kept and where it lands is
written in `catalogue.py`. A name that climbs out of its folder, a link where a file is expected, or a file longer than
allowed ends the run.
"""

from __future__ import annotations

import tarfile
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

from headrace.errors import AssetError
from headrace.lab.assets.files import CHUNK, write_atomically

MIB = 1 << 20
IMAGE_SUFFIXES = (
    ".png",
    ".jpg",
    ".jpeg",
    ".gif",
    ".webp",
    ".avif",
    ".heic",
    ".heif",
    ".hif",
    ".tif",
    ".tiff",
    ".bmp",
)


@dataclass(frozen=True)
class Keep:
    """Files to take out.

    `inside` names one member, or all images below a folder when it ends in `/*`; those longer than `max_bytes` and
    those in `skip` stay behind. `to` is the target below the cache; one ending in `/` receives flattened names.
    """

    inside: str
    to: str
    max_bytes: int = 32 * MIB
    skip: tuple[str, ...] = ()

    def target(self, member: str) -> str | None:
        """Where `member` goes, or None when this rule does not ask for it."""
        if not self.inside.endswith("/*"):
            return self._below(PurePosixPath(member).name) if member == self.inside else None
        folder = self.inside[:-1]
        rest = member.removeprefix(folder)
        if rest == member or rest in self.skip or PurePosixPath(rest).suffix.lower() not in IMAGE_SUFFIXES:
            return None
        return self._below(rest.replace("/", "__"))

    def _below(self, name: str) -> str:
        return self.to + name if self.to.endswith("/") else self.to


@dataclass(frozen=True)
class Member:
    """One entry of an archive, whatever the archive's format."""

    name: str
    size: int
    regular: bool
    handle: zipfile.ZipInfo | tarfile.TarInfo


class Archive:
    """Zip and tar behind one face."""

    def __init__(self, path: Path) -> None:
        zipped = path.suffix in {".whl", ".zip"}
        self._file = zipfile.ZipFile(path) if zipped else tarfile.open(path)  # noqa: SIM115 -- see close()

    def close(self) -> None:
        self._file.close()

    def members(self) -> Iterator[Member]:
        if isinstance(self._file, zipfile.ZipFile):
            for info in self._file.infolist():
                link = (info.external_attr >> 16) & 0o170000 == 0o120000
                yield Member(safe_name(info.filename), info.file_size, not info.is_dir() and not link, info)
        else:
            for entry in self._file:
                yield Member(safe_name(entry.name), entry.size, entry.isreg(), entry)

    def open(self, member: Member) -> IO[bytes]:
        if isinstance(self._file, zipfile.ZipFile):
            assert isinstance(member.handle, zipfile.ZipInfo)
            return self._file.open(member.handle)
        assert isinstance(member.handle, tarfile.TarInfo)
        stream = self._file.extractfile(member.handle)
        assert stream is not None, "only regular members are opened"
        return stream


def safe_name(raw: str) -> str:
    """The member's name without `./`; refuses absolute names and names that climb."""
    name = PurePosixPath(raw)
    if name.is_absolute() or ".." in name.parts or "\\" in raw or ":" in raw[:3]:
        raise AssetError(f"the archive has a member named {raw!r}, which points outside of it; refused")
    return str(name)


def unpack(archive: Path, keeps: Sequence[Keep], root: Path) -> list[str]:
    """Write the wanted members below `root`; returns their names there. A rule that finds nothing is an error."""
    written: dict[str, Keep] = {}
    try:
        with closing(Archive(archive)) as source:
            for member in source.members():
                _keep_member(source, member, keeps, root, written)
    except (tarfile.TarError, zipfile.BadZipFile, EOFError) as error:
        raise AssetError(f"{archive.name} cannot be unpacked: {error}; run again to fetch it anew") from error
    for keep in keeps:
        if keep not in written.values():
            raise AssetError(f"{archive.name} holds nothing that matches {keep.inside}")
    return sorted(written)


def _keep_member(
    source: Archive, member: Member, keeps: Sequence[Keep], root: Path, written: dict[str, Keep]
) -> None:
    """Write the member wherever a rule wants it, and note that in `written`."""
    for keep in keeps:
        target = keep.target(member.name)
        if target is None or (member.size > keep.max_bytes and keep.inside.endswith("/*")):
            continue
        if not member.regular:
            raise AssetError(f"the archive's {member.name} is no regular file; refused")
        if target in written:
            raise AssetError(f"two members of the archive claim the name {target}; refused")
        with source.open(member) as stream:
            write_atomically(root / target, _bounded(stream, member.name, keep.max_bytes))
        written[target] = keep


def _bounded(stream: IO[bytes], name: str, limit: int) -> Iterator[bytes]:
    """The bytes of a member; what the index promises is not trusted, the count is."""
    total = 0
    while chunk := stream.read(CHUNK):
        total += len(chunk)
        if total > limit:
            raise AssetError(f"the archive's {name} is longer than {limit} bytes; refused")
        yield chunk

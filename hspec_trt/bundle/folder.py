# SPDX-License-Identifier: Apache-2.0
"""Writing and opening engine folders.

A folder appears whole or not at all: everything is written to a temporary sibling, synced and renamed. Opening checks
versions and hashes before any runtime sees a byte.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hspec_trt.bundle.manifest import MANIFEST_FILE, REBUILD, FileRecord, Manifest
from hspec_trt.errors import BuildError, Faults, LoadError

SAMPLE_BLOCKS: Final = 64
SAMPLE_BLOCK_BYTES: Final = 16_384
_READ_BYTES: Final = 1 << 22


def record_file(path: Path) -> FileRecord:
    """Hash a file whole and by sample."""
    whole = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_READ_BYTES):
            whole.update(block)
    return FileRecord(path.stat().st_size, whole.hexdigest(), sample_hash(path))


def sample_hash(path: Path) -> str:
    """SHA-256 over `SAMPLE_BLOCKS` evenly spread blocks, the first and the last byte included.

    A file of at most `SAMPLE_BLOCKS` x `SAMPLE_BLOCK_BYTES` (1 MiB) is hashed whole. A change that falls between the
    blocks of a larger file is found only by ``hspec-trt inspect --check``, which hashes everything.
    """
    size = path.stat().st_size
    digest = hashlib.sha256()
    with path.open("rb") as file:
        if size <= SAMPLE_BLOCKS * SAMPLE_BLOCK_BYTES:
            digest.update(file.read())
        else:
            last = size - SAMPLE_BLOCK_BYTES
            for block in range(SAMPLE_BLOCKS):
                file.seek(last * block // (SAMPLE_BLOCKS - 1))
                digest.update(file.read(SAMPLE_BLOCK_BYTES))
    return digest.hexdigest()


@dataclass(frozen=True)
class FolderKind:
    """A kind of folder that we write, and how one is known again.

    Attributes:
        name: for messages, with its article.
        marker: a file that every such folder has; `mark` stands in it.
    """

    name: str
    marker: str
    mark: bytes

    def is_ours(self, folder: Path) -> bool:
        """True where the folder is of this kind, so that ``--force`` may replace it."""
        marker = folder / self.marker
        return marker.is_file() and self.mark in marker.read_bytes()


ENGINE: Final = FolderKind("an engine folder", MANIFEST_FILE, b'"format_version"')


def check_output(output: Path, *, force: bool, kind: FolderKind = ENGINE) -> None:
    """Refuse an output folder that exists, or that cannot be made.

    Raises:
        BuildError: B001 it exists and `force` is not given; B002 it is not ours to replace; B003 no parent folder.
    """
    if output.exists() or output.is_symlink():
        if not force:
            raise BuildError(
                "B001", f"{output} exists", needed="a new folder", fix="Choose another folder, or add --force"
            )
        if output.is_symlink() or not output.is_dir() or (any(output.iterdir()) and not kind.is_ours(output)):
            raise BuildError(
                "B002",
                f"{output} is not {kind.name}",
                needed=f"a folder with {kind.marker} of ours (--force replaces nothing else)",
                fix="Choose another folder",
            )
    if not output.absolute().parent.is_dir():
        raise BuildError("B003", f"{output.absolute().parent} is no folder", fix="Make it, or choose another folder")


@contextmanager
def new_folder(output: Path, *, force: bool, kind: FolderKind = ENGINE) -> Iterator[Path]:
    """Give a temporary folder that becomes `output` when the block ends without an error.

    With `force` the old folder survives until the new one is whole. An error or an interrupt leaves nothing behind.

    Raises:
        BuildError: as `check_output`; B004 the disk is full.
    """
    check_output(output, force=force, kind=kind)
    output = output.absolute()
    temporary = Path(tempfile.mkdtemp(prefix=f".{output.name}.", suffix=".partial", dir=output.parent))
    try:
        yield temporary
        _sync_tree(temporary)
        _swap(temporary, output)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        free = shutil.disk_usage(output.parent).free
        raise BuildError(
            "B004",
            f"the disk is full ({free / 2**20:.0f} MiB free)",
            where=str(output.parent),
            fix="Free some space or choose another folder",
        ) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _sync_tree(folder: Path) -> None:
    folder.chmod(0o755)
    for path in [*folder.rglob("*"), folder]:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _swap(temporary: Path, output: Path) -> None:
    if not output.exists():
        temporary.rename(output)
    else:
        old = Path(tempfile.mkdtemp(prefix=f".{output.name}.", suffix=".old", dir=output.parent))
        output.rename(old / output.name)
        try:
            temporary.rename(output)
        except OSError:
            (old / output.name).rename(output)
            raise
        finally:
            shutil.rmtree(old, ignore_errors=True)
    descriptor = os.open(output.parent, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@dataclass(frozen=True)
class EngineFolder:
    """An engine folder whose manifest and files were checked."""

    path: Path
    manifest: Manifest

    def file(self, name: str) -> Path:
        """Path of a file of the folder.

        Raises:
            LoadError: L006 the manifest names no such file.
        """
        if name not in self.manifest.files:
            raise LoadError("L006", f"the engine has no {name}", where=str(self.path), fix=REBUILD)
        return self.path / name

    def text(self, name: str) -> bytes | None:
        """Bytes of a small file such as tokenizer.json, or None where the engine has none."""
        return (self.path / name).read_bytes() if name in self.manifest.files else None


def open_engine(path: Path, *, whole: bool = False) -> EngineFolder:
    """Open an engine folder.

    Args:
        path: the folder.
        whole: hash every file from end to end, not only samples of large ones.

    Raises:
        LoadError: L007 no such folder, L003 and L004 manifest, L005 a file is missing or changed.
    """
    manifest_path = path / MANIFEST_FILE
    if not manifest_path.is_file():
        found = f"{path} has no {MANIFEST_FILE}" if path.is_dir() else f"{path} is no folder"
        raise LoadError("L007", found, needed="an engine folder", fix=f"Make one: hspec-trt build --output {path}")
    manifest = Manifest.from_json(manifest_path.read_bytes(), str(manifest_path))
    faults = Faults()
    for name, record in manifest.files.items():
        with faults.collect():
            _check_file(path, name, record, whole=whole)
    faults.raise_any()
    return EngineFolder(path, manifest)


def _check_file(folder: Path, name: str, record: FileRecord, *, whole: bool) -> None:
    if Path(name).name != name or name in (".", ".."):
        raise LoadError("L005", f"the manifest names {name!r}", needed="plain file names", where=str(folder))
    path = folder / name
    if not path.is_file():
        raise LoadError("L005", f"{name} is missing", where=str(folder), fix=REBUILD)
    size = path.stat().st_size
    if size != record.size:
        raise LoadError("L005", f"{name} has {size} bytes", needed=f"{record.size}", where=str(folder), fix=REBUILD)
    same = record_file(path) == record if whole else sample_hash(path) == record.sample_sha256
    if not same:
        raise LoadError("L005", f"{name} was changed after the build", where=str(folder), fix=REBUILD)

# SPDX-License-Identifier: Apache-2.0
"""Writing and opening engine folders.

A folder appears whole or not at all: everything is written to a temporary sibling, synced and renamed. What a killed
process left of such a sibling goes away with the next folder of that name. Opening checks versions and hashes before
any runtime sees a byte.
"""

from __future__ import annotations

import errno
import fcntl
import glob
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hspec_trt.bundle.manifest import MANIFEST_FILE, REBUILD, Artifact, FileRecord, Manifest, shown
from hspec_trt.errors import BuildError, Faults, LoadError

SAMPLE_BLOCKS: Final = 64
SAMPLE_BLOCK_BYTES: Final = 16_384
_READ_BYTES: Final = 1 << 22
_PARTIAL: Final = ".partial"


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
        BuildError: B001 it exists and `force` is not given; B002 it is not ours to replace; B003 no parent folder;
            B005 the system refuses the path.
    """
    with refusals_told(output):
        if output.exists() or output.is_symlink():
            _check_replaceable(output, force=force, kind=kind)
    check_place(output)


def check_place(path: Path) -> None:
    """Refuse a path that cannot come to be.

    Raises:
        BuildError: B003 no parent folder; B005 the system refuses the path.
    """
    with refusals_told(path):
        if not _is_text(path):
            raise OSError(errno.EILSEQ, "the path is not UTF-8, and backends open no other")
        parent = path.absolute().parent
        if not parent.is_dir():
            raise BuildError("B003", f"{parent} is no folder", fix="Make it, or choose another folder")
        if not os.access(parent, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def _is_text(path: Path) -> bool:
    """False for a path with bytes that are no UTF-8, which Python carries as lone surrogates."""
    return not any("\ud800" <= char <= "\udfff" for char in str(path.absolute()))


def _check_replaceable(output: Path, *, force: bool, kind: FolderKind) -> None:
    if not force:
        raise BuildError("B001", f"{output} exists", needed="a new folder", fix="Choose another folder, or add --force")
    if output.is_symlink() or not output.is_dir() or (any(output.iterdir()) and not kind.is_ours(output)):
        raise BuildError(
            "B002",
            f"{output} is not {kind.name}",
            needed=f"a folder with {kind.marker} of ours (nothing else is ever replaced)",
            fix="Choose another folder",
        )


@contextmanager
def refusals_told(output: Path) -> Iterator[None]:
    """What the system says against writing `output`, as faults of ours: B004 the disk is full, B005 anything else."""
    try:
        yield
    except OSError as error:
        place = output.absolute().parent
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            free = shutil.disk_usage(place).free
            found, fix = f"the disk is full ({free / 2**20:.0f} MiB free)", "Free some space or choose another folder"
            raise BuildError("B004", found, where=str(place), fix=fix) from error
        found = f"{error.strerror or error}: {error.filename or output}"
        raise BuildError("B005", found, needed="a place that can be written", fix="Choose another folder") from error


@contextmanager
def new_folder(output: Path, *, force: bool, kind: FolderKind = ENGINE) -> Iterator[Path]:
    """Give a temporary folder that becomes `output` when the block ends without an error.

    With `force` the old folder survives until the new one is whole. An error or an interrupt leaves nothing behind.

    Raises:
        BuildError: as `check_output`, before the block and again after it; B004 the disk is full.
    """
    check_output(output, force=force, kind=kind)
    with refusals_told(output):
        output = output.resolve()
        _remove_abandoned(output)
        temporary = Path(tempfile.mkdtemp(prefix=_prefix(output), suffix=_PARTIAL, dir=output.parent))
        lock = os.open(temporary, os.O_RDONLY)
        try:
            with suppress(OSError):  # a file system without locks: then none can be taken on what was abandoned either
                fcntl.flock(lock, fcntl.LOCK_SH)
            yield temporary
            _sync_tree(temporary)
            check_output(output, force=force, kind=kind)  # another build may have been faster
            _swap(temporary, output)
        finally:
            os.close(lock)
            shutil.rmtree(temporary, ignore_errors=True)


def _prefix(output: Path) -> str:
    return f".{output.name}."


def _remove_abandoned(output: Path) -> None:
    """Remove temporary siblings whose process is gone: a living one holds a lock on its own."""
    for path in output.parent.glob(f"{glob.escape(_prefix(output))}????????{_PARTIAL}"):
        with suppress(OSError):  # not ours to read, or gone meanwhile
            lock = os.open(path, os.O_RDONLY)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path)
            finally:
                os.close(lock)


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
        _exchange(temporary, output)
    descriptor = os.open(output.parent, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _exchange(temporary: Path, output: Path) -> None:
    old = Path(tempfile.mkdtemp(prefix=_prefix(output), suffix=".old", dir=output.parent))
    try:
        output.rename(old / output.name)
        try:
            temporary.rename(output)
        except OSError:
            (old / output.name).rename(output)
            raise
    finally:
        shutil.rmtree(old, ignore_errors=True)


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

    def artifact(self) -> Artifact:
        """The thing to run.

        Raises:
            LoadError: L006 the manifest lists none.
        """
        if not self.manifest.artifacts:
            raise LoadError("L006", "the manifest lists nothing to run", where=str(self.path), fix=REBUILD)
        return self.manifest.artifacts[0]

    def text(self, name: str) -> bytes | None:
        """Bytes of a small file such as tokenizer.json, or None where the engine has none."""
        return (self.path / name).read_bytes() if name in self.manifest.files else None


def open_engine(path: Path, *, whole: bool = False) -> EngineFolder:
    """Open an engine folder.

    Args:
        path: the folder.
        whole: hash every file from end to end, not only samples of large ones.

    Raises:
        LoadError: L007 no such folder, L003 and L004 manifest, L005 a file is missing or changed, L008 a file cannot be
            read.
    """
    if not _is_text(path):
        raise LoadError("L008", f"the path {path} is not UTF-8", needed="one that every backend can open")
    try:
        return _opened(path, whole=whole)
    except OSError as error:
        found = f"{error.strerror or error}: {error.filename or path}"
        raise LoadError("L008", found, needed="files that can be read", where=str(path)) from error


def _opened(path: Path, *, whole: bool) -> EngineFolder:
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
    if Path(name).name != name or name in (".", "..") or "\0" in name:
        raise LoadError("L005", f"the manifest names {shown(name)}", needed="plain file names", where=str(folder))
    path = folder / name
    if not path.is_file():
        raise LoadError("L005", f"{name} is missing", where=str(folder), fix=REBUILD)
    size = path.stat().st_size
    if size != record.size:
        raise LoadError("L005", f"{name} has {size} bytes", needed=f"{record.size}", where=str(folder), fix=REBUILD)
    same = record_file(path) == record if whole else sample_hash(path) == record.sample_sha256
    if not same:
        raise LoadError("L005", f"{name} was changed after the build", where=str(folder), fix=REBUILD)

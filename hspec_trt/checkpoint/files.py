# SPDX-License-Identifier: Apache-2.0
"""Files of a checkpoint folder: only those inside it are ever opened.

Owns path safety and bounded reads. It does not know what the files mean.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Final

from hspec_trt.checkpoint.shown import printable
from hspec_trt.errors import CheckpointError

MEBIBYTE: Final = 1 << 20
_MAX_PATH: Final = 400


@dataclass(frozen=True)
class CheckpointFolder:
    """A folder whose files may be opened by name.

    Attributes:
        path: as the user gave it; messages show paths below it.
    """

    path: Path

    def __post_init__(self) -> None:
        if not self.path.is_dir():
            raise CheckpointError("C010", f"{self.path} is not a folder", needed="the folder of a checkpoint")

    def has(self, name: str) -> bool:
        """True where there is a file of this name, or a link, even a broken one."""
        return os.path.lexists(self.path / name)

    def names(self) -> list[str]:
        """Names in the folder, sorted."""
        return sorted(entry.name for entry in self.path.iterdir())

    def resolve(self, name: str, *, named_by: str = "") -> Path:
        """The real path of a file of the folder.

        Links may lead to the folder itself or to the ``blobs`` of a Hugging Face cache around it.

        Args:
            name: path relative to the folder.
            named_by: file and key that give the name, for messages.

        Raises:
            CheckpointError: C001 for a path that leaves the folder, C010 for one that is no file.
        """
        if leaves_folder(name):
            raise self._outside(name, name, named_by)
        real = Path(os.path.realpath(self.path / name))
        if not any(real.is_relative_to(root) for root in self._roots()):
            raise self._outside(name, str(real), named_by)
        try:
            mode = real.stat().st_mode
        except OSError as error:
            fault = "does not exist" if isinstance(error, FileNotFoundError) else f"cannot be opened: {error.strerror}"
            raise CheckpointError("C010", f"{self._shown(name)} {fault}", where=named_by) from None
        if not stat.S_ISREG(mode):
            raise CheckpointError("C010", f"{self._shown(name)} is not a regular file", where=named_by)
        return real

    def read(self, name: str, *, limit: int, named_by: str = "") -> bytes:
        """The bytes of a file of at most `limit` bytes.

        Raises:
            CheckpointError: as `resolve`; C011 for a file that is larger; C010 if the system cannot read it.
        """
        path = self.resolve(name, named_by=named_by)
        try:
            size = path.stat().st_size
            if size > limit:
                found = f"{self._shown(name)} is {size} bytes"
                raise CheckpointError("C011", found, needed=f"at most {limit} bytes", where=named_by)
            with path.open("rb") as stream:
                return stream.read(size)
        except OSError as error:
            raise CheckpointError("C010", f"cannot read {self._shown(name)}: {error.strerror}") from error

    def _roots(self) -> list[Path]:
        root = Path(os.path.realpath(self.path))
        in_cache = root.parent.name == "snapshots"
        return [root, root.parent.parent / "blobs"] if in_cache else [root]

    def _shown(self, name: str) -> str:
        return printable(str(self.path / name), _MAX_PATH)

    def _outside(self, name: str, leads_to: str, named_by: str) -> CheckpointError:
        return CheckpointError(
            "C001",
            f"{printable(name, _MAX_PATH)!r} leads to {printable(leads_to, _MAX_PATH)}, outside {self.path}",
            needed="files inside the checkpoint folder",
            where=named_by,
            fix="Do not trust this checkpoint; get it again from its source",
        )


def leaves_folder(name: str) -> bool:
    """True for a relative path that is empty, absolute or has a ``..``, on any system."""
    posix, windows = PurePosixPath(name), PureWindowsPath(name)
    absolute = posix.is_absolute() or windows.is_absolute() or bool(windows.drive or windows.root)
    return not name or "\0" in name or absolute or ".." in posix.parts or ".." in windows.parts

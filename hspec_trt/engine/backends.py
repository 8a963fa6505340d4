# SPDX-License-Identifier: Apache-2.0
"""The two TensorRT flavours: which package, which GPU architectures, how its parser finds its own library.

Owns everything in which `tensorrt` and `tensorrt_rtx` differ; the rest of the package drives both alike. Imports either
only when asked for the module itself.
"""

from __future__ import annotations

import importlib
import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from hspec_trt.config.build import Backend
from hspec_trt.errors import BuildError, Faults
from hspec_trt.native import TRT_PACKAGES, TrtPackage


@dataclass(frozen=True)
class TrtBackend:
    """One flavour.

    Attributes:
        package: the Python package.
        sm: architectures that an engine can be built for; empty: only the GPU of this machine.
        default_sm: those of an engine where the user names none.
        shim: library name that its ONNX parser opens but the wheel does not ship, the package that has the library, and
            its file there; None where the parser needs no help.
    """

    name: Backend
    package: TrtPackage
    sm: tuple[int, ...]
    default_sm: tuple[int, ...]
    shim: tuple[str, str, str] | None

    @property
    def version(self) -> str | None:
        """Installed version, or None."""
        return self.package.version

    def load(self) -> Any:
        """Import the package.

        Raises:
            BuildError: B043, it is not installed.
        """
        self.check_installed()
        return importlib.import_module(self.package.module)

    def check_installed(self) -> None:
        """Raise B043 where the package is missing."""
        if self.version is None:
            raise BuildError(
                "B043",
                f"backend {self.name} needs the package {self.package.distribution}, which is not installed",
                fix=f"pip install 'hspec_trt[{self.package.extra}]'",
            )

    def link_shim(self, folder: Path) -> None:
        """Put the name that the ONNX parser opens into `folder`, which then goes on ``LD_LIBRARY_PATH``.

        The parser dlopens the unversioned name for plugin nodes. It must lead to the very file that Python has loaded:
        with a second copy in the process the build fails far from the cause.
        """
        if self.shim is None:
            return
        name, package, file = self.shim
        spec = importlib.util.find_spec(package)
        for place in (spec.submodule_search_locations or []) if spec else []:
            library = Path(place) / file
            if library.is_file():
                (folder / name).symlink_to(library.resolve())
                return
        raise BuildError(
            "B043",
            f"{package} has no {file}",
            needed=f"{self.package.distribution} as installed by pip",
            fix="Install it again",
        )

    def settle_sm(self, wanted: tuple[int, ...]) -> tuple[int, ...]:
        """Architectures of an engine: `wanted`, or the default.

        Raises:
            BuildError: B044, one that this flavour does not build for, or one named twice.
        """
        faults = Faults()
        for sm in wanted:
            if self.sm and sm not in self.sm:
                faults.add(self._unknown_sm(sm))
        if len(set(wanted)) != len(wanted):
            faults.add(BuildError("B044", f"--sm names an architecture twice: {','.join(map(str, wanted))}"))
        if wanted and not self.sm:
            faults.add(
                BuildError("B044", f"--sm with backend {self.name}", needed="none: it builds for this machine's GPU")
            )
        faults.raise_any()
        return wanted or self.default_sm

    def _unknown_sm(self, sm: int) -> BuildError:
        return BuildError(
            "B044",
            f"--sm {sm} with backend {self.name}",
            needed=f"one or more of {', '.join(map(str, self.sm))}",
            fix="Data-centre GPUs (90, 100) need --backend tensorrt, on the GPU's own machine"
            if self.name == "tensorrt-rtx"
            else "",
        )


TRT_BACKENDS: Final[dict[Backend, TrtBackend]] = {
    backend.name: backend
    for backend in (
        TrtBackend(
            name="tensorrt-rtx",
            package=TRT_PACKAGES["tensorrt-rtx"],
            sm=(80, 86, 89, 120, 121),  # 75 cannot compute bfloat16
            default_sm=(80, 86, 89, 120),
            shim=("libtensorrt_rtx.so", "tensorrt_rtx_libs", "libtensorrt_rtx.so.1"),
        ),
        TrtBackend(
            name="tensorrt",
            package=TRT_PACKAGES["tensorrt"],
            sm=(),
            default_sm=(),
            shim=None,
        ),
    )
}


def trt_backend(name: Backend) -> TrtBackend:
    """The flavour of that name.

    Raises:
        BuildError: B043, it is not a TensorRT backend.
    """
    if name not in TRT_BACKENDS:
        raise BuildError("B043", f"backend {name} compiles nothing", needed=f"one of {', '.join(TRT_BACKENDS)}")
    return TRT_BACKENDS[name]

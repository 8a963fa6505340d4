# SPDX-License-Identifier: Apache-2.0
"""The one table of element types: our name, NumPy, safetensors, ONNX and TensorRT spelling, size in bytes."""

from __future__ import annotations

from dataclasses import dataclass

import ml_dtypes
import numpy as np
from numpy.typing import DTypeLike


@dataclass(frozen=True)
class DType:
    """One element type.

    Attributes:
        name: our name, also the one in manifests and on the command line.
        safetensors: the spelling in a safetensors header; empty where the format has none.
        onnx: the value of ``onnx.TensorProto.DataType``.
        tensorrt: the attribute name in ``tensorrt.DataType``; empty where TensorRT has none.
    """

    name: str
    numpy: np.dtype[np.generic]
    safetensors: str
    onnx: int
    tensorrt: str

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return self.numpy.itemsize

    @property
    def is_float(self) -> bool:
        """True for types a weight may have."""
        return self.name.startswith(("float", "bfloat"))


def _row(name: str, numpy: DTypeLike, safetensors: str, onnx: int, tensorrt: str) -> DType:
    return DType(name, np.dtype(numpy), safetensors, onnx, tensorrt)


FLOAT32 = _row("float32", np.float32, "F32", 1, "FLOAT")
FLOAT16 = _row("float16", np.float16, "F16", 10, "HALF")
BFLOAT16 = _row("bfloat16", ml_dtypes.bfloat16, "BF16", 16, "BF16")
FLOAT64 = _row("float64", np.float64, "F64", 11, "")
INT32 = _row("int32", np.int32, "I32", 6, "INT32")
INT64 = _row("int64", np.int64, "I64", 7, "INT64")
UINT8 = _row("uint8", np.uint8, "U8", 2, "UINT8")
INT8 = _row("int8", np.int8, "I8", 3, "INT8")
BOOL = _row("bool", np.bool_, "BOOL", 9, "BOOL")

ALL: tuple[DType, ...] = (FLOAT32, FLOAT16, BFLOAT16, FLOAT64, INT32, INT64, UINT8, INT8, BOOL)
BY_NAME: dict[str, DType] = {dtype.name: dtype for dtype in ALL}
BY_SAFETENSORS: dict[str, DType] = {dtype.safetensors: dtype for dtype in ALL}
BY_NUMPY: dict[np.dtype[np.generic], DType] = {dtype.numpy: dtype for dtype in ALL}

# SPDX-License-Identifier: Apache-2.0
"""Element and block types of GGUF tensors, and their decoding (by the `gguf` library).

Owns the list of supported quantisations. It does not know files or names.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import gguf
import numpy as np
from numpy.typing import NDArray

from hspec_trt.dtypes import BFLOAT16, FLOAT16, FLOAT32, DType
from hspec_trt.errors import CheckpointError

PLAIN: Final[dict[str, DType]] = {"F32": FLOAT32, "F16": FLOAT16, "BF16": BFLOAT16}
"""Types that are stored as they are used."""

QUANTISED: Final = frozenset(
    (
        *("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"),
        *("Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"),
        *("IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "IQ4_NL", "IQ4_XS"),
        *("TQ1_0", "TQ2_0", "MXFP4"),
    )
)
"""Types that are decoded to float32."""


@dataclass(frozen=True)
class BlockType:
    """One GGUF type.

    Attributes:
        block_elements, block_bytes: a block's size; 1 element for plain types.
    """

    name: str
    block_elements: int
    block_bytes: int

    @property
    def dtype(self) -> DType:
        """Type of the decoded values."""
        return PLAIN.get(self.name, FLOAT32)

    def decode(self, stored: NDArray[np.uint8], shape: tuple[int, ...]) -> NDArray[np.generic]:
        """The values of a tensor: `shape`, `dtype`. A view of `stored` for plain types, else a new array.

        Args:
            stored: the tensor's blocks, uint8 ``[nbytes]``.
        """
        if self.name in PLAIN:
            return stored.view(self.dtype.numpy).reshape(shape)
        rows = stored.reshape(*shape[:-1], -1)
        values: NDArray[np.generic] = gguf.dequantize(rows, gguf.GGMLQuantizationType[self.name])
        return values


def block_type(number: int, tensor: str, *, where: str) -> BlockType:
    """The type with ggml's `number`.

    Raises:
        CheckpointError: C017 for one that is unknown or not supported.
    """
    names = {kind.value: kind.name for kind in gguf.GGMLQuantizationType}
    name = names.get(number, f"number {number}")
    if name not in PLAIN and name not in QUANTISED:
        needed = ", ".join([*PLAIN, *sorted(QUANTISED)])
        raise CheckpointError("C017", f"{tensor[:80]!r} has the type {name}", needed=needed, where=where)
    elements, nbytes = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[name]]
    return BlockType(name, elements, nbytes)

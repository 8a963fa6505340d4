# SPDX-License-Identifier: Apache-2.0
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open

from hspec_trt import dtypes
from hspec_trt.bundle.weights import HEADER_ALIGNMENT, plan_weights, total_bytes, write_weights
from hspec_trt.dtypes import DType


@dataclass
class Values:
    name: str
    values: np.ndarray

    @property
    def dtype(self) -> DType:
        return dtypes.BY_NUMPY[self.values.dtype]

    @property
    def shape(self) -> tuple[int, ...]:
        return self.values.shape

    def produce(self) -> np.ndarray:
        return self.values


SOURCES = [
    Values("ids", np.arange(5, dtype=np.int32)),
    Values("flags", np.array([True, False, True])),
    Values("half", np.arange(7, dtype=np.float16)),
    Values("brain", np.arange(3).astype(dtypes.BFLOAT16.numpy)),
    Values("matrix", np.arange(12, dtype=np.float32).reshape(3, 4).T),
    Values("scalar", np.array(3.5, dtype=np.float32)),
    Values("empty", np.zeros((0, 4), dtype=np.float32)),
]


def test_the_safetensors_library_reads_what_was_written(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    write_weights(path, SOURCES)
    with safe_open(path, "numpy") as file:
        assert set(file.keys()) == {source.name for source in SOURCES}
        for source in SOURCES:
            if source.name != "brain":
                np.testing.assert_array_equal(file.get_tensor(source.name), source.values)


def test_plan_says_where_each_tensor_will_lie(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    plan = plan_weights(SOURCES)
    write_weights(path, SOURCES)
    raw = path.read_bytes()
    assert len(raw) == total_bytes(plan)
    assert min(tensor.offset for tensor in plan.values()) % HEADER_ALIGNMENT == 0
    for source in SOURCES:
        tensor = plan[source.name]
        assert raw[tensor.offset : tensor.offset + tensor.nbytes] == np.ascontiguousarray(source.values).tobytes()
        assert tensor.offset % tensor.dtype.itemsize == 0


def test_progress_counts_every_byte(tmp_path: Path) -> None:
    seen: list[int] = []
    write_weights(tmp_path / "w.safetensors", SOURCES, seen.append)
    assert sum(seen) == sum(source.values.nbytes for source in SOURCES)


def test_a_source_that_lies_about_its_shape_is_refused(tmp_path: Path) -> None:
    class Liar(Values):
        @property
        def shape(self) -> tuple[int, ...]:
            return (6,)

    with pytest.raises(ValueError, match=r"announced float32 \(6,\)"):
        write_weights(tmp_path / "w.safetensors", [Liar("a", np.zeros(5, np.float32))])


def test_two_tensors_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="two weights are named ids"):
        plan_weights([SOURCES[0], SOURCES[0]])

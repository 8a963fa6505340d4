# SPDX-License-Identifier: Apache-2.0
"""The C++ runtime on the stand-in for a GPU machine, in a process of its own: its driver must be no other test's.

    python -m tests.support.gpu_machine LIBRARY ENGINE GRAPH REQUESTS   (JSON list; prints JSON)

What a plan computes is the engine's own graph on ONNX Runtime, on the addresses and shapes that the runtime bound.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from hspec_trt.bundle import Artifact, open_engine, record_file
from hspec_trt.dtypes import BY_NAME
from tests.support.c_runtime import Answer, CError, CRuntime, Handle
from tests.support.fake_gpu_build import fake_gpu

ROOT = Path(__file__).resolve().parents[2]
TENSORRT_VERSION = "10.14.1.48"
_ONNX_NAMES = {onnx.TensorProto.FLOAT: "float32", onnx.TensorProto.INT32: "int32"} | {
    onnx.TensorProto.INT64: "int64",
    onnx.TensorProto.BOOL: "bool",
}


def plan_text(graph: Path, *, aliased: bool = False) -> str:
    """The plan of a graph as the stand-in reads it.

    Args:
        aliased: it writes pages in place, as plugin kernels do.
    """
    model = onnx.load(graph, load_external_data=False)
    lines = []
    for kind, values in (("input", model.graph.input), ("output", model.graph.output)):
        for value in values:
            tensor = value.type.tensor_type
            dims = [dim.dim_param or str(dim.dim_value) for dim in tensor.shape.dim]
            lines.append(" ".join([kind, value.name, _ONNX_NAMES[tensor.elem_type], *dims]))
    return "\n".join([*lines, "profiles 2", *(["aliased"] if aliased else [])])


def compiled_engine(folder: Path, built: Path, plan: str = "", **changes: Any) -> Path:
    """An engine folder for backend tensorrt whose plan computes what the engine in `built` does."""
    manifest = open_engine(built).manifest
    folder.mkdir()
    (folder / "rank0.engine").write_text(plan or plan_text(built / "graph.onnx"))
    artifact = Artifact("tensorrt", "rank0.engine", TENSORRT_VERSION, (90,))
    files = {"rank0.engine": record_file(folder / "rank0.engine")}
    made = replace(manifest, backend="tensorrt", artifacts=(artifact,), files=files, plugins="none")
    (folder / "config.json").write_bytes(replace(made, **changes).to_json())
    return folder


def run_on_fake_gpu(
    library: Path, engine: Path, graph: Path, requests: Sequence[Mapping[str, Any]], **environment: str
) -> dict[str, Any]:
    """What `main` prints, in a process that finds the stand-in's driver and TensorRT."""
    fake = fake_gpu()
    paths = {"LD_LIBRARY_PATH": str(fake.parent), "HSPEC_TRT_TENSORRT_LIBRARY": str(fake), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "tests.support.gpu_machine", *map(str, (library, engine, graph))]
    result = subprocess.run(
        [*command, json.dumps(list(requests))],
        env={**os.environ, **paths, "OMP_NUM_THREADS": "1", **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    printed: dict[str, Any] = json.loads(result.stdout.splitlines()[-1])
    return printed


class _Bound(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
        ("rank", ctypes.c_int32),
        ("dims", ctypes.c_int64 * 8),
    )


_EXECUTE = ctypes.CFUNCTYPE(None, ctypes.POINTER(_Bound), ctypes.c_int32)


class Executor:
    """Computes a graph on bound memory.

    Attributes:
        shapes: of the packed tokens of each run, as rows and tokens.
    """

    def __init__(self, graph: Path) -> None:
        import onnxruntime as ort

        self._ort = ort
        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        self._session = ort.InferenceSession(str(graph), options, providers=["CPUExecutionProvider"])
        model = onnx.load(graph, load_external_data=False)
        self._types = {
            value.name: BY_NAME[_ONNX_NAMES[value.type.tensor_type.elem_type]].numpy
            for value in (*model.graph.input, *model.graph.output)
        }
        self._inputs = {value.name for value in model.graph.input}
        self.shapes: list[tuple[int, int]] = []
        self.callback = _EXECUTE(self._run)

    def _run(self, bound: Any, count: int) -> None:
        binding, made = self._session.io_binding(), {}
        for tensor in bound[:count]:
            name, shape = tensor.name.decode(), tuple(tensor.dims[: tensor.rank])
            key = tensor.address
            if key not in made:  # pages that are updated in place have one value for input and output
                made[key] = self._ort.OrtValue.ortvalue_from_numpy(self._view(tensor.address, shape, name))
            bind = binding.bind_ortvalue_input if name in self._inputs else binding.bind_ortvalue_output
            bind(name, made[key])
            if name == "query_slots":
                self.shapes.append(shape)
        self._session.run_with_iobinding(binding)

    def _view(self, address: int, shape: tuple[int, ...], name: str) -> Any:
        dtype = self._types[name]
        nbytes = int(np.prod(shape)) * dtype.itemsize
        memory = (ctypes.c_uint8 * max(nbytes, 1)).from_address(address)
        return np.frombuffer(memory, np.uint8)[:nbytes].view(dtype).reshape(shape)


@contextmanager
def _executing(graph: Path) -> Iterator[Executor]:
    machine, executor = ctypes.CDLL("libcuda.so.1"), Executor(graph)
    machine.fake_gpu_execute(executor.callback)
    yield executor


def _serve(runtime: CRuntime, handle: Handle, requests: Sequence[Mapping[str, Any]]) -> list[Answer]:
    """The answers to requests, each submitted before step `at` (0) and cancelled before step `cancel_at` (never)."""
    answers: dict[int, Answer] = {}
    step, last = 0, max(request.get("at", 0) for request in requests)
    while True:
        for number, request in enumerate(requests):
            fields = dict(request)
            at, cancel_at = fields.pop("at", 0), fields.pop("cancel_at", None)
            if at == step:
                prompt, stop = fields.pop("prompt"), fields.pop("stop_token", None)
                if stop is not None:
                    fields |= {"stop_token_ids": (ctypes.c_int32 * 1)(stop), "num_stop_token_ids": 1}
                answers[number] = runtime.submit(handle, runtime.request(prompt, **fields))[1]
            if cancel_at == step:
                runtime.library.hspec_rt_runtime_cancel(handle, ctypes.c_int64(answers[number].request_id))
        step += 1
        if not runtime.step(handle) and step > last:
            return [answers[number] for number in range(len(requests))]


def main(library: Path, engine: Path, graph: Path, requests: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Load the engine and run the requests; what came of it, or of the error."""
    runtime = CRuntime(library)
    folder = runtime.open_folder(str(engine))
    with _executing(graph) as executor:
        try:
            loaded = runtime.load_engine(folder)
        except CError as error:
            return {"error": str(error)}
        handle = runtime.create(loaded)
        answers = _serve(runtime, handle, requests)
        stats = runtime.stats(handle)
        graph_launches = ctypes.CDLL("libcuda.so.1").fake_gpu_graph_launches()
        runtime.free("runtime", handle)
        runtime.free("folder", folder)
    return {
        "tokens": [answer.final_ids for answer in answers],
        "streamed": [answer.token_ids for answer in answers],
        "reasons": [answer.finish_reason for answer in answers],
        "errors": [answer.error for answer in answers],
        "steps": stats.steps,
        "failed_steps": stats.failed_steps,
        "followed_steps": stats.followed_steps,
        "runs": len(executor.shapes),
        "graph_launches": graph_launches,
        "shapes": executor.shapes,
    }


if __name__ == "__main__":
    print(json.dumps(main(*map(Path, sys.argv[1:4]), json.loads(sys.argv[4]))))

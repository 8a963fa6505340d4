# SPDX-License-Identifier: Apache-2.0
"""What ``hspec-trt inspect`` shows of a compiled plan: its TensorRT, its GPUs, and its layers as they were parsed."""

from __future__ import annotations

from collections import Counter

from pydantic import TypeAdapter, ValidationError

from hspec_trt.bundle import EngineFolder
from hspec_trt.bundle.layers import LAYERS_FILE, Parsed
from hspec_trt.bundle.manifest import REBUILD
from hspec_trt.errors import LoadError

_PARSED = TypeAdapter(Parsed)
Sections = dict[str, dict[str, object]]


def compiled_sections(engine: EngineFolder) -> Sections:
    """Titles and rows; none for an engine without a compiled plan.

    Raises:
        LoadError: L003, the list of layers is not one.
    """
    artifact, text = engine.artifact(), engine.text(LAYERS_FILE)
    if text is None:
        return {}
    try:
        parsed = _PARSED.validate_json(text)
    except ValidationError as error:
        raise LoadError("L003", f"{LAYERS_FILE} is no list of layers", where=str(engine.path), fix=REBUILD) from error
    plan: dict[str, object] = {
        "TensorRT": artifact.tensorrt_version,
        "GPU architectures": ", ".join(map(str, artifact.sm)) or "that of the machine that built it",
        "custom ops": "plugin kernels" if engine.manifest.plugins == "kernels" else "TensorRT's own layers",
    }
    counts: dict[str, object] = dict(sorted(parsed.layer_counts.items()))
    return {"compiled plan": plan, "layers as parsed": counts} | _plugin_sections(parsed)


def _plugin_sections(parsed: Parsed) -> Sections:
    """Plugin layers of equal fields in one row, and which outputs share the memory of which inputs."""
    if not parsed.plugin_layers:
        return {}
    alike = Counter((layer.op, tuple(layer.fields.items())) for layer in parsed.plugin_layers)
    kinds: dict[str, object] = {}
    for (op, fields), count in alike.items():
        title = op if op not in kinds else f"{op} ({sum(key.split(' ')[0] == op for key in kinds) + 1})"
        kinds[title] = f"{count} x " + (", ".join(f"{name} {value:g}" for name, value in fields) or "no fields")
    aliased: dict[str, object] = {
        output: f"in place of {source}" for layer in parsed.plugin_layers for output, source in layer.aliased.items()
    }
    return {"plugin layers": kinds, "aliased outputs": aliased}

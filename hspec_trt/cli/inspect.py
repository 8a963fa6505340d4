# SPDX-License-Identifier: Apache-2.0
"""``hspec-trt inspect``."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from hspec_trt import dtypes
from hspec_trt.bundle import EngineFolder, Manifest, open_engine
from hspec_trt.cli.compiled import compiled_sections
from hspec_trt.cli.display import OUT, bytes_text, key_value_table
from hspec_trt.memory import kv_cost, memory_lines


@click.command(name="inspect", short_help="Show what an engine folder holds.")
@click.argument("engine_dir", type=click.Path(path_type=Path))
@click.option("--check", is_flag=True, help="Hash every file from end to end.")
@click.option("--json", "as_json", is_flag=True, help="Print the manifest as JSON.")
def inspect_command(engine_dir: Path, check: bool, as_json: bool) -> None:
    """Show what an engine folder holds: models, limits, memory per token, compiled layers, files."""
    engine = open_engine(engine_dir, whole=check)
    if as_json:
        click.echo(engine.manifest.to_json(), nl=False)
        return
    for title, rows in _sections(engine).items():
        OUT.print(key_value_table(title, rows))
    for note in engine.manifest.notes:
        OUT.print(note, markup=False)
    if check:
        OUT.print("every file has the hash that the build recorded")


def _sections(engine: EngineFolder) -> dict[str, dict[str, object]]:
    manifest = engine.manifest
    sections: dict[str, dict[str, object]] = {
        f"engine {engine.path}": {
            "backend": manifest.backend,
            "dtype": manifest.dtype,
            "custom ops": ", ".join(manifest.ops),
            "built by": f"hspec_trt {manifest.hspec_trt_version}, contract {manifest.contract_version}",
        },
        "target": _shown(asdict(manifest.target)),
    }
    if manifest.drafter is not None:
        sections["drafter"] = _shown(asdict(manifest.drafter))
    sections["limits"] = asdict(manifest.limits)
    sections["memory"] = _memory(manifest)
    sections |= compiled_sections(engine)
    sections["files"] = {name: bytes_text(record.size) for name, record in manifest.files.items()}
    return sections


def _shown(fields: dict[str, object]) -> dict[str, object]:
    return {key: value for key, value in fields.items() if value not in (None, "", ())}


def _memory(manifest: Manifest) -> dict[str, object]:
    dtype, page_size = dtypes.BY_NAME[manifest.dtype], manifest.limits.page_size
    cost = kv_cost(manifest.target, manifest.drafter, dtype)
    return {
        "weights": bytes_text(sum(manifest.files[name].size for name in manifest.weight_files)),
        **memory_lines(manifest.target, manifest.drafter, dtype, page_size),
        "KV of a full request": bytes_text(cost.request_bytes(manifest.limits.max_seq_len, page_size)),
    }

# SPDX-License-Identifier: Apache-2.0
"""The C++ contract header is current and says what contract.py says."""

from __future__ import annotations

import runpy
import shutil
import subprocess
from pathlib import Path

import pytest

from hspec_trt import contract

ROOT = Path(__file__).resolve().parents[3]
HEADER = ROOT / "plugins" / "include" / "hspec_trt" / "contract_gen.h"


def test_header_is_current() -> None:
    script = runpy.run_path(str(ROOT / "build_scripts" / "gen_contract_header.py"))
    assert HEADER.read_text(encoding="utf-8") == script["render"]()


def test_operands_follow_inputs_and_outputs() -> None:
    with pytest.raises(ValueError, match="operands must be the inputs and outputs"):
        contract.OpSpec("X", inputs=("a",), outputs=("b",), operands={"b": contract.Operand("int32", ("N",))})


def test_digest_changes_with_an_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    before = contract.ops_digest()
    monkeypatch.delitem(contract.OPS, "SampleTokens")
    assert contract.ops_digest() != before


@pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler on this machine")
def test_header_compiles_with_its_indices(tmp_path: Path) -> None:
    source = tmp_path / "use.cpp"
    source.write_text(
        '#include "hspec_trt/contract_gen.h"\n'
        "namespace c = hspec_trt::contract;\n"
        "static_assert(c::paged_attention::kSpec.operands[11].aliasedInput == c::paged_attention::kKvPages);\n"
        "static_assert(sizeof(c::paged_attention::Attributes) == 4 * 6);\n"
        "static_assert(c::sample_tokens::kSpec.numOutputs == 3 && c::sample_tokens::kFiniteResult == 2);\n"
        "int main() { return 0; }\n",
        encoding="utf-8",
    )
    command = ["g++", "-std=c++17", "-Wall", "-Werror", "-fsyntax-only", f"-I{HEADER.parent.parent}", str(source)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr

# SPDX-License-Identifier: Apache-2.0
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hspec_trt.cli import main
from hspec_trt.cli import verify as command
from hspec_trt.config.build import BuildConfig
from hspec_trt.pipeline import build
from hspec_trt.runtime.losslessness import verify

GOLDEN = Path(__file__).parents[2] / "golden" / "hspec_qwen3"


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("verify") / "engine"
    build(GOLDEN / "target", GOLDEN / "drafter", output, BuildConfig(max_batch_size=2, max_num_tokens=64, page_size=16))
    return output


def call(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as caught:
        main(["verify", *arguments])
    shown = capsys.readouterr()
    return int(str(caught.value.code)), shown.out, shown.err


def test_a_lossless_engine_passes_with_every_accepted_length(engine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = call(capsys, str(engine), "--prompt-ids", "5 6 7", "--max-tokens", "17", "--json")
    told = json.loads(out)
    assert (code, told["passed"]) == (0, True)
    assert len(told["checks"]) == 3 * 9  # temperatures x (the drafter, and 0 to 7 right drafts)
    lengths = {check["drafts"]: check["accepted_length"] for check in told["checks"] if check["temperature"] == 0.0}
    assert lengths["scripted 0"] == 1.0
    assert lengths["scripted 7"] == 8.0  # the prompt gives the first token, two steps give eight each


def test_own_prompts_and_the_sentence(engine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = call(capsys, str(engine), "--max-tokens", "4")
    assert code == 0
    assert out.startswith("verify: passed: 108 comparisons, 0 mismatches")


def test_a_difference_is_named_and_fails(
    engine: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The step loop is made lossy: the draws of drafted steps get another seed."""

    def lossy(core, prompts, **options):  # type: ignore[no-untyped-def]
        session = core.session
        step = session.step

        def other(inputs):  # type: ignore[no-untyped-def]
            drafted = np.diff(inputs.cu_verify_lens).max() > 1
            return step(replace(inputs, seed=inputs.seed + 1) if drafted else inputs)

        monkeypatch.setattr(type(session), "step", lambda self, inputs: other(inputs))
        yield from verify(core, prompts, **options)

    monkeypatch.setattr(command, "verify", lossy)
    code, out, err = call(capsys, str(engine), "--prompt-ids", "5 6 7", "--max-tokens", "12")
    assert code == 1
    assert "verify: FAILED" in out
    assert "MISMATCH at pos" in err


def test_text_needs_a_tokenizer(engine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = call(capsys, str(engine), "--prompt", "hello")
    assert (code, err[:11]) == (2, "error[R105]")

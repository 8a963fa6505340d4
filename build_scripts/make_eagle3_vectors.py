# SPDX-License-Identifier: Apache-2.0
r"""Makes the EAGLE-3 golden cases with the reference module of the PyPI package ``speculators``.

    make .venv/bin/.dev      # the package itself without its requirements, and what its module imports
    .venv/bin/python build_scripts/make_eagle3_vectors.py [--check]

Targets, prompts and target states are those of existing golden cases; the drafters are tiny with random weights, saved
by the package itself. The package's forward pass is its training pass: it feeds back the module's own hidden states and
takes the tokens of later steps from the text. A text whose tokens after the anchor are the module's own drafts makes it
a serial greedy chain. ``--check`` compares with the committed files instead of writing them.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from safetensors.torch import load_file, save_file
from speculators import SpeculatorsConfig, VerifierConfig
from speculators.models.eagle3 import Eagle3DraftModel, Eagle3SpeculatorConfig
from speculators.proposals.greedy import GreedyTokenProposalConfig
from transformers import LlamaConfig, PretrainedConfig, Qwen3Config

GOLDEN = Path(__file__).parents[1] / "tests" / "golden"
NUM_DRAFTS = 5
CASES: dict[str, dict[str, object]] = {
    "eagle3_qwen3": {
        "target_of": "dflash_qwen3",
        "type": Qwen3Config,
        "draft_vocab_size": 96,
        "layers": [2, 3, 4],
        "flags": {"norm_before_residual": True, "norm_before_fc": True, "norm_output": True},
        "seed": 11,
        "own_embedding": False,
    },
    "eagle3_llama": {
        "target_of": "peagle_llama",
        "type": LlamaConfig,
        "draft_vocab_size": 256,
        "layers": [1, 2, 4],
        "flags": {"norm_before_residual": False, "fc_norm": True, "norm_output": False},
        "seed": 12,
        "own_embedding": True,
    },
}


def make_config(case: dict[str, object], target: dict[str, object]) -> Eagle3SpeculatorConfig:
    names = (
        "vocab_size hidden_size intermediate_size num_attention_heads num_key_value_heads head_dim rms_norm_eps "
        "rope_parameters max_position_embeddings"
    )
    kind = case["type"]
    layer: PretrainedConfig = kind(num_hidden_layers=1, **{name: target[name] for name in names.split()})  # type: ignore[operator]
    layer._attn_implementation = "eager"
    return Eagle3SpeculatorConfig(
        transformer_layer_config=layer,
        draft_vocab_size=case["draft_vocab_size"],
        eagle_aux_hidden_state_layer_ids=case["layers"],
        speculators_config=SpeculatorsConfig(
            algorithm="eagle3",
            proposal_methods=[GreedyTokenProposalConfig(speculative_tokens=NUM_DRAFTS)],
            default_proposal_method="greedy",
            verifier=VerifierConfig(name_or_path=None, architectures=target["architectures"]),
        ),
        **case["flags"],  # type: ignore[arg-type]
    )


def fill(model: Eagle3DraftModel, case: dict[str, object], embedding: torch.Tensor) -> None:
    """Random weights; norms near 1, matrices such that logits spread."""
    generator = torch.Generator().manual_seed(case["seed"])  # type: ignore[arg-type]
    with torch.no_grad():
        for name, tensor in model.named_parameters():
            if tensor.dim() == 1:
                tensor.copy_(1 + 0.2 * torch.randn(tensor.shape, generator=generator))
            else:
                scale = 1.0 if name.startswith(("embed", "lm_head")) else tensor.shape[-1] ** -0.5
                tensor.copy_(scale * torch.randn(tensor.shape, generator=generator))
        if not case["own_embedding"]:
            model.embed_tokens.weight.copy_(embedding)
        vocab, draft = embedding.shape[0], case["draft_vocab_size"]
        if draft != vocab:
            chosen = torch.randperm(vocab, generator=generator)[:draft].sort().values
            model.d2t.copy_(chosen - torch.arange(draft))
            model.t2d.copy_(torch.zeros(vocab, dtype=torch.bool).index_fill(0, chosen, True))


@torch.no_grad()
def chain(model: Eagle3DraftModel, entries: torch.Tensor, states: torch.Tensor) -> dict[str, torch.Tensor]:
    """Greedy chain after a text: entries ``x_1 .. x_p`` ``[p]``, concatenated states ``[p, F * hidden]``."""
    captured: list[torch.Tensor] = []
    handle = model.lm_head.register_forward_hook(lambda module, args, out: captured.append(out[0, len(entries) - 1]))
    tokens: list[int] = []
    ids: list[int] = []
    noise = torch.full((NUM_DRAFTS - 1, states.shape[1]), 1e3)
    for step in range(NUM_DRAFTS):
        captured.clear()
        text = torch.tensor([*entries.tolist(), *tokens, *[0] * (NUM_DRAFTS - 1 - len(tokens))])[None]
        document = torch.zeros_like(text)
        model(torch.cat([states, noise])[None], text[:, : len(entries) + NUM_DRAFTS - 1], document, ttt_steps=step + 1)
        ids.append(int(captured[step].argmax()))
        tokens.append(ids[-1] + (int(model.d2t[ids[-1]]) if model.d2t is not None else 0))
    handle.remove()
    logits = torch.stack(captured)
    gap = logits.topk(2).values.diff().abs().min()
    if gap < 1e-3:
        raise SystemExit(f"near tie between two logits ({gap:.1e}): take another seed")
    return {"logits": logits, "draft_ids": torch.tensor(ids), "draft_tokens": torch.tensor(tokens)}


def vectors(
    model: Eagle3DraftModel, case: dict[str, object], source: dict[str, torch.Tensor]
) -> dict[str, torch.Tensor]:
    made: dict[str, torch.Tensor] = {}
    for prompt in sorted({key.split(".")[0] for key in source}):
        kept = ["prompt_ids", "anchor_id", "anchor_pos", *(f"target.hidden.{layer}" for layer in case["layers"])]  # type: ignore[attr-defined]
        made |= {f"{prompt}.{key}": source[f"{prompt}.{key}"] for key in kept}
        entries = torch.cat([source[f"{prompt}.prompt_ids"][1:], source[f"{prompt}.anchor_id"]])
        states = torch.cat([source[f"{prompt}.target.hidden.{layer}"] for layer in case["layers"]], dim=-1)  # type: ignore[attr-defined]
        made[f"{prompt}.entry_ids"] = entries
        made |= {f"{prompt}.{key}": value for key, value in chain(model, entries, states).items()}
    return made


def meta(name: str, case: dict[str, object]) -> dict[str, object]:
    return {
        "case": name,
        "drafter": "eagle3",
        "target_of": case["target_of"],
        "source": f"speculators {version('speculators')}, Eagle3DraftModel, eager attention, float32 on a CPU",
        "transformers_version": version("transformers"),
        "how": "build_scripts/make_eagle3_vectors.py",
        "seed": case["seed"],
        "num_drafts": NUM_DRAFTS,
        "tensors": {
            "p{i}.entry_ids": "[p] tokens x_1 .. x_p; entry t pairs x_{t+1} with the fused state of row t",
            "p{i}.logits": "[G, Vd] logits of each link of the greedy chain",
            "p{i}.draft_ids": "[G] draft vocabulary",
            "p{i}.draft_tokens": "[G] target vocabulary",
            "others": "as in the case that target_of names, whose target this one shares",
        },
    }


def make(name: str, folder: Path) -> None:
    case = CASES[name]
    base = GOLDEN / str(case["target_of"])
    target = json.loads((base / "target/config.json").read_text())
    weights = load_file(base / "target/model.safetensors")
    model = Eagle3DraftModel(make_config(case, target))
    fill(model, case, weights["model.embed_tokens.weight"])
    (folder / "drafter").mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder / "drafter")
    kept = {"config.json", "model.safetensors"}
    for path in list((folder / "drafter").iterdir()):
        if path.name not in kept:
            path.unlink()
    made = vectors(model, case, load_file(base / "vectors.safetensors"))
    save_file({key: value.contiguous() for key, value in made.items()}, folder / "vectors.safetensors")
    (folder / "meta.json").write_text(json.dumps(meta(name, case), indent=1) + "\n")


def differences(fresh: Path, committed: Path) -> Iterator[str]:
    for part in ("drafter/model.safetensors", "vectors.safetensors"):
        new, old = load_file(fresh / part), load_file(committed / part)
        if set(new) != set(old):
            yield f"{part}: other tensors"
        for key in set(new) & set(old):
            close = torch.equal(new[key], old[key]) or (
                new[key].is_floating_point() and torch.allclose(new[key], old[key], atol=1e-5, rtol=0)
            )
            if not close:
                yield f"{part}: {key} differs"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare with the committed files")
    check = parser.parse_args().check
    faults: list[str] = []
    for name in CASES:
        with TemporaryDirectory() as scratch:
            folder = Path(scratch) / name if check else GOLDEN / name
            make(name, folder)
            faults += [f"{name}/{fault}" for fault in differences(folder, GOLDEN / name)] if check else []
    print("\n".join(faults) or f"{len(CASES)} cases: " + ("equal" if check else "written"))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())

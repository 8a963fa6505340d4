# SPDX-License-Identifier: Apache-2.0
"""What all speculators checkpoints wrap a drafter in, and the slot layout of block drafters.

Owns ``speculators_config`` and the link between block size, slot layout and number of drafts (D124, D125).
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import dataclass
from typing import Final

from hspec_trt.checkpoint.fields import Fields
from hspec_trt.checkpoint.formats.layout import DrafterSource
from hspec_trt.checkpoint.shown import printable

MAX_BLOCK: Final = 64
_MAX_LISTED: Final = 300
ENVELOPE_KEYS: Final = frozenset(
    {
        "architectures",
        "auto_map",
        "draft_vocab_size",
        "dtype",
        "has_no_defaults_at_init",
        "speculators_config",
        "speculators_model_type",
        "speculators_version",
        "target_hidden_size",
        "tie_word_embeddings",
        "torch_dtype",
        "transformer_layer_config",
        "transformers_version",
    }
)


@dataclass(frozen=True)
class SlotLayout:
    """Query slots of a block, and how many of them propose a token."""

    block_size: int
    sample_from_anchor: bool

    @property
    def num_slots(self) -> int:
        """Slots that propose a token."""
        return self.block_size if self.sample_from_anchor else self.block_size - 1


def speculative_tokens(source: DrafterSource) -> int | None:
    """Drafts a step as the checkpoint's default proposal method has it; None where it has none."""
    envelope = source.fields.object("speculators_config")
    methods = envelope.values.get("proposal_methods")
    if not isinstance(methods, list) or not methods or not isinstance(methods[0], dict):
        return None
    method = Fields(methods[0], f"{envelope.where}: proposal_methods", envelope.faults)
    return method.integer("speculative_tokens", 1, MAX_BLOCK) if method.has("speculative_tokens") else None


def check_envelope(source: DrafterSource, known: Iterable[str]) -> None:
    """Warn of keys that nobody reads, and refuse a target of another width (D114)."""
    fields = source.fields
    warn_of_unknown(source, fields, ENVELOPE_KEYS | set(known))
    width = fields.integer("target_hidden_size", 1, 1 << 17, source.target.hidden_size)
    if width != source.target.hidden_size:
        found = f"target_hidden_size {width}, target {source.target.hidden_size}"
        source.fault("D114", found, needed="the same", name="target_hidden_size")


def warn_of_unknown(source: DrafterSource, fields: Fields, known: Set[str]) -> None:
    """Warn of the keys of an object that nobody reads (D002)."""
    unknown = sorted(set(fields.values) - known)
    if unknown:
        listed = printable(", ".join(unknown), _MAX_LISTED)
        source.warnings.append(f"warning[D002] {fields.where}: unknown keys, not used: {listed}")


def read_slots(source: DrafterSource, block_size: int | None, stated: bool | None) -> SlotLayout:
    """Slot layout of a block drafter: stated, or told by the number of drafts that the checkpoint states.

    Args:
        block_size: as stated; None is a fault (D124).
        stated: ``sample_from_anchor``; None where the checkpoint does not say.
    """
    if block_size is None:
        source.fault("D124", "drafter config has no block_size", needed=f"2..{MAX_BLOCK}", name="block_size")
        return SlotLayout(2, False)
    option, drafts = source.options.sample_from_anchor, speculative_tokens(source)
    from_anchor = stated if option is None else option
    if from_anchor is None and drafts in (block_size, block_size - 1):
        from_anchor = drafts == block_size
        source.notes.append(
            f"sample_from_anchor is not stated; {drafts} drafts from {block_size} slots say {from_anchor}"
        )
    if from_anchor is None:
        fix = "Pass --sample-from-anchor or --no-sample-from-anchor"
        found = f"nothing says whether the {block_size} slots give {block_size} or {block_size - 1} drafts"
        source.fault("D125", found, needed="sample_from_anchor", fix=fix, name="sample_from_anchor")
        from_anchor = False
    layout = SlotLayout(block_size, from_anchor)
    if drafts is not None and drafts > layout.num_slots:
        given = f"{block_size} slots with sample_from_anchor={from_anchor}"
        found = f"speculative_tokens {drafts}, but {given} give {layout.num_slots}"
        source.fault(
            "D125", found, needed="the slot layout that the drafter was trained with", name="sample_from_anchor"
        )
    source.notes.append(f"block: {block_size} slots, {layout.num_slots} drafts, sample_from_anchor={from_anchor}")
    return layout


def read_num_drafts(source: DrafterSource, trained: int | None, stated: int | None) -> int:
    """Drafts a step: the user's answer, else the checkpoint's; at most what was trained (D126, D127).

    Args:
        trained: the most the drafter can propose; None where it has no limit.
        stated: as the checkpoint has it.
    """
    wanted = stated if source.options.num_drafts is None else source.options.num_drafts
    if wanted is None:
        wanted = trained
    if wanted is None:
        fix = "Pass --num-drafts"
        source.fault("D127", "nothing says how many tokens to draft a step", needed="speculative_tokens", fix=fix)
        return 1
    if wanted < 1 or (trained is not None and wanted > trained) or wanted > MAX_BLOCK:
        high = MAX_BLOCK if trained is None else trained
        source.fault("D126", f"{wanted} drafts a step", needed=f"1..{high}, what the drafter was trained for")
        return 1
    return wanted

# SPDX-License-Identifier: Apache-2.0
"""One training run: steps, saves, resumes.

Owns the state of a run. The order of batches is a function of seed and step, and everything else that a step depends on
is saved, so a resumed run gives what an uninterrupted one would. It prints nothing and knows no clock.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, replace
from pathlib import Path
from pickle import UnpicklingError
from typing import TypedDict

import torch
from torch import Tensor
from torch.nn import functional

from hspec_trt.bundle import write_atomic
from hspec_trt.errors import DrafterError
from hspec_trt.modeling.block import BlockDrafter
from hspec_trt.training.batches import Batch, Chunk, add_noise, epoch_chunks, make_batch
from hspec_trt.training.cache import TeacherCache
from hspec_trt.training.loss import MASK_EPS, HeadLoss, head_loss, slot_weights
from hspec_trt.training.optimizer import decay_start, make_optimizers, rate_at, set_rate
from hspec_trt.training.options import TrainOptions
from hspec_trt.training.thinning import thin_chains


@dataclass(frozen=True)
class StepResult:
    """What a step saw.

    Attributes:
        overlap, hits: per judged slot, the mean of ``sum min(q, pi)`` and the share of equal first choices.
    """

    step: int
    loss: float
    grad_norm: float
    overlap: tuple[float, ...]
    hits: tuple[float, ...]


class _Saved(TypedDict):
    recipe: str
    step: int
    steps: int
    decay_start: int
    model: dict[str, Tensor]
    optimizers: list[dict[str, object]]


def check_fits(model: BlockDrafter, options: TrainOptions) -> None:
    """Refuse ways of training that a drafter has no use for.

    Raises:
        DrafterError: D221 for short blocks that are not causal, D223 for slots to thin out that are no chain.
    """
    if options.short_slots and not model.causal:
        raise DrafterError("D221", "short blocks of a drafter that is bidirectional inside the block", needed="none")
    if options.cod_rate is not None and not model.chained:
        raise DrafterError("D223", "--cod-rate for a drafter without chains", needed="peagle", fix="Leave it out")
    if options.cod_rate is None and options.cod_floor != TrainOptions.cod_floor:
        raise DrafterError("D223", "--cod-floor without --cod-rate", fix="Give both, or leave it out")


class Trainer:
    """A drafter under training.

    Attributes:
        step: steps done.
        steps: length of the run.
    """

    def __init__(
        self,
        model: BlockDrafter,
        cache: TeacherCache,
        indices: Sequence[int],
        options: TrainOptions,
        *,
        recipe: str,
    ) -> None:
        """Set up a run on the device of the model.

        Args:
            indices: conversations of the cache to train on.
            recipe: all that decides the result; a saved run must have the same.
        """
        self.model, self.cache, self.indices, self.options = model, cache, list(indices), options
        self.recipe, self.step = recipe, 0
        self.optimizers = make_optimizers(model, options)
        dtype = torch.bfloat16 if options.bfloat16 else torch.float32
        self.head = model.head.to(dtype)
        self._chunks: list[Chunk] = []
        self._epoch = -1
        self._per_epoch = self._load_epoch(0)
        self.steps = options.steps or round(options.epochs * self._per_epoch)

    def train_step(self) -> StepResult:
        """One optimizer step on the next batch.

        Raises:
            DrafterError: D225 where the loss is infinite or not a number; no parameter has changed then.
        """
        batch = self._next_batch()
        with torch.autocast(self.model.device.type, torch.bfloat16, enabled=self.options.bfloat16):
            slots = batch.mask.shape[-1] + self.model.first_slot
            loss, result = self._loss(self.model.hidden(batch.inputs, num_slots=slots, window_edge="anchor"), batch)
        loss.backward()  # type: ignore[no-untyped-call]
        if not torch.isfinite(loss):
            found, fix = f"the loss of step {self.step + 1} is {loss.item()}", "Give a smaller --lr"
            raise DrafterError("D225", found, needed="a number", fix=f"{fix}; the last saved state is as it was")
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.options.clip)
        set_rate(self.optimizers, rate_at(self.step, self.steps, self.options))
        for optimizer in self.optimizers:
            optimizer.step()
            optimizer.zero_grad()
        self.step += 1
        judged = batch.mask.bool()
        slot_of = torch.arange(judged.shape[-1], device=judged.device).expand(judged.shape)[judged]
        return StepResult(
            self.step,
            loss.item(),
            norm.item(),
            _slot_means(result.overlap, slot_of, judged.shape[-1]),
            _slot_means(result.hit.float(), slot_of, judged.shape[-1]),
        )

    def save(self, path: Path) -> None:
        """Write the state, whole or not at all."""
        state = _Saved(
            recipe=self.recipe,
            step=self.step,
            steps=self.steps,
            decay_start=decay_start(self.steps, self.options),
            model=self.model.state_dict(),
            optimizers=[optimizer.state_dict() for optimizer in self.optimizers],
        )
        content = io.BytesIO()
        torch.save(state, content)
        write_atomic(path, content.getvalue())

    def load(self, path: Path) -> None:
        """Go on where a saved run stopped.

        Raises:
            DrafterError: D220 where the file cannot be read, or the saved run had another recipe, or another length
                that already shows in its rate.
        """
        state = _read_state(path)
        if state["recipe"] != self.recipe:
            found = f"the saved run has another {', '.join(_differing(state['recipe'], self.recipe))}"
            fix = "Give another --work-dir and --output, or delete this file to start anew"
            raise DrafterError("D220", found, where=str(path), fix=fix)
        starts = state["decay_start"], decay_start(self.steps, self.options)
        if (state["steps"], starts[0]) != (self.steps, starts[1]) and state["step"] > min(starts):
            found = f"the saved run is for {state['steps']} steps and {state['step']} are done"
            fix = "Give the same --steps and --decay"
            raise DrafterError("D220", found, needed=f"{self.steps} steps", where=str(path), fix=fix)
        self.model.load_state_dict(state["model"])
        for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        self.step = state["step"]

    def _loss(self, hidden: Tensor, batch: Batch) -> tuple[Tensor, HeadLoss]:
        judged = batch.mask.bool()
        weight = slot_weights(judged.shape[-1], judged.device).expand(judged.shape)[judged]
        rows, previous = hidden[..., self.model.first_slot :, :][judged], batch.previous[judged]
        markov, correction = None, self.model.markov_rows(batch.inputs, batch.previous, hidden)
        if correction is not None and self.model.markov_head is not None:
            markov = correction[judged], self.model.markov_head.markov_w2.weight
        result = head_loss(rows, batch.final[judged], self.head, weight, markov=markov, mix=self.options.mix)
        loss, count = result.loss, judged.sum() + MASK_EPS
        confidence = self.model.confidence(rows, previous)
        if confidence is not None:
            terms = functional.binary_cross_entropy_with_logits(confidence.float(), result.overlap, reduction="none")
            loss = loss + self.options.mix.confidence * (terms * weight).sum()
        return loss / count, result

    def _next_batch(self) -> Batch:
        epoch, place = divmod(self.step, self._per_epoch)
        if epoch != self._epoch:
            self._load_epoch(epoch)
        size = self.options.chunks_per_step
        chunks = self._chunks[place * size : (place + 1) * size]
        slots = self.model.num_drafts
        if self.options.short_slots and self.step % self.options.full_every:
            slots = min(slots, self.options.short_slots)
        anchors, config = self.options.anchors_per_chunk, self.model.drafter_config
        batch = make_batch(self.cache, chunks, config, anchors_per_chunk=anchors, num_slots=slots)
        if self.options.cod_rate is not None:
            draw = {"rate": self.options.cod_rate, "floor": self.options.cod_floor}
            batch = replace(batch, mask=thin_chains(batch.mask, **draw, seed=self.options.seed, step=self.step))
        batch = replace(batch, inputs=replace(batch.inputs, kept=batch.mask.bool()))
        if self.options.noise:
            generator = torch.Generator().manual_seed((self.options.seed << 32) + self.step)
            batch = replace(batch, inputs=add_noise(batch.inputs, self.options.noise, generator))
        return batch.to(self.model.device)

    def _load_epoch(self, epoch: int) -> int:
        self._epoch = epoch
        self._chunks = epoch_chunks(
            self.cache.conversations,
            self.indices,
            anchors_per_chunk=self.options.anchors_per_chunk,
            seed=self.options.seed,
            epoch=epoch,
            prompt=self.options.prompt_anchors,
        )
        steps = len(self._chunks) // self.options.chunks_per_step
        if not steps:
            found = f"{len(self._chunks)} groups of anchors"
            raise DrafterError("D200", found, needed=f"at least {self.options.chunks_per_step}, one step's")
        return steps


def _differing(saved: str, given: str) -> list[str]:
    """Names of the options in which two recipes differ."""
    one, other = (_flat(json.loads(recipe)) for recipe in (saved, given))
    return sorted(name for name in {*one, *other} if one.get(name, MISSING) != other.get(name, MISSING))


def _flat(recipe: Mapping[str, object]) -> dict[str, object]:
    found: dict[str, object] = {}
    for name, value in recipe.items():
        found |= _flat(value) if isinstance(value, dict) else {name: value}
    return found


def _read_state(path: Path) -> _Saved:
    fix = "Delete this file to start anew"
    try:
        state: _Saved = torch.load(path, weights_only=True, map_location="cpu")
    except (RuntimeError, ValueError, LookupError, EOFError, UnpicklingError) as error:
        raise DrafterError("D220", "the saved run cannot be read", where=str(path), fix=fix) from error
    if not isinstance(state, dict) or set(state) != _Saved.__required_keys__:
        raise DrafterError("D220", "the file is no saved run", where=str(path), fix=fix)
    return state


def _slot_means(values: Tensor, slot_of: Tensor, num_slots: int) -> tuple[float, ...]:
    both = torch.stack([values.float(), torch.ones_like(values, dtype=torch.float32)], 1)
    sums, counts = values.new_zeros(num_slots, 2, dtype=torch.float32).index_add_(0, slot_of, both).unbind(1)
    return tuple((sums / counts.clamp(min=1)).tolist())

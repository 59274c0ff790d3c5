"""Train a decoder within a wall-clock budget.

Steps:

1. write the resolved recipe into the run folder; load the prepared data set;
2. every step: one length-bucketed batch; the vectors are disturbed as by storage
   (rounded to float16 or int8, a little noise, sometimes zeroed); cross-entropy; Muon for the
   matrices inside the blocks, AdamW for all else;
3. the learning rate depends on the share of the budget that has passed, of the time or of
   ``max_steps``: a busy machine trains fewer steps but the decay always completes;
4. every few minutes: held-out quality to TensorBoard and ``metrics.jsonl``, and a checkpoint from
   which ``--resume`` continues with the remaining time.

Training imitates the storage of vectors, float16 or int8. int8 stores
c = clip(round(v * scale), -127, 127) and returns c / scale. One scale serves all
vectors; it is fixed once, so that 127 / scale is the 99.99th percentile of |v|.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.utils.tensorboard import SummaryWriter
from tqdm import tqdm

from verso_training import device
from verso_training.config import Precision, Recipe, TrainConfig, parse
from verso_training.data import dataset
from verso_training.data.dataset import PADDING, Batch, Dataset
from verso_training.data.sources import Split
from verso_training.decoder import loss
from verso_training.decoder.loss import tied_cross_entropy
from verso_training.decoder.model import Decoder

_PERCENTILE = 99.99
_SAMPLE_ROWS = 20_000


def int8_scale(vectors: NDArray[np.float16]) -> float:
    """Return the int8 scale for vectors like these. Shape: (rows, D)."""
    step = max(1, len(vectors) // _SAMPLE_ROWS)
    sample = np.abs(np.asarray(vectors[::step], np.float32))
    return float(127.0 / np.percentile(sample, _PERCENTILE))


def round_int8(vectors: Tensor, scale: float) -> Tensor:
    """Return the vectors as int8 storage returns them. Shape: (B, D), float32."""
    return (vectors * scale).round().clamp(-127, 127) / scale


def stored(vectors: Tensor, precision: Precision, *, scale: float) -> Tensor:
    """Return the vectors as a store of this precision returns them; mixed is float16. Shape: (B,
    D)."""
    match precision:
        case Precision.FLOAT16 | Precision.MIXED:
            return vectors.half().float()
        case Precision.INT8:
            return round_int8(vectors, scale)
        case Precision.BIT:
            return torch.where(vectors < 0, -1.0, 1.0) / math.sqrt(vectors.shape[1])


def disturb(
    vectors: Tensor,
    *,
    scale: float,
    noise: float,
    dropout: float,
    precision: Precision = Precision.MIXED,
) -> Tensor:
    """Return vectors as a decoder may read them.

    Rows are rounded as the store will round them; a Gaussian vector of norm about ``noise`` stands
    for other kernels and quantised encoders; a ``dropout`` share becomes zero.

    Args:
        vectors: Unit vectors. Shape: (B, D), float32.
        scale: Of the int8 space.
        noise: Norm of the disturbance, the vector's being 1.
        dropout: Share of rows without a vector.
        precision: Mixed rounds half of the rows to float16 and half to int8.
    """
    batch, dim = vectors.shape
    device = vectors.device
    noisy = vectors + torch.randn_like(vectors) * (noise * dim**-0.5)
    rounded = stored(noisy, precision, scale=scale)
    if precision is Precision.MIXED:
        coarse = torch.rand(batch, 1, device=device) < 0.5
        rounded = torch.where(coarse, round_int8(noisy, scale), rounded)
    dropped = torch.rand(batch, 1, device=device) < dropout
    return rounded.masked_fill(dropped, 0.0)


_LAST_RATE = 0.01
"""Share of the learning rate at the end of the budget."""


@dataclass
class Progress:
    """The progress of a run; saved with every checkpoint."""

    step: int = 0
    epoch: int = 0
    batch: int = 0
    elapsed_s: float = 0.0
    tokens: int = 0


@dataclass(frozen=True)
class Start:
    """A decoder before the first step, and the scale of the space whose vectors it reads."""

    decoder: Decoder
    int8_scale: float


class Run:
    """One training run in one folder."""

    def __init__(
        self,
        recipe: Recipe,
        *,
        data: Path,
        folder: Path,
        resume: bool = False,
        start: Start | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare a run of a recipe.

        data: folder of the prepared data set
        folder: of the run
        resume: continue from the folder's last checkpoint
        start: a decoder of the recipe's sizes to train further; without one the weights are random
        clock: seconds of the budget; `time.process_time` makes runs comparable that share
            their processor with others
        """
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "recipe.json").write_text(json.dumps(recipe.to_dict(), indent=2) + "\n")
        self.recipe, self.folder = recipe, folder
        self.config = recipe.train
        torch.manual_seed(self.config.seed)
        torch.set_num_threads(self.config.threads)
        self.training = dataset.load(data, Split.TRAIN)
        self.validation = _leading(
            dataset.load(data, Split.VALIDATION), self.config.evaluate_chunks
        )
        start = start or Start(Decoder(recipe.model), int8_scale(self.training.vectors))
        self.int8_scale = start.int8_scale
        self.device = device.named(self.config.device)
        self.decoder = start.decoder.to(self.device).train()
        self.optimisers = optimisers(self.decoder, self.config)
        self.progress = Progress()
        if resume:
            self._restore()
        self.forward = self.decoder.teacher_forced
        if self.config.compile and self.device != device.PROCESSOR.type:
            self.forward = torch.compile(self.forward, dynamic=True)
        self._clock = clock
        self._began_s = clock() - self.progress.elapsed_s

    def train(self) -> None:
        """Train until the budget is spent, then evaluate and save.

        Afterwards the decoder is on the CPU.
        """
        writer = SummaryWriter(str(self.folder / "events"))
        bar = tqdm(
            total=round(self.config.minutes * 60), unit="s", desc=self.recipe.name, mininterval=1.0
        )
        evaluated_s = saved_s = self.progress.elapsed_s
        for batch in self._batches():
            share = budget_share(self.config, self._elapsed(), self.progress.step)
            if share >= 1.0:
                break
            loss = self._step(batch, rate_share(self.config, share, self.progress.step))
            self._record(writer, bar, loss)
            elapsed_s = self.progress.elapsed_s
            if elapsed_s - evaluated_s > self.config.evaluate_minutes * 60:
                self._evaluate(writer)
                evaluated_s = elapsed_s
            if elapsed_s - saved_s > self.config.checkpoint_minutes * 60:
                self.save()
                saved_s = elapsed_s
        self._evaluate(writer)
        self.save()
        self.decoder.to(device.PROCESSOR)
        bar.close()
        writer.close()

    def save(self) -> None:
        """Write weights, optimiser state and progress; each file replaces the old one whole."""
        weights = {k: v.cpu().contiguous() for k, v in self.decoder.state_dict().items()}
        save_file(weights, self.folder / "weights.new", metadata={"recipe": self.recipe.name})
        state = {
            "optimisers": [o.state_dict() for o in self.optimisers],
            "progress": asdict(self.progress),
            "int8_scale": self.int8_scale,
            "torch_rng": torch.get_rng_state(),
        }
        torch.save(state, self.folder / "state.new")
        (self.folder / "weights.new").replace(self.folder / "weights.safetensors")
        (self.folder / "state.new").replace(self.folder / "state.pt")

    def _restore(self) -> None:
        self.decoder.load_state_dict(load_file(self.folder / "weights.safetensors"))
        state = _state(self.folder)
        for optimiser, saved in zip(self.optimisers, state["optimisers"], strict=True):
            optimiser.load_state_dict(saved)
        self.progress = Progress(**state["progress"])
        self.int8_scale = state["int8_scale"]
        torch.set_rng_state(state["torch_rng"])

    def _batches(self) -> Iterator[Batch]:
        lengths = self.training.lengths()
        model = self.recipe.model
        while True:
            rng = np.random.default_rng((self.config.seed, self.progress.epoch))
            planned = dataset.plan(lengths, tokens_per_step=self.config.tokens_per_step, rng=rng)
            while self.progress.batch < len(planned):
                rows = planned[self.progress.batch]
                yield dataset.collate(self.training, rows, bos=model.bos, eos=model.eos)
                self.progress.batch += 1
            self.progress.epoch += 1
            self.progress.batch = 0

    def _step(self, batch: Batch, rate: float) -> float:
        batch = batch.to(self.device)
        vectors = disturb(
            batch.vectors,
            scale=self.int8_scale,
            noise=self.config.vector_noise,
            dropout=self.config.vector_dropout,
            precision=self.config.vector_precision,
        )
        kind = torch.device(self.device).type
        with torch.autocast(kind, torch.bfloat16, enabled=self.config.bfloat16):
            loss = self._loss(self.forward(batch.tokens, vectors), batch.targets)
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self.decoder.parameters(), self.config.clip_norm)
        for optimiser in self.optimisers:
            for group in optimiser.param_groups:
                group["lr"] = group["initial_lr"] * rate
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)
        self.progress.step += 1
        self.progress.tokens += int((batch.targets != PADDING).sum())
        self.progress.elapsed_s = self._elapsed()
        return float(loss.detach())

    def _loss(self, states: Tensor, targets: Tensor) -> Tensor:
        counted = (targets != PADDING).flatten().nonzero()[:, 0]
        picked = states.flatten(0, 1).index_select(0, counted)  # (tokens, W)
        if self.config.bfloat16:
            picked = picked.bfloat16()
        targets = targets.flatten().index_select(0, counted)
        return tied_cross_entropy(picked, self.decoder.embedding.weight, targets)

    def _record(self, writer: SummaryWriter, bar: tqdm[Any], loss: float) -> None:
        progress = self.progress
        bar.set_postfix(step=progress.step, epoch=progress.epoch, loss=f"{loss:.3f}", refresh=False)
        bar.update(min(round(progress.elapsed_s), bar.total) - bar.n)
        if progress.step % 10 == 0:
            writer.add_scalar("train/loss", loss, progress.step)
            writer.add_scalar("train/tokens", progress.tokens, progress.step)

    def _evaluate(self, writer: SummaryWriter) -> None:
        self.decoder.eval()
        row: dict[str, Any] = asdict(self.progress)
        for name, as_met in (("vector", self._stored), ("none", torch.zeros_like)):
            quality = loss.measure(
                self.decoder,
                self.validation,
                as_met=as_met,
                device=self.device,
                bfloat16=self.config.bfloat16,
            )
            row[name] = {source: asdict(q) for source, q in quality.items()}
            for source, q in quality.items():
                writer.add_scalar(f"bits_per_byte/{source}/{name}", q.bits_per_byte, row["step"])
                writer.add_scalar(f"accuracy/{source}/{name}", q.token_accuracy, row["step"])
        self.decoder.train()
        with (self.folder / "metrics.jsonl").open("a") as stream:
            stream.write(json.dumps(row) + "\n")

    def _stored(self, vectors: Tensor) -> Tensor:
        return stored(vectors, self.config.vector_precision, scale=self.int8_scale)

    def _elapsed(self) -> float:
        return self._clock() - self._began_s


def budget_share(config: TrainConfig, elapsed_s: float, step: int) -> float:
    """Share of the budget that is spent: of the time or of the steps, whichever is further."""
    return max(elapsed_s / (config.minutes * 60), step / config.max_steps)


def rate_share(config: TrainConfig, share: float, step: int) -> float:
    """Share of the full learning rate after ``share`` of the budget, at ``step``.

    Flat, then linear towards ``_LAST_RATE`` over the last ``decay_fraction`` of the time; the
    first ``warmup_steps`` steps rise linearly.
    """
    warm = min(1.0, (step + 1) / max(config.warmup_steps, 1))
    left = min(1.0, (1.0 - min(share, 1.0)) / config.decay_fraction)
    return warm * (_LAST_RATE + (1.0 - _LAST_RATE) * left)


def is_saved(folder: Path) -> bool:
    """Whether a run folder has a checkpoint."""
    return (folder / "state.pt").exists()


def load_decoder(folder: Path) -> tuple[Recipe, Decoder]:
    """Load the recipe and the trained decoder of a run folder."""
    recipe = parse(json.loads((folder / "recipe.json").read_text(encoding="utf-8")))
    decoder = Decoder(recipe.model)
    decoder.load_state_dict(load_file(folder / "weights.safetensors"))
    return recipe, decoder.eval()


def load_scale(folder: Path) -> float:
    """Load the int8 scale that a run was trained with."""
    return float(_state(folder)["int8_scale"])


def _state(folder: Path) -> dict[str, Any]:
    """Load a checkpoint's state beside the weights; its device need not exist here."""
    found: dict[str, Any] = torch.load(folder / "state.pt", weights_only=True, map_location="cpu")
    return found


def describe(folder: Path) -> str:
    """Summarise a run in two sentences, from its last evaluation."""
    last = json.loads((folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()[-1])
    with_vector, without = last["vector"]["all"], last["none"]["all"]
    return (
        f"Trained {last['elapsed_s'] / 60:.0f} minutes: {last['step']} steps, "
        f"{last['tokens'] / 1e6:.1f} M tokens, epoch {last['epoch'] + 1}. Held-out cross-entropy "
        f"{with_vector['bits_per_byte']:.3f} bits per byte with the vector, "
        f"{without['bits_per_byte']:.3f} without."
    )


def optimisers(decoder: Decoder, config: TrainConfig) -> list[torch.optim.Optimizer]:
    """Return Muon for the matrices inside the blocks and AdamW for all else."""
    matrices = [p for p in decoder.blocks.parameters() if p.ndim == 2]
    inside = {id(p) for p in matrices}
    others = [p for p in decoder.parameters() if id(p) not in inside]
    made: list[torch.optim.Optimizer] = [
        torch.optim.Muon(matrices, lr=config.matrix_rate, weight_decay=config.weight_decay),
        torch.optim.AdamW(
            others, lr=config.embedding_rate, betas=(0.9, 0.95), weight_decay=0.0, fused=True
        ),
    ]
    for optimiser in made:
        for group in optimiser.param_groups:
            group["initial_lr"] = group["lr"]
    return made


def _leading(full: Dataset, count: int) -> Dataset:
    """Return the first ``count`` chunks of each source."""
    taken: dict[str, int] = {}
    picked = []
    for index, chunk in enumerate(full.chunks):
        taken[chunk.source] = taken.get(chunk.source, 0) + 1
        if taken[chunk.source] <= count:
            picked.append(index)
    return full.subset(picked)

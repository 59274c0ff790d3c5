"""Train a reader: an adapter on the encoder and one or more span heads on its states.

Steps:

1. windows of the training questions, grouped by length; a first share of the budget reads short
   questions on single sentences, which show many spans for few tokens, the rest paragraphs;
2. every step: one batch of windows; the losses of all heads are added (heads trained side by side
   on one adapter are compared at equal cost); AdamW, one rate for all;
3. the budget is processor time, not wall time: a busy machine does not shorten the training; the
   rate rises over the first steps and then falls to zero with the share of the budget spent;
4. a checkpoint every few minutes, from which a run goes on after it was killed.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from verso_training.heads import lora
from verso_training.heads.backbone import Backbone
from verso_training.heads.spans import SpanHead, SpanLayers, span_loss
from verso_training.heads.squad import Window


@dataclass(frozen=True)
class ReaderConfig:
    """How a reader is trained.

    Attributes:
        minutes: Of processor time.
        warm_share: Share of the budget for the short questions.
        tokens_per_step: Padding included.
    """

    layers: tuple[SpanLayers, ...] = (SpanLayers.GELU_4_SKIP, SpanLayers.VANILLA)
    rank: int = 16
    alpha: float = 32.0
    dropout: float = 0.1
    rate: float = 8e-4
    weight_decay: float = 0.01
    clip_norm: float = 1.0
    warmup_steps: int = 40
    minutes: float = 65.0
    warm_share: float = 0.12
    tokens_per_step: int = 3072
    max_tokens: int = 256
    stride: int = 96
    checkpoint_minutes: float = 5.0
    seed: int = 0


class Reader(nn.Module):
    """An adapted encoder with span heads."""

    def __init__(self, backbone: Backbone, config: ReaderConfig) -> None:
        super().__init__()
        self.bert = lora.adapt(backbone, rank=config.rank, alpha=config.alpha)
        self.heads = nn.ModuleDict(
            {
                name.value: SpanHead(name, width=backbone.width, dropout=config.dropout)
                for name in config.layers
            }
        )

    def states(self, ids: Tensor, mask: Tensor, types: Tensor) -> Tensor:
        """Token states. Shape: (B, T) to (B, T, W)."""
        output = self.bert(input_ids=ids, attention_mask=mask, token_type_ids=types)
        return output.last_hidden_state  # type: ignore[no-any-return]

    def forward(self, ids: Tensor, mask: Tensor, types: Tensor) -> dict[str, tuple[Tensor, Tensor]]:
        """Start and end logits by the name of the head."""
        states = self.states(ids, mask, types)
        return {name: head(states) for name, head in self.heads.items()}


@dataclass(frozen=True)
class WindowBatch:
    """Windows of like length, padded. All of shape (B, T)."""

    ids: Tensor
    mask: Tensor
    types: Tensor
    starts: Tensor
    ends: Tensor
    allowed: Tensor


def collate(windows: Sequence[Window]) -> WindowBatch:
    """Pad windows to the longest."""
    shape = (len(windows), max(len(window.ids) for window in windows))
    ids, mask, types = (torch.zeros(shape, dtype=torch.int64) for _ in range(3))
    starts, ends, allowed = (torch.zeros(shape, dtype=torch.bool) for _ in range(3))
    for row, window in enumerate(windows):
        length, first = len(window.ids), window.context_from
        ids[row, :length] = torch.tensor(window.ids)
        mask[row, :length] = 1
        types[row, first:length] = 1
        starts[row, window.starts] = True
        ends[row, window.ends] = True
        allowed[row, first : length - 1] = True
        allowed[row, 0] = True
    return WindowBatch(ids, mask, types, starts, ends, allowed)


def plan(lengths: Sequence[int], *, tokens: int, rng: random.Random) -> list[list[int]]:
    """Batches of like length in random order, at most ``tokens`` each with padding."""
    order = sorted(range(len(lengths)), key=lambda i: lengths[i] + rng.random() * 24)
    batches: list[list[int]] = [[]]
    longest = 0
    for index in order:
        longest = max(longest, lengths[index])
        if batches[-1] and longest * (len(batches[-1]) + 1) > tokens:
            batches.append([])
            longest = lengths[index]
        batches[-1].append(index)
    rng.shuffle(batches)
    return batches


class ReaderRun:
    """One training run in one folder."""

    def __init__(
        self,
        backbone: Backbone,
        config: ReaderConfig,
        *,
        warm: Sequence[Window],
        main: Sequence[Window],
        folder: Path,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.json").write_text(json.dumps(asdict(config), indent=2) + "\n")
        torch.manual_seed(config.seed)
        self.config, self.folder = config, folder
        self.phases = (list(warm), list(main))
        self.reader = Reader(backbone, config)
        trained = [p for p in self.reader.parameters() if p.requires_grad]
        self.optimiser = torch.optim.AdamW(
            trained, lr=config.rate, weight_decay=config.weight_decay
        )
        self.spent_s, self.step = 0.0, 0
        self.places = [[0, 0], [0, 0]]
        """Epoch and batch of each phase."""
        if (folder / "state.pt").exists():
            self._restore()

    def train(self, on_progress: Callable[[dict[str, float]], None] | None = None) -> None:
        """Train until the budget is spent; save."""
        self.reader.train()
        began_s, saved_s = time.process_time() - self.spent_s, self.spent_s
        for batch in self._batches():
            share = self.spent_s / (self.config.minutes * 60)
            if share >= 1.0:
                break
            losses = self._step(batch, share)
            self.spent_s = time.process_time() - began_s
            if self.step % 20 == 0:
                row = {"step": self.step, "spent_s": round(self.spent_s, 1), **losses}
                with (self.folder / "metrics.jsonl").open("a") as stream:
                    stream.write(json.dumps(row) + "\n")
                if on_progress is not None:
                    on_progress(row)
            if self.spent_s - saved_s > self.config.checkpoint_minutes * 60:
                self.save()
                saved_s = self.spent_s
        self.save()

    def save(self) -> None:
        """Write the adapter, the optimiser and where the run stands, each file whole."""
        save_file(lora.state(self.reader), self.folder / "adapter.new")
        torch.save(
            {
                "optimiser": self.optimiser.state_dict(),
                "spent_s": self.spent_s,
                "step": self.step,
                "places": self.places,
                "torch_rng": torch.get_rng_state(),
            },
            self.folder / "state.new",
        )
        (self.folder / "adapter.new").replace(self.folder / "adapter.safetensors")
        (self.folder / "state.new").replace(self.folder / "state.pt")

    def _restore(self) -> None:
        lora.restore(self.reader, load_file(self.folder / "adapter.safetensors"))
        state = torch.load(self.folder / "state.pt", weights_only=True)
        self.optimiser.load_state_dict(state["optimiser"])
        self.spent_s, self.step = state["spent_s"], state["step"]
        self.places = state["places"]
        torch.set_rng_state(state["torch_rng"])

    def _batches(self) -> Iterator[WindowBatch]:
        while True:
            warm = self.spent_s < self.config.warm_share * self.config.minutes * 60
            phase = 0 if warm and self.phases[0] else 1
            place, windows = self.places[phase], self.phases[phase]
            rng = random.Random(f"{self.config.seed}:{phase}:{place[0]}")
            lengths = [len(window.ids) for window in windows]
            planned = plan(lengths, tokens=self.config.tokens_per_step, rng=rng)
            while place[1] < len(planned):
                yield collate([windows[i] for i in planned[place[1]]])
                place[1] += 1
                spent = self.spent_s >= self.config.warm_share * self.config.minutes * 60
                if phase == 0 and spent:
                    break
            else:
                place[0], place[1] = place[0] + 1, 0

    def _step(self, batch: WindowBatch, share: float) -> dict[str, float]:
        rate = min(1.0, (self.step + 1) / self.config.warmup_steps) * (1.0 - share)
        for group in self.optimiser.param_groups:
            group["lr"] = self.config.rate * rate
        outputs = self.reader(batch.ids, batch.mask, batch.types)
        losses = {
            name: span_loss(s, e, starts=batch.starts, ends=batch.ends, mask=batch.allowed)
            for name, (s, e) in outputs.items()
        }
        total = torch.stack(list(losses.values())).mean()
        total.backward()  # type: ignore[no-untyped-call]
        trained = [p for group in self.optimiser.param_groups for p in group["params"]]
        nn.utils.clip_grad_norm_(trained, self.config.clip_norm)
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)
        self.step += 1
        return {name: round(float(loss.detach()), 4) for name, loss in losses.items()}

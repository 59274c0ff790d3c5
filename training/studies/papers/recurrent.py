"""Recurrent decoders at the transformer's budget. (Sequence-to-Sequence Models: encoder-decoder
framework, distinct context vectors.)

The lecture's decoder is s_t = g(s_{t-1}, y_{t-1}, c), y_t from s_t. Its encoder is recurrent too;
ours stands, and c comes from the stored vector v, which is all that a record keeps of its text:

- *one context*: c = W_c v at every step, s_0 = tanh(W_s v);
- *attention*: c_t = sum_i a_{t,i} m_i over the memory slots m = reshape(W_m v) that our transformer
  reads, a_{t,i} = softmax_i u' tanh(W s_{t-1} + U m_i), the lecture's alignment model.

Both have one layer of gated units (GRU) and logits tied to the embedding, and are trained by
teacher forcing as ``studies compare`` trains its arms: the same texts, vectors, batches, processor
time and seed: a minute each, in full twenty. Bits are of cross-entropy on held-out records; guesses
are greedy. Intervals are over the records, of one training each.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import cast

import numpy as np
import torch
import torch.nn.functional as F
from tokenizers import Tokenizer
from torch import Tensor, nn

from studies.comparison import runs, texts
from studies.papers.bleu import with_ends, words
from studies.papers.joint import measure
from studies.papers.kept import Figures, Kept, Parts, rate, table, with_interval
from studies.quality.classification import Bench
from verso_training import config, encoder
from verso_training.config import ModelConfig, Recipe
from verso_training.data import dataset
from verso_training.data.dataset import Dataset
from verso_training.data.sources import Split
from verso_training.decoder.model import Decoder
from verso_training.decoder.train import Run, Start, int8_scale, round_int8, stored

STUDY = "recurrent"
MINUTES = 1.0
_FULL_MINUTES = 20.0
_GUESSES = 60
_LONGEST = 48


class Slots(nn.Module):
    """Memory slots of a vector, and the lecture's alignment model over them."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        width = config.width
        self.count = config.slots
        self.slots = nn.Linear(config.vector_dim, config.slots * width)
        self.query = nn.Linear(2 * width, width, bias=False)
        self.key = nn.Linear(width, width, bias=False)
        self.align = nn.Linear(width, 1, bias=False)

    def spread(self, scaled: Tensor) -> tuple[Tensor, Tensor]:
        """Return slots and keys. Shape: (B, D) to twice (B, S, W)."""
        slots = self.slots(scaled).reshape(len(scaled), self.count, -1)
        return slots, self.key(slots)

    def forward(self, state: Tensor, slots: Tensor, keys: Tensor) -> Tensor:
        """Return the context of one step. Shape: (B, 2 W) and twice (B, S, W) to (B, W)."""
        scores = self.align(torch.tanh(self.query(state)[:, None] + keys))  # (B, S, 1)
        found: Tensor = (torch.softmax(scores, 1) * slots).sum(1)
        return found


class RecurrentDecoder(nn.Module):
    """A GRU that reads a sentence vector, with what a training run asks of a decoder."""

    def __init__(self, config: ModelConfig, *, attends: bool) -> None:
        super().__init__()
        self.config = config
        width = config.width
        self.scale = config.vector_dim**0.5
        self.embedding = nn.Embedding(config.vocab, width)
        self.start = nn.Linear(config.vector_dim, 2 * width)
        self.context = Slots(config) if attends else nn.Linear(config.vector_dim, width)
        self.cell = nn.GRU(2 * width, 2 * width, batch_first=True)
        self.blocks = nn.ModuleList([nn.Linear(2 * width, width, bias=False)])
        nn.init.normal_(self.embedding.weight, std=0.3 * width**-0.5)

    def teacher_forced(self, tokens: Tensor, vector: Tensor) -> Tensor:
        """Return the last states for whole records. Shape: (B, T) and (B, D) to (B, T, W)."""
        scaled = vector * self.scale
        shown = F.rms_norm(self.embedding(tokens), (self.config.width,)).float()  # (B, T, W)
        state = torch.tanh(self.start(scaled)).float()[None]  # (1, B, 2W)
        if isinstance(self.context, Slots):
            states = self._attended(shown, scaled, state, self.context)
        else:
            known = self.context(scaled).float()[:, None].expand_as(shown)
            states, _ = self.cell(torch.cat([shown, known], -1), state)
        return F.rms_norm(self.blocks[0](states), (self.config.width,))

    def _attended(self, shown: Tensor, scaled: Tensor, state: Tensor, context: Slots) -> Tensor:
        slots, keys = context.spread(scaled)
        found = []
        for step in range(shown.shape[1]):
            known = context(state[0], slots, keys).float()
            out, state = self.cell(torch.cat([shown[:, step], known], -1)[:, None], state)
            found.append(out)
        return torch.cat(found, 1)

    def logits(self, states: Tensor) -> Tensor:
        """Return the scores of every token. Shape: (..., W) to (..., V)."""
        return F.linear(states, self.embedding.weight)


def _transformer(model: ModelConfig) -> Decoder:
    return Decoder(model)


def _recurrent(model: ModelConfig, *, attends: bool) -> Decoder:
    # A run asks a decoder for no more than this one has.
    return cast(Decoder, RecurrentDecoder(model, attends=attends))


ARMS: dict[str, Callable[[ModelConfig], Decoder]] = {
    "transformer, memory slots": _transformer,
    "recurrent, one context": lambda model: _recurrent(model, attends=False),
    "recurrent, attention": lambda model: _recurrent(model, attends=True),
}


def run(bench: Bench) -> Parts:
    """Train and measure the arms."""
    minutes = bench.length(MINUTES, full=_FULL_MINUTES)
    start = runs.placed(runs.timed(config.load("compare"), minutes))
    work = bench.work / "papers" / STUDY
    prepared = _prepared(bench, start, folder=bench.work / "compared")
    kept = Kept(work)
    return {
        name: kept.of(
            name,
            partial(_trained, replace(start, name=name), make, data=prepared, folder=work / name),
        )
        for name, make in ARMS.items()
    }


def _prepared(bench: Bench, start: Recipe, *, folder: Path) -> Path:
    """Return the folder of the prepared data with one vocabulary; made if it is not there."""
    data = folder / str(start.model.vocab)
    if not (folder / "done").exists():
        texts.prepare(
            start,
            bench.data,
            folder=folder,
            sentence_encoder=encoder.load(encoder.shipped_folder()),
            vocabularies=(start.model.vocab,),
        )
        (folder / "done").touch()
    return data


def _trained(
    recipe: Recipe, make: Callable[[ModelConfig], Decoder], *, data: Path, folder: Path
) -> Figures:
    torch.manual_seed(recipe.train.seed)
    shown = dataset.load(data, Split.TRAIN)
    scale = int8_scale(shown.vectors)
    one = Run(
        recipe,
        data=data,
        folder=folder,
        resume=(folder / "state.pt").exists(),
        start=Start(make(recipe.model), scale),
        clock=time.process_time,
    )
    one.train()
    held = one.validation
    figures: dict[str, float] = {
        "parameters": sum(weight.numel() for weight in one.decoder.parameters()),
        "steps": one.progress.step,
        "tokens": one.progress.tokens,
    }
    vectors = np.asarray(held.vectors, np.float32)
    precision = recipe.train.vector_precision
    logs = np.array([chunk.source.startswith("loghub") for chunk in held.chunks])
    for name, as_met in (
        ("vector", lambda met: stored(met, precision, scale=scale)),
        ("none", torch.zeros_like),
    ):
        bits = measure.by_chunk(one.decoder, held, vectors, as_met=as_met)
        for kind, rows in (("lines", logs), ("short", ~logs)):
            figures |= rate(f"{kind}/{name}", bits[rows], held.lengths()[rows] + 1)
    whole = dataset.load(data, Split.VALIDATION)
    for kind, wanted in (("lines", True), ("short", False)):
        told = _guessed(one.decoder, whole, scale, data, logs=wanted)
        figures |= {f"{kind}/{what}": value for what, value in told.items()}
    return figures


@torch.inference_mode()
def _guessed(decoder: Decoder, held: Dataset, scale: float, data: Path, *, logs: bool) -> Figures:
    """Return BLEU and right words of greedy guesses."""
    decoder.eval()
    rows = [at for at, one in enumerate(held.chunks) if one.source.startswith("loghub") == logs]
    rows = rows[:: max(1, len(rows) // _GUESSES)][:_GUESSES]
    vectors = torch.from_numpy(np.asarray(held.vectors[rows], np.float32))
    made = greedy(decoder, round_int8(vectors, scale), most=_LONGEST)
    tokenizer = Tokenizer.from_file(str(data / "tokenizer.json"))
    guesses = [words(tokenizer.decode(ids).encode()) for ids in made]
    wanted = [words(held.chunks[row].text.encode()) for row in rows]
    return with_ends(guesses, wanted)


def greedy(decoder: Decoder, vectors: Tensor, *, most: int) -> list[list[int]]:
    """Return the likeliest token at each step until the end token. Shape: (B, D)."""
    about = decoder.config
    tokens = torch.full((len(vectors), 1), about.bos)
    for _ in range(most):
        last = decoder.logits(decoder.teacher_forced(tokens, vectors)[:, -1])
        last[:, about.bos] = -torch.inf
        tokens = torch.cat([tokens, last.argmax(-1, keepdim=True)], 1)
    return [
        row[: row.index(about.eos)] if about.eos in row else row for row in tokens[:, 1:].tolist()
    ]


def page(found: Parts) -> str:
    """Return the table."""
    columns = ["decoder", "parameters", "steps", "bits a token, lines", "no vector", "short texts"]
    columns += ["no vector", "BLEU, lines", "short", "right words, lines", "short"]
    rows = []
    for name, f in found.items():
        cells = [f"{f['parameters'] / 1e6:.1f} M", f"{f['steps']:,.0f}"]
        for kind in ("lines", "short"):
            cells += [with_interval(f, f"{kind}/{of}", digits=2) for of in ("vector", "none")]
        for of in ("bleu", "right"):
            cells += [with_interval(f, f"{kind}/{of}") for kind in ("lines", "short")]
        rows.append([name, *cells])
    return table(columns, rows)

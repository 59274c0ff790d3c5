"""A classifier trained together with self-generation. (Decodable Sentence-BERT, sections 3.2 and
4, table 7.)

One encoder, two readers of its pooled states: the published head for classes, and the decoder, from
the shipped weights, which is asked for the text itself.

    L = (CE(class) + CE(text | vector)) / 2

The vector is that of the same pass: the mean of the states of the text's first 128 tokens, to unit
length, rounded as it is stored; the gradient passes the rounding. The text is its first record, 127
tokens of the decoder. How sure the model is of a class is then the share of those tokens that its
own decoder guesses right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor, nn

from studies.papers.joint.losses import as_stored
from studies.tasks import steps
from studies.tasks.steps import Rates, Task
from verso_core import manifest
from verso_training import device
from verso_training.artifact import tuning, weights
from verso_training.config import TrainConfig
from verso_training.data.dataset import PADDING
from verso_training.decoder.loss import tied_cross_entropy
from verso_training.decoder.model import Decoder
from verso_training.decoder.train import round_int8
from verso_training.encoder import batches, padded
from verso_training.heads import backbone, token_classifier
from verso_training.heads.modules import SequenceClassifier, mean_pool

_RATES = Rates(6e-5, 5e-4)
_STORED = TrainConfig()
_TOKENS_PER_BATCH = 4096
Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Record:
    """A text as encoder and decoder read it, and its label's number."""

    ids: list[int]
    target: int
    tokens: list[int]


class Decodable(nn.Module):
    """An encoder, a classifier on its states, and a decoder of its vector.

    Args:
        classifier: Its encoder is trained.
        decoder: From the weights to start from.
        scale: Of the int8 space.
    """

    def __init__(self, classifier: SequenceClassifier, decoder: Decoder, *, scale: float) -> None:
        super().__init__()
        self.bert = classifier.bert
        self.classifier = classifier
        self.decoder = decoder
        self.scale = scale
        width, dim = int(classifier.bert.config.hidden_size), decoder.config.vector_dim
        # A backbone has no projection: where states are narrower than vectors, it is learnt here.
        self.projection = nn.Identity() if width == dim else nn.Linear(width, dim)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits of classes and unit vectors. Shape: twice (B, T) to (B, C) and (B, D)."""
        states = self.bert(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        pooled = mean_pool(states.float(), attention_mask)
        head = self.classifier
        hidden = F.gelu(head.hidden(head.dropout(pooled)))
        return head.out(head.dropout(hidden)), F.normalize(self.projection(pooled), dim=-1)


def records(
    texts: Iterable[tuple[str, int]], *, words: Tokenizer, pieces: Tokenizer, most: tuple[int, int]
) -> list[Record]:
    """Return texts as both read them.

    Args:
        texts: With the number of each label.
        words: The encoder's tokenizer.
        pieces: The decoder's.
        most: Tokens of the encoder and of the decoder.
    """
    rows = list(texts)
    shown = token_classifier.tokenised(rows, words, max_tokens=most[0])
    spelt = [pieces.encode(text, add_special_tokens=False).ids[: most[1]] for text, _ in rows]
    return [Record(one.ids, one.target, ids) for one, ids in zip(shown, spelt, strict=True)]


def losses(module: Decodable, even: Tensor) -> Callable[[Sequence[Record]], Mapping[str, Tensor]]:
    """Return both losses of a batch; ``even`` weighs the classes. Shape: (C,)."""

    def of(batch: Sequence[Record]) -> Mapping[str, Tensor]:
        labels = torch.tensor([row.target for row in batch])
        ids, mask, tokens, targets, label, weight = device.beside(
            module,
            (*padded([row.ids for row in batch]), *_shifted(module.decoder, batch), labels, even),
        )
        logits, vectors = module(ids, mask)
        read = as_stored(vectors.float(), _STORED, scale=module.scale)
        states = module.decoder.teacher_forced(tokens, read)
        counted = (targets != PADDING).flatten().nonzero()[:, 0]
        told = tied_cross_entropy(
            states.flatten(0, 1).index_select(0, counted).bfloat16(),
            module.decoder.embedding.weight,
            targets.flatten().index_select(0, counted),
        )
        return {"class": F.cross_entropy(logits.float(), label, weight=weight), "text": told}

    return of


def _shifted(decoder: Decoder, batch: Sequence[Record]) -> tuple[Tensor, Tensor]:
    """Return what a decoder reads and what it is asked for. Shape: twice (B, T)."""
    about = decoder.config
    length = max(len(row.tokens) for row in batch) + 1
    tokens = torch.full((len(batch), length), about.eos)
    targets = torch.full((len(batch), length), PADDING)
    for number, row in enumerate(batch):
        count = len(row.tokens)
        tokens[number, 0] = about.bos
        tokens[number, 1 : count + 1] = torch.tensor(row.tokens)
        targets[number, :count] = torch.tensor(row.tokens)
        targets[number, count] = about.eos
    return tokens, targets


@dataclass(frozen=True)
class Told:
    """What a model says of texts, in their order.

    Attributes:
        logits: Shape: (N, C).
        recovered: Share of right first guesses of the text's tokens. Shape: (N,).
    """

    logits: Floats
    recovered: Floats


@torch.inference_mode()
def told(module: Decodable, rows: Sequence[Record]) -> Told:
    """Ask a model, with the vector rounded as an int8 collection keeps it."""
    logits: list[Floats] = [np.empty(0, np.float32)] * len(rows)
    recovered = np.zeros(len(rows), np.float32)
    for chosen in batches([len(row.ids) for row in rows], tokens=_TOKENS_PER_BATCH):
        batch = [rows[i] for i in chosen]
        found, vectors = module(*padded([row.ids for row in batch]))
        tokens, targets = _shifted(module.decoder, batch)
        states = module.decoder.teacher_forced(tokens, round_int8(vectors, module.scale))
        right = module.decoder.logits(states).argmax(-1) == targets
        for number, (row, i) in enumerate(zip(batch, chosen, strict=True)):
            logits[i] = found[number].numpy()
            recovered[i] = float(right[number, : len(row.tokens)].float().mean())
    return Told(np.stack(logits), recovered)


def trained(
    artifact: Path, train: Sequence[tuple[str, int]], asked: Sequence[tuple[str, int]],
    *, even: Tensor, epochs: int, most_tokens: int, name: str,
) -> Told:  # fmt: skip
    """Train on texts, and say what the model tells of others.

    Args:
        artifact: Encoder and decoder to start from.
        train: Texts with labels' numbers.
        asked: Likewise; their labels are not read.
        even: Weights of the classes. Shape: (C,).
        epochs: Over the training texts; the last one counts.
        most_tokens: Of the encoder.
        name: Of the run.
    """
    base, about = backbone.load(artifact), manifest.load(artifact)
    base.bert.encoder.requires_grad_(requires_grad=True)
    torch.manual_seed(0)
    codec, space = about.manifest.codec, about.manifest.space
    module = Decodable(
        SequenceClassifier(base.bert, classes=len(even)),
        weights.decoder(artifact, codec, vector_dim=space.dim),
        scale=space.int8_scale,
    )
    pieces, most = tuning.tokenizer(about), (most_tokens, codec.max_tokens - 1)
    shown, tested = (
        records(texts, words=base.tokenizer, pieces=pieces, most=most) for texts in (train, asked)
    )
    task = Task(name, module, shown, losses(module, even), len(even), epochs)
    steps.train(steps.one_task(task), rates=_RATES, seed=0, title=name)
    return told(module, tested)

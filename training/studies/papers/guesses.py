"""Greedy and beam search from vectors alone: is the model at fault, or the search? (Sequence-to-
Sequence Models: beam search, numerical stability, error analysis.)

Let y* be a text, y its guess and P the decoder's probability given the vector. If P(y*) > P(y), the
search missed what the model held likelier, and a wider beam may help; otherwise the model errs. P
is compared twice: as the whole probability, and as its mean per token, which is the length
normalisation of the lecture and of Wu et al. 2016. Of the finished guesses of a beam the one is
taken that the same measure puts first.

Texts and guesses are scored in one way, by their own tokens and the end token. Guesses of the
longest length have no end and are left out of the comparison.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from studies.papers.bleu import with_ends, words
from studies.papers.kept import Figures, Kept, Parts, table, with_interval
from studies.quality import pairsets, sets
from studies.quality.classification import Bench
from verso_core import manifest
from verso_core.manifest import Artifact
from verso_training.artifact.graphs import DecoderGraph
from verso_training.data import sources
from verso_training.data.sources import Split
from verso_worker.engine.decoder import Decoder
from verso_worker.engine.guessing import Guesser
from verso_worker.engine.sessions import Device, Load, Sessions, open_session
from verso_worker.engine.vocabulary import Vocabulary

STUDY = "guesses"
BEAMS = (1, 4, 8)
TEXTS = 40
_MOST_TOKENS = 96
"""Of a text, so that a guess has room to end."""
Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Scored:
    """A text, its tokens' number with the end token, and its log-probability in nats."""

    text: bytes
    tokens: int
    log_p: float

    def by(self, *, mean: bool) -> float:
        """Return what the search compares."""
        return self.log_p / self.tokens if mean else self.log_p


class Scorer:
    """Log-probabilities of texts given vectors."""

    def __init__(self, bench: Bench, artifact: Artifact) -> None:
        self._graph = DecoderGraph(bench.artifact, artifact.manifest.codec, threads=1)
        self._most = artifact.manifest.codec.max_tokens - 1

    def __call__(self, texts: Sequence[bytes], vectors: Floats) -> list[Scored | None]:
        """Score texts; None for one that fills a record or is empty. Shape of vectors: (N, D)."""
        records = [self._graph.tokens(text.decode("utf-8", "replace")) for text in texts]
        fits = [row for row, ids in enumerate(records) if 0 < len(ids) < self._most]
        found: list[Scored | None] = [None] * len(texts)
        for at, seen in self._graph.passes([records[row] for row in fits], vectors[fits]):
            logits = seen.logits.astype(np.float64)
            top = logits.max(-1)
            total = top + np.log(np.exp(logits - top[:, None]).sum(-1))
            log_p = logits[np.arange(len(seen.targets)), seen.targets] - total
            row = fits[at]
            found[row] = Scored(texts[row], len(seen.targets), float(log_p.sum()))
        return found


def run(bench: Bench) -> Parts:
    """Guess the texts of each set."""
    kept = Kept(bench.work / "papers" / STUDY)
    readers: dict[str, Callable[[], Sequence[str]]] = {
        "questions (CLINC150)": lambda: [one.text for one in sources.foreign(bench.data)],
        "sentences (STS-B)": lambda: [one.a for one in pairsets.stsb(bench.data, "dev")],
        "checks (rcheck)": partial(_held_out, bench, "logs_rcheck"),
        "paragraphs (SQuAD)": partial(_held_out, bench, "squad"),
    }
    found = {}
    for name, read in readers.items():
        part = name.partition(" ")[0]
        found[name] = kept.of(part, partial(_measured, bench, part, read))
    return found


def _held_out(bench: Bench, source: str) -> list[str]:
    documents = sources.documents(bench.data)
    return [
        one.text
        for one in documents
        if one.split is Split.VALIDATION and one.source == source and not one.atomic
    ]


def _measured(bench: Bench, name: str, read: Callable[[], Sequence[str]]) -> Figures:
    artifact = manifest.load(bench.artifact)
    texts = _short(bench, artifact, list(dict.fromkeys(read())))
    scale = artifact.manifest.space.int8_scale
    cache = bench.work / "vectors" / f"guesses-{name}"
    vectors = sets.stored_vectors(texts, artifact=bench.artifact, cache=cache, scale=scale)
    wanted = [text.encode() for text in texts]
    score = Scorer(bench, artifact)
    truth = score(wanted, vectors)
    guesser = _guesser(artifact)
    figures: dict[str, float] = {"texts": len(texts)}
    figures["tokens"] = float(np.mean([one.tokens for one in truth if one is not None]))
    for beam in BEAMS:
        found = guesser.guess(vectors, beam=beam, max_tokens=artifact.manifest.codec.max_tokens)
        flat = [one.text for own in found for one in own]
        rows = np.repeat(np.arange(len(found)), [len(own) for own in found])
        scored = score(flat, vectors[rows])
        for mean in (True, False):
            key = f"{beam}/{'mean' if mean else 'sum'}"
            figures |= {
                f"{key}/{what}": value
                for what, value in _compared(truth, scored, rows, flat, mean=mean).items()
            }
    return figures


def _compared(
    truth: Sequence[Scored | None],
    scored: Sequence[Scored | None],
    rows: NDArray[np.intp],
    flat: Sequence[bytes],
    *,
    mean: bool,
) -> Figures:
    """Take each text's best guess by one measure; say how good it is and whose fault errors are."""
    best: list[bytes] = []
    lengths, search, counted = [], 0, 0
    for number, own in enumerate(truth):
        mine = np.flatnonzero(rows == number).tolist()
        ended = [one for at in mine if (one := scored[at]) is not None]
        first = max(ended, key=lambda one: one.by(mean=mean), default=None)
        best.append(flat[mine[0]] if first is None else first.text)
        if own is None or first is None:
            continue
        lengths.append(first.tokens)
        if first.text != own.text:
            counted += 1
            search += own.by(mean=mean) > first.by(mean=mean)
    guessed = [words(text) for text in best]
    wanted = [words(one.text) for one in truth if one is not None]
    return {
        **with_ends(guessed, wanted),
        "tokens": float(np.mean(lengths)) if lengths else math.nan,
        "wrong": float(counted),
        "search": 100 * search / max(1, counted),
    }


def _short(bench: Bench, artifact: Artifact, texts: Sequence[str]) -> list[str]:
    graph = DecoderGraph(bench.artifact, artifact.manifest.codec, threads=1)
    most = min(_MOST_TOKENS, artifact.manifest.codec.max_tokens // 2 + 32)
    found = [text for text in texts if 0 < len(graph.tokens(text)) < most]
    return found[:: max(1, len(found) // TEXTS)][:TEXTS]


def _guesser(artifact: Artifact) -> Guesser:
    codec = artifact.manifest.codec
    graphs = [
        open_session(
            artifact.data[name],
            name,
            threads=1,
            device=Device.CPU,
            optimisation=codec.profile.optimisation,
        )
        for name in ("memory.onnx", "decoder.onnx")
    ]
    decoder = Decoder(
        graphs[0], Sessions(graphs[1], None, load=Load()), codec, dim=artifact.manifest.space.dim
    )
    tokenizer = artifact.data["decoder_tokenizer.json"]
    return Guesser(decoder, Vocabulary(tokenizer, size=codec.vocab, max_tokens=codec.max_tokens))


def page(found: Parts) -> str:
    """Return the table."""
    columns = ["set, beam", "chosen by", "BLEU", "right words, %", "tokens, guess / text"]
    columns += ["the search errs, % of the wrong"]
    rows = []
    for name, figures in found.items():
        for beam in BEAMS:
            for by in ("mean", "sum"):
                key = f"{beam}/{by}"
                cells = [by, *(with_interval(figures, f"{key}/{of}") for of in ("bleu", "right"))]
                cells += [f"{figures[f'{key}/tokens']:.0f} / {figures['tokens']:.0f}"]
                cells += [f"{figures[f'{key}/search']:.0f}"]
                rows.append([f"{name}, {beam}", *cells])
    return table(columns, rows)

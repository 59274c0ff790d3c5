"""Train an artifact's decoder further on one collection's texts.

The weights are read from the artifact's graphs (`weights`) and trained like the decoder, at a tenth
of the rate. Vocabulary, sizes and the encoder do not change: stored vectors stay valid.

1. Chunks are cut into segments that fit the decoder's window, and encoded by the artifact's own
   encoder; the segments of a chunk share its vector, as in its record.
2. The decoder is trained on all but the held-out chunks. A stopped run continues from its
   last checkpoint if texts, artifact and time are the same.
3. The new weights replace the old ones in the graphs, which are checked against the module.
4. The rank probabilities are fitted to the held-out chunks: a decoder is more confident on a
   collection that it was trained on. Each chunk is reported with probabilities fitted to the other
   half of the chunks.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer

from verso_codecs.ranks import RankTables
from verso_core.errors import RequestInvalid
from verso_core.manifest import Artifact, Manifest
from verso_training import device
from verso_training.artifact import neural, weights
from verso_training.artifact.graphs import DecoderGraph, EncoderGraph
from verso_training.artifact.neural import NeuralCodec, Segments, Sizes
from verso_training.config import Budget, ModelConfig, Recipe, TokenizerConfig, TrainConfig
from verso_training.data import dataset
from verso_training.data.sources import Chunk, Split
from verso_training.decoder import train
from verso_training.decoder.train import Run, Start

MEASURED = 400
"""Most held-out chunks that the decoder is measured on, evenly spaced."""

_RATE = 0.1
"""Share of the learning rates of a training from random weights."""

_AT_THE_END = 1e9
_TOKENIZER = "decoder_tokenizer.json"


@dataclass(frozen=True)
class Tuned:
    """A trained decoder, exported.

    Attributes:
        folder: Holds memory.onnx, decoder.onnx and ranks.npz.
        measured: Numbers of the held-out chunks that were measured.
        before: Payload bytes of each with the artifact's decoder; the raw size if that is
            smaller or the chunk cannot be decoded.
        after: The same with the trained one.
        steps: Of the training.
        noise: Greatest difference of a logit between writing and reading, nats.
    """

    folder: Path
    measured: list[int]
    before: Sizes
    after: Sizes
    steps: int
    noise: float


def tune(
    artifact: Artifact,
    known: Sequence[bytes],
    held_out: Sequence[bytes],
    *,
    budget: Budget,
    work: Path,
) -> Tuned:
    """Train an artifact's decoder on ``known`` and export it below ``work``.

    Args:
        artifact: Loaded from its folder.
        known: Chunks to train on.
        held_out: Chunks to fit the rank probabilities to and to measure on.
        budget: Of training, without the encoding before and the measuring after it.
        work: Keeps the checkpoints; remove it after the result is read.

    Raises:
        ArtifactInvalid: the graphs were not written by training, or the trained ones differ from
            their module, or between writing and reading beyond the margin.
    """
    about, folder = artifact.manifest, artifact.folder
    measured = list(range(0, len(held_out), max(1, -(-len(held_out) // MEASURED))))
    chosen = [held_out[at] for at in measured]
    run = trained(artifact, known, chosen, budget=budget, work=work)
    out = work / "graphs"
    out.mkdir(exist_ok=True)
    weights.put(run.decoder, about.codec, graphs=folder, folder=out)
    shutil.copyfile(folder / _TOKENIZER, out / _TOKENIZER)
    old, new = (
        NeuralCodec(about.codec, DecoderGraph(one, about.codec, threads=budget.threads))
        for one in (folder, out)
    )
    last = _cut(artifact, chosen, threads=budget.threads)
    scale = about.space.int8_scale
    last = replace(last, vectors=train.round_int8(torch.from_numpy(last.vectors), scale).numpy())
    noise = new.noise(last)
    own = RankTables.load(folder / "ranks.npz")
    tables, after = _fitted(new, last, own=own)
    tables.save(out / "ranks.npz")
    before = old.sizes(last, old.events(last), [own] * len(last.sizes))
    return Tuned(out, measured, before, after, run.progress.step, noise)


def trained(
    artifact: Artifact,
    known: Sequence[bytes],
    validation: Sequence[bytes],
    *,
    budget: Budget,
    work: Path,
) -> Run:
    """Read the decoder's weights and train them; continue from a checkpoint of the same inputs."""
    about = artifact.manifest
    decoder = weights.decoder(artifact.folder, about.codec, vector_dim=about.space.dim)
    begin(work, f"{artifact.id} {budget.minutes}", [*known, *validation])
    data = work / "data"
    if not (data / "done").exists():
        data.mkdir(exist_ok=True)
        own = tokenizer(artifact)
        for split, texts in ((Split.TRAIN, known), (Split.VALIDATION, validation)):
            part = _cut(artifact, texts, threads=budget.threads)
            if not part.texts:
                raise RequestInvalid("expected texts in UTF-8: the decoder reads no others")
            rows = [Chunk(text, "own", "own") for text in part.texts]
            tokens = [neural.ids(own, text) for text in part.texts]
            vectors = part.vectors.astype(np.float16)
            dataset.write(data, split, rows, tokens=tokens, vectors=vectors)
        (data / "done").touch()
    run = Run(
        _recipe(decoder.config, budget),
        data=data,
        folder=work / "run",
        resume=(work / "run" / "state.pt").exists(),
        start=Start(decoder, about.space.int8_scale),
        clock=budget.clock,
    )
    run.train()
    return run


def golden(
    folder: Path, about: Manifest, texts: Sequence[bytes], vectors: Sequence[bytes]
) -> list[bytes | None]:
    """Neural payloads of an artifact's golden samples, each decoded as a check; None for too many
    tokens.

    Args:
        folder: Holds the trained decoder.
        about: Manifest of the artifact that the samples are of.
        texts: UTF-8.
        vectors: Of the samples, float16, little endian.

    Raises:
        ArtifactInvalid: a payload does not decode to its text.
    """
    codec = NeuralCodec(about.codec, DecoderGraph(folder, about.codec, threads=1))
    stored = np.stack([np.frombuffer(vector, "<f2") for vector in vectors]).astype(np.float32)
    tables = RankTables.load(folder / "ranks.npz")
    return codec.payloads([text.decode() for text in texts], stored, tables)


def _fitted(codec: NeuralCodec, segments: Segments, *, own: RankTables) -> tuple[RankTables, Sizes]:
    """Fit rank probabilities for the trained decoder; return them and the chunks' sizes.

    Those of one half of the chunks are evaluated on the other. If the artifact's own
    probabilities are better, because there are few chunks, they are kept.
    """
    events = codec.events(segments)
    halves = [
        codec.fit([event for event, owner in zip(events, segments.owners, strict=True)
                   if owner % 2 != half])
        for half in (0, 1)
    ]  # fmt: skip
    count = len(segments.sizes)
    kept = codec.sizes(segments, events, [own] * count)
    found = codec.sizes(segments, events, [halves[at % 2] for at in range(count)])
    return (codec.fit(events), found) if sum(found) < sum(kept) else (own, kept)


def _cut(artifact: Artifact, texts: Sequence[bytes], *, threads: int) -> Segments:
    return neural.cut(
        texts,
        tokenizer(artifact),
        EncoderGraph(artifact.folder, threads=threads),
        window=artifact.manifest.codec.max_tokens,
    )


def tokenizer(artifact: Artifact) -> Tokenizer:
    """Load the tokenizer of an artifact's decoder."""
    return Tokenizer.from_file(str(artifact.folder / _TOKENIZER))


def begin(work: Path, what: str, texts: Sequence[bytes]) -> None:
    """Keep ``work`` if it belongs to the same inputs, else empty it."""
    digest = hashlib.sha256(what.encode())
    for text in texts:
        digest.update(hashlib.sha256(text).digest())
    mark = work / "of"
    if not mark.exists() or mark.read_text(encoding="utf-8") != digest.hexdigest():
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        mark.write_text(digest.hexdigest(), encoding="utf-8")


def short_run(budget: Budget, *, matrix_rate: float, embedding_rate: float) -> TrainConfig:
    """Return the settings of minutes of training that begin with trained weights.

    Args:
        budget: minutes and threads.
        matrix_rate: share of the usual rate of matrices.
        embedding_rate: share of the usual rate of embeddings.
    """
    return TrainConfig(
        minutes=budget.minutes,
        device=device.fastest().type,
        threads=budget.threads,
        tokens_per_step=2048,
        matrix_rate=matrix_rate * TrainConfig.matrix_rate,
        embedding_rate=embedding_rate * TrainConfig.embedding_rate,
        warmup_steps=10,
        decay_fraction=0.7,
        evaluate_minutes=_AT_THE_END,
        checkpoint_minutes=0.5,
    )


def _recipe(model: ModelConfig, budget: Budget) -> Recipe:
    config = short_run(budget, matrix_rate=_RATE, embedding_rate=_RATE)
    vocabulary = TokenizerConfig(vocab=model.vocab)
    return Recipe("decoder", tokenizer=vocabulary, model=model, train=config)

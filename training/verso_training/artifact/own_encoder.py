"""Make an artifact of another sentence encoder, with a decoder that is trained for minutes.

1. Texts are cut into chunks, the last part held out, and encoded by the encoder.
2. A decoder with the weights of an existing artifact's, but for those that read a vector, is
   trained on them: it knows the texts' language already, and learns the new space.
3. The artifact is published with the existing one's tokenizer and tables, and rank probabilities,
   figures and golden samples of the held-out texts.

Nothing else of the platform knows which encoder it is: its space has an id of its own.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from verso_core import manifest
from verso_core.errors import RequestInvalid
from verso_core.manifest import Artifact
from verso_training import encoder
from verso_training.artifact import collection, neural, tuning, weights
from verso_training.artifact.publish import Trained, publish
from verso_training.config import (
    Budget,
    ModelConfig,
    PublishConfig,
    Recipe,
    TokenizerConfig,
)
from verso_training.data import dataset
from verso_training.data.sources import Chunk, Document, Split
from verso_training.decoder import train
from verso_training.decoder.model import Decoder
from verso_training.decoder.train import Run, Start
from verso_training.encoder import SentenceEncoder
from verso_training.onnx_encoder import OnnxEncoder

FEWEST_CHUNKS = 400
_HELD_OUT = 160
"""Fewest chunks for rank probabilities and figures, and for golden samples, half of them each."""

_GOLDEN = 64
_VECTOR = "vector_memory."
_FAMILY = "own"


@dataclass(frozen=True)
class Made:
    """What came out.

    chunks: that the decoder was trained on
    held_out: other chunks
    steps: of the training
    dim: of the vectors
    """

    chunks: int
    held_out: int
    steps: int
    dim: int


def make(
    base: Path,
    own: Path,
    texts: Sequence[bytes],
    *,
    folder: Path,
    budget: Budget,
    prompt: str = "",
) -> Made:
    """Write an artifact of a user's own sentence encoder.

    Args:
        base: An artifact whose tokenizer, tables and decoder are the start.
        own: Folder of the encoder; see :mod:`verso_training.encoder`.
        texts: To train the decoder on; those that are not UTF-8 are left out.
        folder: Of the new artifact; must not exist. Checkpoints are kept beside it until it is
            written, and the same call continues from them.
        budget: Of the decoder's training.
        prompt: Put before every text that the encoder reads.

    Raises:
        RequestInvalid: the folder exists, or the texts are too few.
        ArtifactInvalid: the base is damaged, or the encoder cannot be served.
    """
    if folder.exists():
        raise RequestInvalid(f"expected a new folder, but {folder} exists")
    chunks = [chunk.decode() for text in texts for chunk in _cut(text)]
    if len(chunks) < FEWEST_CHUNKS:
        raise RequestInvalid(f"expected at least {FEWEST_CHUNKS} chunks of text, got {len(chunks)}")
    held = max(_HELD_OUT, int(collection.HELD_OUT * len(chunks)))
    artifact = manifest.load(base)
    sentence_encoder, words = encoder.load_own(own, prompt=prompt)
    model = _sizes(artifact, dim=sentence_encoder.dim)
    recipe = _recipe(model, budget)
    work = folder.with_name(f".{folder.name}.training")
    what = f"{artifact.id} {own.resolve()} {prompt} {budget.minutes}"
    tuning.begin(work, what, [chunk.encode() for chunk in chunks])
    data = work / "data"
    if not (data / "done").exists():
        data.mkdir(exist_ok=True)
        parts = {Split.TRAIN: chunks[:-held], Split.VALIDATION: chunks[-held:]}
        for split, part in parts.items():
            _prepare(artifact, part, split, data=data, by=(sentence_encoder, words), model=model)
        (data / "done").touch()
    run = Run(
        recipe,
        data=data,
        folder=work / "run",
        resume=(work / "run" / "state.pt").exists(),
        start=_start(artifact, model, data),
        clock=budget.clock,
    )
    run.train()
    trained = Trained(
        recipe=recipe,
        decoder=run.decoder.eval(),
        decoder_tokenizer=tuning.tokenizer(artifact),
        encoder=sentence_encoder,
        encoder_tokenizer=words,
        int8_scale=run.int8_scale,
        command=f"verso train encoder {own.name}",
        run=f"The decoder of {artifact.manifest.name} was trained on for {budget.minutes:g} "
        f"minutes, {run.progress.step:,} steps, on {len(chunks) - held:,} chunks.",
        encoder_about=f"{own.name}" + (f", every text after {prompt!r}" if prompt else ""),
        data_about="The texts that were given, of which some are golden samples, word for word.",
    )
    draft = work / folder.name
    shutil.rmtree(draft, ignore_errors=True)
    publish(trained, _held_out(chunks[-held:]), tables=base, folder=draft, name=folder.name)
    draft.rename(folder)
    shutil.rmtree(work)
    return Made(len(chunks) - held, held, run.progress.step, sentence_encoder.dim)


def _cut(text: bytes) -> Iterator[bytes]:
    for chunk in collection.cut(text):
        try:
            chunk.decode()
        except UnicodeDecodeError:
            continue
        if chunk.strip():
            yield chunk


def _held_out(chunks: Sequence[str]) -> list[Document]:
    return [
        Document(_FAMILY, _FAMILY, f"{number}", chunk, Split.VALIDATION, atomic=True)
        for number, chunk in enumerate(chunks)
    ]


def _sizes(artifact: Artifact, *, dim: int) -> ModelConfig:
    about = artifact.manifest
    known = weights.decoder(artifact.folder, about.codec, vector_dim=about.space.dim)
    return replace(known.config, vector_dim=dim)


def _recipe(model: ModelConfig, budget: Budget) -> Recipe:
    # a quarter: most weights have been trained
    config = tuning.short_run(budget, matrix_rate=0.25, embedding_rate=1.0)
    return Recipe(
        "encoder",
        tokenizer=TokenizerConfig(vocab=model.vocab),
        model=model,
        train=config,
        publish=PublishConfig(golden=_GOLDEN),
    )


def _start(artifact: Artifact, model: ModelConfig, data: Path) -> Start:
    """Return a decoder that reads the new space, with the artifact's weights for the rest."""
    about = artifact.manifest
    known = weights.decoder(artifact.folder, about.codec, vector_dim=about.space.dim)
    made = Decoder(model)
    kept = {n: one for n, one in known.state_dict().items() if not n.startswith(_VECTOR)}
    made.load_state_dict(kept, strict=False)
    vectors = dataset.load(data, Split.TRAIN).vectors
    return Start(made, train.int8_scale(vectors))


def _prepare(
    artifact: Artifact,
    chunks: Sequence[str],
    split: Split,
    *,
    data: Path,
    by: tuple[SentenceEncoder | OnnxEncoder, Tokenizer],
    model: ModelConfig,
) -> None:
    """Write chunks, cut into segments of the decoder's window, with the vectors of the chunks."""
    tokenizer = tuning.tokenizer(artifact)
    vectors = encoder.encode(*by, texts=chunks)
    rows: list[Chunk] = []
    owners: list[int] = []
    for number, chunk in enumerate(chunks):
        parts = list(neural.halved(chunk, tokenizer, window=model.max_tokens))
        rows += [Chunk(part, _FAMILY, _FAMILY) for part in parts]
        owners += [number] * len(parts)
    tokens = [neural.ids(tokenizer, row.text) for row in rows]
    dataset.write(data, split, rows, tokens=tokens, vectors=vectors[np.array(owners)])

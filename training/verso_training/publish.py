"""Turn a trained decoder into an artifact folder that a worker can load and trust.

Steps:

0. ``write_text_tables``, at any time: n-gram counts and the zstd dictionary from training texts.
   They do not depend on the decoder, so they can be fitted while it trains;
1. export the three graphs, copy the two tokenizers;
2. fit the rank probabilities on held-out texts seen through the *exported* decoder;
3. report figures on other held-out texts, from real patch bytes;
4. write golden samples: text, stored vector, one payload per codec. Each is read back first;
5. write the model card and, last, the manifest with the hash of every file.
"""

from __future__ import annotations

import base64
import json
import random
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray
from tokenizers import Tokenizer

from verso_codecs import ngram, ranks, zstd
from verso_codecs.ngram import NgramTables
from verso_codecs.ranks import RankTables
from verso_core import manifest
from verso_core.errors import ArtifactInvalid
from verso_core.manifest import Codec, Manifest, Profile, Space, Tolerance
from verso_training import card, chunks, evaluate, export, held_out
from verso_training.config import PublishConfig, Recipe
from verso_training.dataset import budgets_of
from verso_training.encoder import MAX_TOKENS, SentenceEncoder
from verso_training.graphs import DecoderGraph, EncoderGraph
from verso_training.model import Decoder
from verso_training.sources import Chunk, Document, Split

_VECTOR_COSINE = 0.9999
_NOISE_TEXTS = 64
"""Texts on which the float noise between writing and reading is measured for the card."""


@dataclass(frozen=True)
class Trained:
    """What publication starts from."""

    recipe: Recipe
    decoder: Decoder
    decoder_tokenizer: Tokenizer
    encoder: SentenceEncoder
    encoder_tokenizer: Tokenizer
    int8_scale: float
    command: str
    run: str
    """How the run went, in a sentence or two for the card."""
    synthetic: bool = False
    """Whether the texts were made up, as for the artifact of the tests."""


def publish(
    trained: Trained,
    documents: Iterable[Document],
    *,
    tables: Path,
    folder: Path,
    name: str,
    foreign: Sequence[Chunk] = (),
) -> None:
    """Write a complete artifact into ``folder``.

    Args:
        trained: Decoder, encoder, tokenizers.
        documents: As for training; those held out give rank tables, figures, golden samples.
        tables: What ``write_text_tables`` wrote.
        folder: Where the artifact goes; files of the same names are replaced.
        name: The artifact's name in the manifest.
        foreign: Texts of sets that were not trained on, for the figures only.

    Raises:
        ArtifactInvalid: a graph differs from its module, or a golden sample does not read back.
    """
    folder.mkdir(parents=True, exist_ok=True)
    pool = list(documents)
    config = trained.recipe.publish
    texts = held_out.draw(pool, fit_chunks=config.fit_chunks, report_chunks=config.report_chunks)
    write_graphs(trained, folder)
    for table in ("ngram.npz", "zstd.dict"):
        shutil.copyfile(tables / table, folder / table)
    fitted = rank_tables(texts.fitting, folder=folder, recipe=trained.recipe)
    fitted.save(folder / "ranks.npz")
    suite = evaluate.Suite.load(folder, trained.recipe)
    report = suite.measure(texts.reporting)
    if foreign:
        report |= {s: tally for s, tally in suite.measure(foreign).items() if s != "all"}
    write_golden(suite, texts.reporting, folder=folder, count=config.golden)
    facts = card.Facts(
        name=name,
        command=trained.command,
        recipe=trained.recipe,
        decoder=trained.decoder,
        report=report,
        noise=suite.noise(texts.reporting[:: max(1, len(texts.reporting) // _NOISE_TEXTS)]),
        run=trained.run,
        synthetic=trained.synthetic,
    )
    (folder / "MODEL_CARD.md").write_text(card.render(facts), encoding="utf-8")
    write_manifest(trained, folder, name=name)


def write_graphs(trained: Trained, folder: Path) -> None:
    """encoder.onnx, memory.onnx, decoder.onnx and the tokenizers."""
    config = trained.recipe.publish
    export.export_encoder(trained.encoder, folder / "encoder.onnx", storage=config.encoder_storage)
    export.export_memory(trained.decoder, folder / "memory.onnx", storage=config.decoder_storage)
    export.export_decoder(trained.decoder, folder / "decoder.onnx", storage=config.decoder_storage)
    trained.encoder_tokenizer.save(str(folder / "encoder_tokenizer.json"), pretty=False)
    trained.decoder_tokenizer.save(str(folder / "decoder_tokenizer.json"), pretty=False)


def write_text_tables(documents: Iterable[Document], *, folder: Path, recipe: Recipe) -> None:
    """ngram.npz and zstd.dict, counted over training texts, mixed on held-out ones."""
    folder.mkdir(parents=True, exist_ok=True)
    config, pool = recipe.publish, list(documents)
    counted = table_texts([d for d in pool if d.split is Split.TRAIN], recipe)
    fitting = held_out.draw(pool, fit_chunks=config.mixing_chunks, report_chunks=0).fitting
    held = [chunk.text.encode("utf-8") for chunk in fitting]
    ngram_tables(counted, held, config).save(folder / "ngram.npz")
    (folder / "zstd.dict").write_bytes(zstd.train(counted, config.dictionary_bytes))


def rank_tables(fitting: Sequence[Chunk], *, folder: Path, recipe: Recipe) -> RankTables:
    """Rank probabilities as the exported decoder gives them on texts it was not trained on."""
    graph = DecoderGraph(folder, recipe.model)
    kept = [c for c in fitting if len(graph.tokens(c.text)) < recipe.model.max_tokens]
    vectors = stored(EncoderGraph(folder).encode([c.text for c in kept]))
    config = recipe.publish
    passes = graph.passes([graph.tokens(c.text) for c in kept], vectors.astype(np.float32))
    events = [
        ranks.events(p.logits, p.confidence, targets=p.targets, epsilon=config.epsilon)
        for _, p in passes
    ]
    return RankTables.fit(
        events, vocab=recipe.model.vocab, confidence_epsilon=config.confidence_epsilon
    )


def table_texts(pool: Sequence[Document], recipe: Recipe) -> list[bytes]:
    """Training texts for counting: as many as asked for, cut as records are cut."""
    budgets = budgets_of(pool, recipe.data, total_bytes=recipe.publish.table_bytes)
    drawn = chunks.draw(pool, budgets=budgets, rng=random.Random(recipe.data.seed))
    return [chunk.text.encode("utf-8") for chunk in drawn]


def ngram_tables(
    counted: Sequence[bytes], held: Sequence[bytes], config: PublishConfig
) -> NgramTables:
    """The n-gram tables; a smaller ``ngram_width`` bounds all of them."""
    widths = [min(width, config.ngram_width) for width in ngram.DEFAULT_WIDTHS]
    return NgramTables.fit(
        counted, heldout=held, widths=widths, counting_width=config.counting_width
    )


def stored(vectors: NDArray[np.float32]) -> NDArray[np.float16]:
    """Vectors as the float16 space stores them. Shape: (rows, D)."""
    return vectors.astype(np.float16)


def write_golden(
    suite: evaluate.Suite, texts: Sequence[Chunk], *, folder: Path, count: int
) -> None:
    """golden.jsonl: ``count`` samples spread over the sources, every payload read back.

    Raises:
        ArtifactInvalid: a payload does not give its text back.
    """
    by_source: dict[str, list[Chunk]] = {}
    for chunk in texts:
        by_source.setdefault(chunk.source, []).append(chunk)
    picked: list[str] = []
    share = -(-count // max(len(by_source), 1))
    for source in sorted(by_source):
        picked += [chunk.text for chunk in by_source[source][:share]]
    picked = [*_CORNERS, *picked][: count + len(_CORNERS)]
    with (folder / "golden.jsonl").open("w", encoding="utf-8") as stream:
        for sample in suite.encode(picked):
            if (broken := suite.unread(sample)) is not None:
                raise ArtifactInvalid(f"golden sample {sample.text!r}: {broken} differs")
            row = {
                "text_base64": _ascii(sample.text.encode("utf-8")),
                "vector_base64": _ascii(sample.vector.astype("<f2").tobytes()),
                "patches": {name: _ascii(data) for name, data in sample.patches.items()},
                "tokens": sample.tokens,
            }
            stream.write(json.dumps(row) + "\n")


_CORNERS = (
    "a",
    "Ünïcödé, ελληνικά, 漢字 and 🙂 in one line",
    "  leading and trailing white space \t\r\n\n",
    "0x7ffe0f3a9c20 2026-01-31T23:59:59.999Z 10.0.0.255:65535",
    "mixed \x00 control \x1b[31m bytes \x7f",
)
"""Texts unlike the training data; every codec must hold for them as well."""


def write_manifest(trained: Trained, folder: Path, *, name: str) -> Manifest:
    """manifest.json over every other file of the folder."""
    recipe = trained.recipe
    listed = (*manifest.SPACE_FILES, *manifest.CODEC_FILES, *manifest.OTHER_FILES)
    files = {file: manifest.describe(folder / file) for file in listed}
    space = Space(
        id="",
        dim=recipe.model.vector_dim,
        max_encoder_tokens=MAX_TOKENS,
        pooling="mean",
        int8_scale=trained.int8_scale,
    )
    codec = Codec(
        id="",
        vocab=recipe.model.vocab,
        bos=recipe.model.bos,
        eos=recipe.model.eos,
        layers=recipe.model.layers,
        kv_heads=recipe.model.kv_heads,
        head_dim=recipe.model.head_dim,
        width=recipe.model.width,
        slots=recipe.model.slots,
        max_tokens=recipe.model.max_tokens,
        epsilon=recipe.publish.epsilon,
        confidence_epsilon=recipe.publish.confidence_epsilon,
        profile=Profile(onnxruntime=ort.__version__, optimisation="basic"),
    )
    document = Manifest(
        format=manifest.FORMAT,
        name=name,
        created=datetime.now(UTC).replace(microsecond=0),
        space=space.model_copy(update={"id": manifest.space_id(space, files)}),
        codec=codec.model_copy(update={"id": manifest.codec_id(codec, files)}),
        tolerance=Tolerance(vector_cosine=_VECTOR_COSINE),
        files=files,
    )
    manifest.write(document, folder)
    manifest.load(folder)
    return document


def _ascii(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")

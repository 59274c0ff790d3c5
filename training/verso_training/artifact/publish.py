"""Turn a trained decoder into an artifact folder that a worker can load.

Steps:

0. ``write_text_tables``, at any time: n-gram counts and the zstd dictionary from training texts.
   They do not depend on the decoder, so they can be fitted while it trains;
1. export the three graphs, copy the two tokenizers;
2. fit the rank probabilities on held-out texts with the *exported* decoder;
3. report figures on other held-out texts, from real patch bytes;
4. write golden samples: text, stored vector, one payload per codec. Each is decoded first;
5. write the model card and, last, the manifest with the hash of every file.

The model card states the data of an artifact, the machine, and its figures.
"""

from __future__ import annotations

import base64
import json
import os
import platform
import random
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import onnxruntime as ort
import torch
from tokenizers import Tokenizer

from verso_codecs import ngram, ranks, zstd
from verso_codecs.ngram import NgramTables
from verso_codecs.ranks import RankTables
from verso_core import manifest
from verso_core.errors import ArtifactInvalid
from verso_core.manifest import Codec, Manifest, Profile, Space, Tolerance
from verso_training.artifact import evaluate, export
from verso_training.artifact.evaluate import Tally
from verso_training.artifact.graphs import DecoderGraph, EncoderGraph
from verso_training.config import Conditioning, ModelConfig, Recipe
from verso_training.data import chunks
from verso_training.data.dataset import budgets_of
from verso_training.data.sources import Chunk, Document, Split
from verso_training.decoder.model import Decoder
from verso_training.encoder import MAX_TOKENS, SentenceEncoder
from verso_training.onnx_encoder import OnnxEncoder

_DATA = """\
| family | source | licence |
|---|---|---|
| techdocs | documentation of open-source projects | permissive; the Celery pages CC BY-SA 4.0 |
| books | mlschmitt/classic-books-markdown | public domain in the USA |
| factbook | CIA World Factbook 1995 | public domain |
| logs_rcheck, logs_rinstall | reverse-dependency checks of tidyverse and r-lib packages | MIT |
| logs_defects4j | rjust/defects4j failing tests | MIT |
| logs_syzkaller | google/syzkaller crash reports | Apache-2.0 |
| logs_ci_logdx | eyuansu62/LogDx, "dev" part (Bowen Qin, 2026) | CC BY 4.0 |
| squad | SQuAD contexts and questions, training articles only | CC BY-SA 4.0 |"""

_SYNTHETIC = "Synthetic log lines and sentences written by `tiny_artifact`."


@dataclass(frozen=True)
class Trained:
    """The inputs of a publication."""

    recipe: Recipe
    decoder: Decoder
    decoder_tokenizer: Tokenizer
    encoder: SentenceEncoder | OnnxEncoder
    encoder_tokenizer: Tokenizer
    int8_scale: float
    command: str
    run: str
    """How the run went, in a sentence or two for the card."""
    encoder_about: str = "all-MiniLM-L6-v2 (Apache-2.0), not trained further"
    """Which encoder it is, for the card."""
    data_about: str = _DATA
    """What was trained on, for the card."""
    synthetic: bool = False
    """Whether the texts are synthetic, as for the artifact of the tests."""


def card(
    trained: Trained, report: Mapping[str, Tally], *, name: str, noise: tuple[float, float]
) -> str:
    """Return the model card as Markdown.

    Args:
        trained: The inputs of the publication.
        report: Figures by source.
        name: Of the artifact.
        noise: Greatest difference of a logit and of a confidence between writing and reading, nats.
    """
    recipe = trained.recipe
    model = recipe.model
    parameters = sum(p.numel() for p in trained.decoder.parameters())
    encoder = "random weights" if trained.synthetic else trained.encoder_about
    return f"""# {name}

Artifact of Verso: a frozen sentence encoder and a decoder that restores a text from its stored
vector and a small patch, byte for byte.

- Encoder: {encoder}; {trained.encoder.pooling} pooling, L2 norm,
  weights stored as {recipe.publish.encoder_storage}.
- Decoder: {parameters / 1e6:.2f} M parameters, {model.layers} layers, width {model.width},
  {model.heads} query and {model.kv_heads} key/value heads of {model.head_dim},
  {_conditioning(model)}, vocabulary {model.vocab},
  records of at most {model.max_tokens} tokens,
  weights stored as {recipe.publish.decoder_storage}.
- Written {datetime.now(UTC):%Y-%m-%d} with torch {torch.__version__}, ONNX Runtime
  {ort.__version__}, Python {platform.python_version()} on {platform.machine()} {platform.system()},
  {os.cpu_count()} CPU cores.
- Command: `{trained.command}`
- {trained.run}

## Figures

Held-out texts, real patch bytes without record headers, bits per byte of text. "top-1" is the
share of tokens that the decoder guesses first; "escapes" the share written literally because a
float decision was too close or the rank too high. "neural, no vector" is the same decoder with a
zero vector but the same rank tables. "all" is the sources that were also trained on (other
documents of them); sets that were not are listed for themselves.

{evaluate.table(report)}

```json
{evaluate.json_line(report)}
```

Float noise between the pass that writes a record and the steps that read it, on this machine: at
most {noise[0]:.1e} nats in a logit and {noise[1]:.1e} in the confidence. A token
whose decision lies within {recipe.publish.epsilon} (logit) or
{recipe.publish.confidence_epsilon} (confidence) is written literally, whatever the machine.

## Data

{_SYNTHETIC if trained.synthetic else trained.data_about}

Only training parts were trained on. Rank tables and n-gram mixing were fitted on held-out
documents that the figures do not use.

## Limits

The decoder writes English prose, technical documentation and developer logs well. Other languages
and dense random data (hashes, base64) cost up to the raw size. A text guessed from a vector alone,
without its patch, is a guess: it keeps the topic and invents the details.
"""


_VECTOR_COSINE = 0.9999
_NOISE_TEXTS = 64
"""Texts on which the float noise between writing and reading is measured for the card."""


def _conditioning(model: ModelConfig) -> str:
    if model.conditioning is Conditioning.CROSS:
        return "cross-attention to the vector"
    return f"{model.slots} memory slots"


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
        documents: As for training; the held-out ones yield rank tables, figures and golden samples.
        tables: What ``write_text_tables`` wrote.
        folder: Of the artifact; files of the same names are replaced.
        name: The artifact's name in the manifest.
        foreign: Texts of sets that were not trained on, for the figures only.

    Raises:
        ArtifactInvalid: a graph differs from its module, or a golden sample does not decode to its
        text.
    """
    folder.mkdir(parents=True, exist_ok=True)
    pool = list(documents)
    config = trained.recipe.publish
    texts = chunks.draw_held_out(
        pool, fit_chunks=config.fit_chunks, report_chunks=config.report_chunks
    )
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
    noise = suite.noise(texts.reporting[:: max(1, len(texts.reporting) // _NOISE_TEXTS)])
    written = card(trained, report, name=name, noise=noise)
    (folder / "MODEL_CARD.md").write_text(written, encoding="utf-8")
    write_manifest(trained, folder, name=name)


def write_graphs(trained: Trained, folder: Path) -> None:
    """Write encoder.onnx, memory.onnx, decoder.onnx and the tokenizers."""
    config = trained.recipe.publish
    export.export_encoder(trained.encoder, folder / "encoder.onnx", storage=config.encoder_storage)
    export.export_memory(trained.decoder, folder / "memory.onnx", storage=config.decoder_storage)
    export.export_decoder(trained.decoder, folder / "decoder.onnx", storage=config.decoder_storage)
    trained.encoder_tokenizer.save(str(folder / "encoder_tokenizer.json"), pretty=False)
    trained.decoder_tokenizer.save(str(folder / "decoder_tokenizer.json"), pretty=False)


def write_text_tables(documents: Iterable[Document], *, folder: Path, recipe: Recipe) -> None:
    """Write ngram.npz and zstd.dict, counted over training texts, mixed on held-out ones."""
    folder.mkdir(parents=True, exist_ok=True)
    config, pool = recipe.publish, list(documents)
    counted = table_texts([d for d in pool if d.split is Split.TRAIN], recipe)
    fitting = chunks.draw_held_out(pool, fit_chunks=config.mixing_chunks, report_chunks=0).fitting
    held = [chunk.text.encode("utf-8") for chunk in fitting]
    # A smaller width than the recipe's default bounds the contexts of every length.
    widths = [min(width, config.ngram_width) for width in ngram.DEFAULT_WIDTHS]
    tables = NgramTables.fit(
        counted, heldout=held, widths=widths, counting_width=config.counting_width
    )
    tables.save(folder / "ngram.npz")
    (folder / "zstd.dict").write_bytes(zstd.train(counted, config.dictionary_bytes))


def rank_tables(fitting: Sequence[Chunk], *, folder: Path, recipe: Recipe) -> RankTables:
    """Fit rank probabilities with the exported decoder on texts it was not trained on."""
    graph = DecoderGraph(folder, recipe.model)
    kept = [c for c in fitting if len(graph.tokens(c.text)) < recipe.model.max_tokens]
    vectors = EncoderGraph(folder).encode([c.text for c in kept]).astype(np.float16)
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
    """Yield training texts for counting: as many as the recipe says, cut like records."""
    budgets = budgets_of(pool, recipe.data, total_bytes=recipe.publish.table_bytes)
    drawn = chunks.draw(pool, budgets=budgets, rng=random.Random(recipe.data.seed))
    return [chunk.text.encode("utf-8") for chunk in drawn]


def write_golden(
    suite: evaluate.Suite, texts: Sequence[Chunk], *, folder: Path, count: int
) -> None:
    """Write golden.jsonl: ``count`` samples spread over the sources, every payload decoded.

    Raises:
        ArtifactInvalid: a payload does not decode to its text.
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
"""Texts unlike the training data; every codec must reconstruct them as well."""


def write_manifest(trained: Trained, folder: Path, *, name: str) -> Manifest:
    """Write manifest.json over every other file of the folder."""
    recipe = trained.recipe
    listed = (*manifest.SPACE_FILES, *manifest.CODEC_FILES, *manifest.OTHER_FILES)
    files = {file: manifest.describe(folder / file) for file in listed}
    space = Space(
        id="",
        dim=recipe.model.vector_dim,
        max_encoder_tokens=MAX_TOKENS,
        pooling=trained.encoder.pooling.value,
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
        slots=recipe.model.prefix,
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

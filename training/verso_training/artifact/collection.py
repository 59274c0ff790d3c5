"""Fit an artifact's codec to the texts of one collection.

The encoder, the tokenizers and hence the space do not change: stored vectors stay valid. The
tables that need no decoder are fitted:

1. the last texts are held out; on the others a mixture (`verso_codecs.mixture`) is fitted, and a
   Zstandard dictionary of the size and kind that are best on the held-out ones;
2. the payloads of the held-out texts are compared between the fitted codecs and the artifact's own;
3. both are fitted again, to all texts, and written with everything else into a new folder, whose
   codec has an id of its own. Records written with the old codec are still read with it.

If minutes are given, the decoder is trained on the first part as well (`tuning`), and replaces
the old one if the smallest payloads of the held-out texts become clearly smaller.

The new folder holds texts of the collection, some of them word for word.
"""

from __future__ import annotations

import base64
import importlib.util
import json
import math
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Any

from verso_codecs import mixture, ngram, zstd
from verso_codecs.mixture import MixtureTables
from verso_codecs.ngram import NgramTables
from verso_codecs.zstd import ZstdCodec
from verso_core import DISTRIBUTION, manifest
from verso_core.errors import ArtifactInvalid, RequestInvalid
from verso_core.manifest import Artifact, Manifest
from verso_training.config import Budget

DICTIONARY_BYTES = (0, 4 << 10, 16 << 10, 64 << 10, 110 << 10, 200 << 10, 400 << 10)
"""Sizes of dictionaries to try, trained and plain; 0 keeps the artifact's own."""

FEWEST_TEXTS = 20
"""With fewer texts no choice carries over to the next ones."""

HELD_OUT = 0.15
"""Share of the chunks, the last ones, for choices and the report."""

WORTH = 0.01
"""A trained decoder is kept if the smallest payloads shrink by this share, since it reads
slowly."""

DECODER_FILES = ("memory.onnx", "decoder.onnx", "ranks.npz")

_CHUNK_BYTES = 1024
_BREAKS = (b"\n\n", b"\n", b". ", b" ")
_DICTIONARY_SAMPLE_BYTES = 8 << 20

Encode = Callable[[bytes], bytes]


@dataclass(frozen=True)
class Training:
    """Result of training the decoder, in bytes per held-out chunk that it is measured on.

    minutes, steps: of the training
    measured: chunks
    neural: payloads of the decoder, before and after
    smallest: the smallest of raw, n-gram, fitted mixture and neural, before and after
    noise: greatest difference of a logit between writing and reading, nats
    kept: whether the new artifact has the trained decoder
    """

    minutes: float
    steps: int
    measured: int
    neural: tuple[float, float]
    smallest: tuple[float, float]
    noise: float
    kept: bool


@dataclass(frozen=True)
class Report:
    """Bytes per chunk of the held-out texts: each codec's own payload, no header.

    texts, chunks: total numbers
    held_out: number of held-out chunks
    raw: their length
    before: by codec of the base artifact
    after: by codec fitted to the other chunks
    training: of the decoder, if requested
    """

    texts: int
    chunks: int
    held_out: int
    raw: float
    before: dict[str, float]
    after: dict[str, float]
    training: Training | None = None


def fit(
    base: Path,
    texts: Iterable[bytes],
    *,
    folder: Path,
    name: str,
    budget: Budget | None = None,
) -> Report:
    """Write into ``folder`` an artifact like ``base`` with its codec fitted to texts.

    Args:
        base: An artifact; it is not changed.
        texts: A collection's texts in the order in which they were written.
        folder: Of the new artifact; must not exist.
        name: Its name in the manifest.
        budget: Train the decoder too. Its checkpoints are kept beside ``folder`` until that is
            written.

    Raises:
        RequestInvalid: too few texts, the folder exists, or the budget is not positive.
        ArtifactInvalid: the base is damaged, or a fitted codec does not reconstruct a text.
    """
    given = [text for text in texts if text]
    if len(given) < FEWEST_TEXTS:
        raise RequestInvalid(f"expected at least {FEWEST_TEXTS} texts to fit to, got {len(given)}")
    if folder.exists():
        raise RequestInvalid(f"expected a new folder, but {folder} exists")
    if budget is not None:
        _check(budget)
    artifact = manifest.load(base)
    chunks = [chunk for text in given for chunk in cut(text)]
    general = NgramTables.load(base / "ngram.npz")
    own = ZstdCodec(artifact.data["zstd.dict"])
    held = max(1, int(HELD_OUT * len(chunks)))
    before, after = chunks[:-held], chunks[-held:]
    fitted = MixtureTables.fit(before, general)
    _read_back(after, fitted)
    dictionary, with_dictionary = best_dictionary(chunks, own=artifact.data["zstd.dict"])
    sizes = {
        "ngram": [len(ngram.encode(text, general)) for text in after],
        "mixture": [len(mixture.encode(text, fitted)) for text in after],
    }
    work = folder.with_name(f".{folder.name}.training")
    decoder, training = (
        (None, None)
        if budget is None
        else _train(artifact, before, after, sizes=sizes, budget=budget, work=work)
    )
    report = Report(
        texts=len(given),
        chunks=len(chunks),
        held_out=held,
        raw=sum(map(len, after)) / held,
        before={"zstd": _mean(own.encode, after), "ngram": sum(sizes["ngram"]) / held},
        after={"zstd": with_dictionary, "mixture": sum(sizes["mixture"]) / held},
        training=training,
    )
    final = MixtureTables.fit(chunks, general)
    made = Fitted(dictionary, final, decoder)
    _write(artifact, made, report=report, folder=folder, name=name)
    shutil.rmtree(work, ignore_errors=True)
    return report


def _check(budget: Budget) -> None:
    if not 0 < budget.minutes < math.inf:
        raise RequestInvalid(f"expected minutes above 0, got {budget.minutes}")
    if importlib.util.find_spec("torch") is None:
        raise RequestInvalid(f"training a decoder needs torch: install {DISTRIBUTION}[training]")


def _train(
    artifact: Artifact,
    before: Sequence[bytes],
    after: Sequence[bytes],
    *,
    sizes: Mapping[str, Sequence[int]],
    budget: Budget,
    work: Path,
) -> tuple[Path | None, Training]:
    """Train the decoder; return its folder, or None if it is not worth keeping, and the result.

    sizes: payload bytes of each chunk of ``after``, by codec
    """
    from verso_training.artifact import tuning  # loads torch

    found = tuning.tune(artifact, before, after, budget=budget, work=work)
    others = [min(len(after[at]), *(one[at] for one in sizes.values())) for at in found.measured]
    count = len(found.measured)
    was, now = (sum(map(min, others, neural)) / count for neural in (found.before, found.after))
    training = Training(
        minutes=budget.minutes,
        steps=found.steps,
        measured=count,
        neural=(sum(found.before) / count, sum(found.after) / count),
        smallest=(was, now),
        noise=found.noise,
        kept=now <= (1 - WORTH) * was,
    )
    return (found.folder if training.kept else None), training


def cut(text: bytes) -> Iterator[bytes]:
    """Cut a text into pieces of the size of records: about 1 kB, at a break."""
    start = 0
    while len(text) - start > _CHUNK_BYTES:
        limit = start + _CHUNK_BYTES
        end = limit
        for mark in _BREAKS:
            found = text.rfind(mark, start + _CHUNK_BYTES // 2, limit)
            if found >= 0:
                end = found + len(mark)
                break
        yield text[start:end]
        start = end
    yield text[start:]


def best_dictionary(chunks: Sequence[bytes], *, own: bytes) -> tuple[bytes, float]:
    """Choose a dictionary by the size of the last chunks, and build it from all chunks.

    Trained ones and the plain end of the chunks are tried in each size, beside the artifact's own.

    Returns:
        The dictionary, and the mean bytes of a held-out chunk with the one built from the others.
    """
    held = max(1, int(HELD_OUT * len(chunks)))
    before, after = chunks[:-held], chunks[-held:]

    def made(chosen: Sequence[bytes], size: int, *, plain: bool) -> bytes:
        if size == 0:
            return own
        return b"\n".join(_recent(chosen, size))[-size:] if plain else _trained(chosen, size)

    sizes = {
        (size, plain): _mean(ZstdCodec(made(before, size, plain=plain)).encode, after)
        for size, plain in product(DICTIONARY_BYTES, (False, True))
    }
    best = min(sizes, key=lambda choice: sizes[choice])
    return made(chunks, best[0], plain=best[1]), sizes[best]


def _mean(encode: Encode, texts: Sequence[bytes]) -> float:
    return sum(len(encode(text)) for text in texts) / len(texts)


def _trained(chunks: Sequence[bytes], size: int) -> bytes:
    return zstd.train(_recent(chunks, _DICTIONARY_SAMPLE_BYTES), size)


def _recent(chunks: Sequence[bytes], size: int) -> list[bytes]:
    """Return the last chunks, of at least ``size`` bytes together if there are so many."""
    recent, taken = [], 0
    for chunk in reversed(chunks):
        if taken >= size:
            break
        recent.append(chunk)
        taken += len(chunk)
    return recent[::-1]


def _read_back(texts: Sequence[bytes], tables: MixtureTables) -> None:
    for text in texts:
        if mixture.decode(mixture.encode(text, tables), tables) != text:
            raise ArtifactInvalid("a held-out text does not come back from its mixture payload")


@dataclass(frozen=True)
class Fitted:
    """Files that replace those of the base artifact.

    decoder: folder of memory.onnx, decoder.onnx and ranks.npz, if it was trained
    """

    dictionary: bytes
    tables: MixtureTables
    decoder: Path | None


def _write(artifact: Artifact, made: Fitted, *, report: Report, folder: Path, name: str) -> None:
    """Write the folder under a temporary name, then rename it."""
    draft = folder.with_name(f".{folder.name}.draft")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    for file, data in artifact.data.items():
        (draft / file).write_bytes(data)
    (draft / "zstd.dict").write_bytes(made.dictionary)
    made.tables.save(draft / "mixture.npz")
    if made.decoder is not None:
        for file in DECODER_FILES:
            shutil.copyfile(made.decoder / file, draft / file)
    (draft / "golden.jsonl").write_bytes(_golden(artifact, made, folder=draft))
    card = artifact.data["MODEL_CARD.md"].decode() + _card(artifact, report)
    (draft / "MODEL_CARD.md").write_text(card, encoding="utf-8")
    files = {file: manifest.describe(draft / file) for file in {*artifact.data, "mixture.npz"}}
    old = artifact.manifest
    document = Manifest(
        format=manifest.FORMAT,
        name=name,
        created=datetime.now(UTC).replace(microsecond=0),
        space=old.space,
        codec=old.codec.model_copy(update={"id": manifest.codec_id(old.codec, files)}),
        tolerance=old.tolerance,
        files=dict(sorted(files.items())),
    )
    manifest.write(document, draft)
    manifest.load(draft)
    draft.rename(folder)


def _golden(artifact: Artifact, made: Fitted, *, folder: Path) -> bytes:
    """Return the golden samples with payloads of the fitted codecs; texts and vectors stay."""
    rows = [json.loads(line) for line in artifact.data["golden.jsonl"].splitlines()]
    texts = [base64.b64decode(row["text_base64"]) for row in rows]
    zstandard = ZstdCodec(made.dictionary)
    for row, text in zip(rows, texts, strict=True):
        _replace(row, "zstd", zstandard.encode(text))
        _replace(row, "mixture", mixture.encode(text, made.tables))
    if made.decoder is not None:
        from verso_training.artifact import tuning  # loads torch

        vectors = [base64.b64decode(row["vector_base64"]) for row in rows]
        coded = tuning.golden(folder, artifact.manifest, texts, vectors)
        for row, payload in zip(rows, coded, strict=True):
            if payload is not None:
                _replace(row, "neural", payload)
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def _replace(row: dict[str, Any], codec: str, payload: bytes) -> None:
    row["patches"][codec] = base64.b64encode(payload).decode("ascii")


def _card(artifact: Artifact, report: Report) -> str:
    rows = [("as they are", report.raw)]
    rows += [(f"{codec}, before", size) for codec, size in report.before.items()]
    rows += [(f"{codec}, fitted", size) for codec, size in report.after.items()]
    table = "\n".join(f"| {what} | {size:.1f} |" for what, size in rows)
    trained = "" if report.training is None else _of_training(report.training)
    return f"""
## Fitted to a collection

The codec of `{artifact.manifest.name}` (`{artifact.id}`), fitted to {report.texts:,} texts of one
collection ({report.chunks:,} chunks). The last {report.held_out:,} chunks, fitted to the others:

| codec | bytes a chunk |
|---|---:|
{table}
{trained}
`mixture.npz` and `zstd.dict` hold texts of that collection, some of them word for word: who may
read this folder may read those.
"""


def _of_training(training: Training) -> str:
    taken = "" if training.kept else " It was not worth keeping: the artifact has the old decoder."
    before, after = training.smallest
    return f"""
The decoder was trained on the others for {training.minutes:g} minutes, {training.steps:,} steps,
and its rank probabilities are fitted to the held-out ones. Of {training.measured:,} of these it
takes {training.neural[1]:.1f} bytes a chunk where it took {training.neural[0]:.1f}, by
probabilities fitted to the other half of them; the smallest of raw, n-gram, mixture and neural
takes {after:.1f} where it took {before:.1f}. Between writing and reading a logit differs by at most
{training.noise:.1e} nats.{taken}
"""

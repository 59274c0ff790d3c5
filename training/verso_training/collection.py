"""Fit an artifact's codec to the texts of one collection.

Graphs, tokenizers and rank tables stay as they are, and with them the space: vectors that are
stored already go on being right. What is fitted are the tables that need no decoder:

1. the last texts are held out; on the others a mixture (`verso_codecs.mixture`) is fitted, and a
   Zstandard dictionary of the size and kind that do best on the held-out ones;
2. the held-out texts tell what the fitted codecs take, and what the artifact's own ones took;
3. both are fitted again, to all texts, and written with everything else into a new folder, whose
   codec has an id of its own. Records written with the old one go on being read with the old one.

The new folder holds texts of the collection, some of them word for word.
"""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import product
from pathlib import Path

from verso_codecs import mixture, ngram, zstd
from verso_codecs.mixture import MixtureTables
from verso_codecs.ngram import NgramTables
from verso_codecs.zstd import ZstdCodec
from verso_core import manifest
from verso_core.errors import ArtifactInvalid, RequestInvalid
from verso_core.manifest import Artifact, Manifest

DICTIONARY_BYTES = (0, 4 << 10, 16 << 10, 64 << 10, 110 << 10)
"""Sizes of dictionary that are tried, trained and plain; 0 keeps the artifact's own."""

FEWEST_TEXTS = 20
"""Fewer texts cannot tell what works on the next ones."""

HELD_OUT = 0.15
"""Share of the chunks, the last ones, that choices are made on and reported from."""

_CHUNK_BYTES = 1024
_BREAKS = (b"\n\n", b"\n", b". ", b" ")
_DICTIONARY_SAMPLE_BYTES = 8 << 20

Encode = Callable[[bytes], bytes]


@dataclass(frozen=True)
class Report:
    """What the held-out texts take, in bytes a chunk. Each codec's own payload, no header.

    texts, chunks: how many there were in all
    held_out: chunks that were held out
    raw: what they are long
    before: by codec of the artifact that was fitted
    after: by codec that was fitted to the others
    """

    texts: int
    chunks: int
    held_out: int
    raw: float
    before: dict[str, float]
    after: dict[str, float]


def fit(base: Path, texts: Iterable[bytes], *, folder: Path, name: str) -> Report:
    """Write into ``folder`` an artifact like ``base`` with its codec fitted to texts.

    Args:
        base: An artifact; it is not changed.
        texts: A collection's texts in the order in which they were written.
        folder: Where the new artifact goes; must not exist.
        name: Its name in the manifest.

    Raises:
        RequestInvalid: there are too few texts, or the folder exists.
        ArtifactInvalid: the base is damaged, or what was fitted does not give a text back.
    """
    given = [text for text in texts if text]
    if len(given) < FEWEST_TEXTS:
        raise RequestInvalid(f"expected at least {FEWEST_TEXTS} texts to fit to, got {len(given)}")
    if folder.exists():
        raise RequestInvalid(f"expected a new folder, but {folder} exists")
    artifact = manifest.load(base)
    chunks = [chunk for text in given for chunk in cut(text)]
    general = NgramTables.load(base / "ngram.npz")
    own = ZstdCodec(artifact.data["zstd.dict"])
    held = max(1, int(HELD_OUT * len(chunks)))
    before, after = chunks[:-held], chunks[-held:]
    fitted = MixtureTables.fit(before, general)
    _read_back(after, fitted)
    dictionary, with_dictionary = best_dictionary(chunks, own=artifact.data["zstd.dict"])
    report = Report(
        texts=len(given),
        chunks=len(chunks),
        held_out=held,
        raw=sum(map(len, after)) / held,
        before={
            "zstd": _mean(own.encode, after),
            "ngram": _mean(lambda text: ngram.encode(text, general), after),
        },
        after={
            "zstd": with_dictionary,
            "mixture": _mean(lambda text: mixture.encode(text, fitted), after),
        },
    )
    final = MixtureTables.fit(chunks, general)
    _write(artifact, final, dictionary=dictionary, report=report, folder=folder, name=name)
    return report


def cut(text: bytes) -> Iterator[bytes]:
    """Cut a text into pieces about as long as the records it will be: 1 kB, at a break."""
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
    """Choose a dictionary by what the last chunks take, and make it of all of them.

    Trained ones and the plain end of the chunks are tried in each size, and the artifact's own.

    Returns:
        The dictionary, and the mean bytes of a held-out chunk with the one made of the others.
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
    """The last chunks, of at least ``size`` bytes together where there are so many."""
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


def _write(
    artifact: Artifact,
    tables: MixtureTables,
    *,
    dictionary: bytes,
    report: Report,
    folder: Path,
    name: str,
) -> None:
    """Write a whole folder under another name, then rename it."""
    draft = folder.with_name(f".{folder.name}.draft")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    for file, data in artifact.data.items():
        (draft / file).write_bytes(data)
    (draft / "zstd.dict").write_bytes(dictionary)
    tables.save(draft / "mixture.npz")
    (draft / "golden.jsonl").write_bytes(_golden(artifact, tables, ZstdCodec(dictionary)))
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


def _golden(artifact: Artifact, tables: MixtureTables, dictionary: ZstdCodec) -> bytes:
    """Give the golden samples with payloads of the fitted codecs; texts and vectors stay."""
    lines = []
    for line in artifact.data["golden.jsonl"].splitlines():
        row = json.loads(line)
        text = base64.b64decode(row["text_base64"])
        payloads = {"zstd": dictionary.encode(text), "mixture": mixture.encode(text, tables)}
        row["patches"] |= {
            codec: base64.b64encode(payload).decode("ascii") for codec, payload in payloads.items()
        }
        lines.append(json.dumps(row) + "\n")
    return "".join(lines).encode()


def _card(artifact: Artifact, report: Report) -> str:
    rows = [("as they are", report.raw)]
    rows += [(f"{codec}, before", size) for codec, size in report.before.items()]
    rows += [(f"{codec}, fitted", size) for codec, size in report.after.items()]
    table = "\n".join(f"| {what} | {size:.1f} |" for what, size in rows)
    return f"""
## Fitted to a collection

The codec of `{artifact.manifest.name}` (`{artifact.id}`), fitted to {report.texts:,} texts of one
collection ({report.chunks:,} chunks). The last {report.held_out:,} chunks, fitted to the others:

| codec | bytes a chunk |
|---|---:|
{table}

`mixture.npz` and `zstd.dict` hold texts of that collection, some of them word for word: who may
read this folder may read those.
"""

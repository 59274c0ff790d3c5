"""Does a platform left to itself store what a fit by hand would, and what do all bytes come to?

No command is given. Of each set the first 1,000 chunks go into a platform, and the bench waits
until it has fitted its codec to them, or has found that nothing is gained. Up to 1,000 more prove
the tables. Where the set has so many, texts come in until 2,000 chunks are there, the second fit is
awaited, and its tables are proved. What comes then is measured, as the platform counts it
(`stats`): bytes of patches a chunk.

- *unfitted*: the same texts in a collection that was never fitted;
- *by hand*: the same texts, coded here by tables fitted to the first 1,000 chunks, or to 2,000
  where a second fit was awaited; chosen under the codec policy (without the decoder);
- *newest*: likewise, by tables fitted to everything before them;
- *ratio*: what the platform stores to what the fit by hand does. The goal is 1.1;
- *kept*: patches and entries of the measured texts to their raw bytes, vectors apart; *tables* come
  once.

A text is cut into its chunks first and each is a document, so that a count of one is a count of the
other. Limited by the cores: a platform takes in 25 to 75 lines a second on two. With ``--keep`` the
rows stay in a file, and sets that are in it are not measured again.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import record_sets
import sheet

from verso_client import Client, Document, Retries
from verso_codecs.mixture import MixtureTables
from verso_codecs.zstd import ZstdCodec
from verso_core import manifest
from verso_core.jobs import CodecPolicy
from verso_core.jobs.collections import Statistics
from verso_core.record import Codec
from verso_standalone.stack import Stack, StackConfig, find_artifact
from verso_worker.records import policy
from verso_worker.records.artifact import MixtureCodec, NgramCodec, cutter, ngram_tables
from verso_worker.records.recorder import ByteCodec

FIRST = 1000
"""Chunks after which a platform fits."""

MOST = 6000
"""Chunks of a set that are looked at; the third fit of most sets would need more."""

_SETTINGS = {"VERSO_SCRUB_SHARE": "0", "VERSO_VERIFY_DELAY_S": "0.5"}
_UNFITTED = {"VERSO_FIT_AFTER_CHUNKS": "0"}
_WAIT_S = 1800.0
_STEP = 64


def measure(
    found: record_sets.RecordSet, artifact: Path, *, records: int, data: Path, least: int
) -> dict[str, Any] | None:
    """Take a set in on a platform that is left to itself; None where it has too few texts."""
    cut = cutter(manifest.load(artifact)).cut
    whole = (text for text in (*found.fit, *found.test) if len(text) >= least)
    texts = list(itertools.islice((chunk for text in whole for chunk in cut(text)), MOST))
    with Running(artifact, data / "fitted", _SETTINGS) as client:
        client.create_collection("texts")
        took = _take(client, texts, until=lambda stats: stats.chunks >= FIRST)
        if took is None:
            return None
        began = time.monotonic()
        _wait(client, lambda stats: stats.fits > 0)
        waited_s = time.monotonic() - began
        at, fitted_to = _take(client, texts, first=took, until=_proved), FIRST
        if at is not None and len(texts) > 2 * FIRST + records:
            at, fitted_to = _again(client, texts, first=at), 2 * FIRST
        if at is None or len(texts) - at < _STEP:
            return None
        _wait(client, lambda stats: stats.verified == stats.documents)
        before = client.stats("texts")
        test = texts[at : at + records]
        _ingest(client, test, first=at)
        after = _wait(client, lambda stats: stats.verified == stats.documents)
        read = client.reconstruct(
            [str(at + n) for n in range(min(_STEP, len(test)))], collection="texts"
        )
        if [text.data for text in read] != test[:_STEP]:
            raise AssertionError("a text did not come back")
    with Running(artifact, data / "unfitted", _SETTINGS | _UNFITTED) as client:
        client.create_collection("texts")
        _ingest(client, test, first=at)
        plain = client.stats("texts")
    chunks = after.chunks - before.chunks
    stored = after.bytes_patches - before.bytes_patches
    raw = after.bytes_text - before.bytes_text
    by_hand = _by_hand(artifact, texts[:at], test, most=fitted_to)
    newest = _by_hand(artifact, texts[:at], test, most=None)
    return {
        "set": found.name,
        "before": at,
        "chunks": chunks,
        "raw": raw / chunks,
        "unfitted": plain.bytes_patches / plain.chunks,
        "stored": stored / chunks,
        "by_hand": by_hand,
        "newest": newest,
        "ratio": stored / chunks / by_hand,
        "tables": sum(one.bytes for one in after.generations),
        "stages": [one.stage for one in after.generations],
        "kept": (after.bytes_entries - before.bytes_entries) / raw,
        "kept_unfitted": plain.bytes_entries / plain.bytes_text,
        "waited_s": waited_s,
    }


class Running:
    """A platform while a block runs, and its client."""

    def __init__(self, artifact: Path, data: Path, settings: dict[str, str]) -> None:
        self._stack = Stack(StackConfig(data, artifact, port=0, settings=settings))

    def __enter__(self) -> Client:
        """Start it."""
        self._stack.start()
        self._client = Client(self._stack.url, retries=Retries(patience_s=_WAIT_S))
        return self._client

    def __exit__(self, *_: object) -> None:
        """End it."""
        self._client.close()
        self._stack.stop()


def _proved(stats: Statistics) -> bool:
    """Whether nothing is tried any more, or so much came in that the rest is measured anyway."""
    stages = {one.stage for one in stats.generations}
    return "canary" not in stages or stats.chunks >= 2 * FIRST


def _again(client: Client, texts: Sequence[bytes], *, first: int) -> int | None:
    """Ingest texts until the collection has doubled, and until its second fit is over."""
    at = _take(client, texts, first=first, until=lambda stats: stats.chunks >= 2 * FIRST)
    if at is None:
        return None
    _wait(client, lambda stats: stats.fits > 1)
    canary = "canary"
    return _take(
        client,
        texts,
        first=at,
        until=lambda stats: canary not in {one.stage for one in stats.generations},
    )


def _take(client: Client, texts: Sequence[bytes], *, until: Any, first: int = 0) -> int | None:
    """Ingest texts step by step until a fact holds; return how many are in, None if all."""
    at = first
    while not until(client.stats("texts")):
        if at >= len(texts):
            return None
        _ingest(client, texts[at : at + _STEP], first=at)
        at += _STEP
        _wait(client, lambda stats: stats.verified == stats.documents)
    return at


def _ingest(client: Client, texts: Sequence[bytes], *, first: int) -> None:
    documents = (Document(text, id=str(first + number)) for number, text in enumerate(texts))
    if client.ingest(documents, collection="texts").failed:
        raise AssertionError("texts were refused")


def _wait(client: Client, holds: Any) -> Statistics:
    until = time.monotonic() + _WAIT_S
    while not holds(stats := client.stats("texts")):
        if time.monotonic() > until:
            raise TimeoutError(f"the platform did not get there: {stats}")
        time.sleep(0.5)
    return stats


def _by_hand(
    folder: Path, before: Sequence[bytes], test: Sequence[bytes], *, most: int | None
) -> float:
    """Return the patch bytes a chunk of texts, by tables fitted to the first chunks before."""
    artifact = manifest.load(folder)
    cut = cutter(artifact)
    general = ngram_tables(artifact)
    first = [chunk for text in before for chunk in cut.cut(text)][:most]
    tables = MixtureTables.fit(first, general)
    codecs: dict[Codec, ByteCodec] = {
        Codec.ZSTD: ZstdCodec(artifact.data["zstd.dict"]),
        Codec.NGRAM: NgramCodec(general),
        Codec.MIXTURE: MixtureCodec(tables),
    }
    total, chunks = 0, [chunk for text in test for chunk in cut.cut(text)]
    for chunk in chunks:
        offers = [(Codec.RAW, chunk), *((name, own.encode(chunk)) for name, own in codecs.items())]
        [best, *_] = policy.ordered(offers, CodecPolicy.BALANCED, size_bytes=len(chunk))
        total += 1 + len(best[1])
    return total / len(chunks)


def main() -> None:
    """Run the measurements and print them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--artifact", type=Path, help="default: the stable one")
    parser.add_argument("--data", type=Path, help="folder of public data sets; default: shipped")
    parser.add_argument("--sets", nargs="+", help="names of sets; default: all with enough texts")
    parser.add_argument("--records", type=int, default=640, help="texts that are measured")
    parser.add_argument("--least", type=int, default=0, help="bytes of the shortest text taken")
    parser.add_argument("--keep", type=Path, help="file of rows; sets in it are not redone")
    arguments = parser.parse_args()
    paper = sheet.Sheet("self_fit")
    artifact = (arguments.artifact or find_artifact()).resolve()
    rows = _kept(arguments.keep)
    done = {row["set"] for row in rows}
    for found in record_sets.record_sets(arguments.data, arguments.sets, fit_bytes=None):
        if found.name in done:
            continue
        with tempfile.TemporaryDirectory(prefix="verso-", ignore_cleanup_errors=True) as folder:
            row = measure(
                found,
                artifact,
                records=arguments.records,
                data=Path(folder),
                least=arguments.least,
            )
        print(json.dumps(row or {"set": found.name, "texts": "too few"}), file=sys.stderr)
        rows += [row] if row else []
        if row and arguments.keep:
            with arguments.keep.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps(row) + "\n")
    columns = [
        *("set", "before", "chunks", "raw", "unfitted", "stored", "by_hand", "newest"),
        *("ratio", "tables"),
        *("kept", "kept_unfitted", "waited_s"),
    ]
    sheet.table("bytes a chunk", columns, [[row[c] for c in columns] for row in rows])
    paper.finish({"artifact": manifest.load(artifact).id, "sets": rows})


def _kept(path: Path | None) -> list[dict[str, Any]]:
    if path is None or not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


if __name__ == "__main__":
    main()

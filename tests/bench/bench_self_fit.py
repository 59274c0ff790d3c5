"""Does a platform left to itself store what a fit by hand would, and what do all bytes come to?

No command is given. Of each set the first 1,000 chunks go into a platform, and the bench waits
until it has fitted its codec to them, or has found that nothing is gained. Up to 1,000 more prove
the tables. Where the set has so many, texts come in until 2,000 chunks are there, the second fit is
awaited, and its tables are proved. Of what comes then an even sample is measured, as the platform
counts it (`stats`): bytes of patches a chunk. The texts just behind those that were fitted to are
often more of the same log, and say little of the later ones.

- *unfitted*: the same texts in a collection that was never fitted;
- *by hand*: the same texts, coded here by tables fitted to the first 1,000 chunks, or to 2,000
  where a second fit was awaited; chosen under the codec policy (without the decoder);
- *newest*: likewise, by tables fitted to everything before them;
- *ratio*: what the platform stores to what the fit by hand does. The goal is 1.1;
- *kept*: patches and entries of the measured texts to their raw bytes, vectors apart; *tables* come
  once.

A text is cut into its chunks first and each is a document, so that a count of one is a count of the
other. Limited by the cores: a platform takes in 25 to 75 lines a second on two. With ``--reckoned``
there is no platform: the rule of its fits is applied to the first 1,000 chunks and to the first
2,000 in this process, without the decoder. With ``--keep`` the rows stay in a file, and sets that
are in it are not measured again.
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
from verso_codecs.mixture import HISTORY_BYTES, MixtureTables
from verso_codecs.zstd import ZstdCodec
from verso_core import manifest
from verso_core.jobs import CodecPolicy
from verso_core.jobs.statistics import Statistics
from verso_core.record import Codec
from verso_standalone.stack import Stack, StackConfig, find_artifact
from verso_worker.records import generation, policy
from verso_worker.records.artifact import MixtureCodec, NgramCodec, cutter, ngram_tables
from verso_worker.records.outputs import Wanted
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
    coder = Coder(artifact)
    texts = coder.chunks(found, least=least)
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
        test = _sample(texts[at:], records)
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
    by_hand = coder.mean_bytes(test, coder.fitted(texts[:fitted_to]))
    newest = coder.mean_bytes(test, coder.fitted(texts[:at]))
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


def reckon(
    found: record_sets.RecordSet, artifact: Path, *, records: int, least: int
) -> dict[str, Any] | None:
    """Reckon what a platform that is left to itself would store; None for too few texts."""
    coder = Coder(artifact)
    texts = coder.chunks(found, least=least)
    if len(texts) < FIRST + _STEP:
        return None
    at = 2 * FIRST if len(texts) > 2 * FIRST + records else FIRST
    tables: MixtureTables | None = None
    packed: list[bytes] = []
    stored: list[tuple[Codec, int]] = []
    for count in range(FIRST, at + 1, FIRST):
        part = (coder.record(chunk, tables) for chunk in texts[len(stored) : count])
        stored += [(codec, len(payload)) for codec, payload in part]
        tables = coder.fit(texts[:count], stored, packed) or tables
    test = _sample(texts[at:], records)
    before, by_hand = coder.mean_bytes(test, None), coder.mean_bytes(test, coder.fitted(texts[:at]))
    after = coder.mean_bytes(test, tables)
    return {
        "set": found.name,
        "before": at,
        "chunks": len(test),
        "raw": sum(map(len, test)) / len(test),
        "unfitted": before,
        "stored": after,
        "by_hand": by_hand,
        "newest": by_hand,
        "ratio": after / by_hand,
        "tables": sum(map(len, packed)),
        "stages": ["reckoned"] * len(packed),
        "kept": None,
        "kept_unfitted": None,
        "waited_s": None,
    }


def _sample(later: Sequence[bytes], count: int) -> list[bytes]:
    """Return texts from all over the later ones."""
    return list(itertools.islice(record_sets.spread(later, count), count))


class Coder:
    """The codecs of an artifact but its decoder, and the rule of a platform's fits."""

    def __init__(self, folder: Path) -> None:
        artifact = manifest.load(folder)
        self._cut = cutter(artifact).cut
        self._general = ngram_tables(artifact)
        self._codecs: dict[Codec, ByteCodec] = {
            Codec.ZSTD: ZstdCodec(artifact.data["zstd.dict"]),
            Codec.NGRAM: NgramCodec(self._general),
        }

    def chunks(self, found: record_sets.RecordSet, *, least: int) -> list[bytes]:
        """Return the chunks of a set's texts of ``least`` bytes and more, in their order."""
        whole = (text for text in (*found.fit, *found.test) if len(text) >= least)
        cut = (chunk for text in whole for chunk in self._cut(text))
        return list(itertools.islice(cut, MOST))

    def record(self, chunk: bytes, tables: MixtureTables | None) -> tuple[Codec, bytes]:
        """Return what a chunk is stored as."""
        offers = [(Codec.RAW, chunk)]
        offers += [(name, codec.encode(chunk)) for name, codec in self._codecs.items()]
        if tables is not None:
            offers.append((Codec.MIXTURE, MixtureCodec(tables).encode(chunk)))
        return policy.ordered(offers, CodecPolicy.BALANCED, size_bytes=len(chunk))[0]

    def mean_bytes(self, chunks: Sequence[bytes], tables: MixtureTables | None) -> float:
        """Return the mean patch bytes of chunks."""
        return sum(1 + len(self.record(chunk, tables)[1]) for chunk in chunks) / len(chunks)

    def fitted(self, chunks: Sequence[bytes]) -> MixtureTables:
        """Return tables fitted to chunks, as a fit by hand makes them."""
        return MixtureTables.fit(chunks, self._general)

    def fit(
        self, chunks: Sequence[bytes], stored: Sequence[tuple[Codec, int]], packed: list[bytes]
    ) -> MixtureTables | None:
        """Fit as a platform does to its newest chunks; add the tables to ``packed`` if they pay."""
        sizes = itertools.accumulate(map(len, reversed(chunks)))
        count = sum(size <= HISTORY_BYTES for size in sizes)
        wanted = Wanted(
            texts=chunks[-count:],
            stored=stored[-count:],
            chunks=len(chunks),
            policy=CodecPolicy.BALANCED,
            serving=packed[-1] if packed else None,
        )
        made = generation.fit(wanted, self._general).packed
        if made is None:
            return None
        packed.append(made)
        return generation.unpack(made, self._general)


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


def main() -> None:
    """Run the measurements and print them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--artifact", type=Path, help="default: the stable one")
    parser.add_argument("--data", type=Path, help="folder of public data sets; default: shipped")
    parser.add_argument("--sets", nargs="+", help="names of sets; default: all with enough texts")
    parser.add_argument("--records", type=int, default=640, help="texts that are measured")
    parser.add_argument("--least", type=int, default=0, help="bytes of the shortest text taken")
    parser.add_argument("--reckoned", action="store_true", help="without a platform")
    parser.add_argument("--keep", type=Path, help="file of rows; sets in it are not redone")
    arguments = parser.parse_args()
    paper = sheet.Sheet("self_fit")
    artifact = (arguments.artifact or find_artifact()).resolve()
    rows = _kept(arguments.keep)
    done = {row["set"] for row in rows}
    for found in record_sets.record_sets(arguments.data, arguments.sets, fit_bytes=None):
        if found.name in done:
            continue
        asked = {"records": arguments.records, "least": arguments.least}
        if arguments.reckoned:
            row = reckon(found, artifact, **asked)
        else:
            with tempfile.TemporaryDirectory(prefix="verso-", ignore_cleanup_errors=True) as folder:
                row = measure(found, artifact, data=Path(folder), **asked)
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

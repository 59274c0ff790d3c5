"""What do the stores of a running platform hold for a record? Asked of them, not computed.

Texts are taken in by a platform in processes of its own, verified and dropped. Then

- Valkey says what the keys with the patches take (``MEMORY USAGE``, every field counted): names,
  fields, lengths and the allocator's rounding included. A collection has its buckets from the
  start (4,096), so with few documents most entries have a key of their own; the same entries, 64
  to a bucket, are what a collection of a quarter of a million takes, and 244 one of a million;
- the same entries with the payloads of a fitted artifact are written into the same Valkey, and so
  are the texts as most would keep them: one plain key each, as they are or compressed with
  Zstandard and a dictionary, and those again 64 to a bucket. Then they are removed;
- the files of each collection's vectors are counted, as the file system holds them, above what a
  collection of one text takes.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import redis

from verso_client import Client, Document, Retries
from verso_core import files
from verso_core.jobs import Precision
from verso_core.record import Entry, Flag
from verso_ledger import keys
from verso_ledger.codec.collection_rows import MAX_BUCKET_VALUE_BYTES
from verso_standalone.folder import DataFolder
from verso_standalone.stack import Stack, StackConfig
from verso_standalone.valkey import LOOPBACK

_SETTINGS = {
    "VERSO_VERIFY_DELAY_S": "0.5",
    "VERSO_RAW_TEXT_RETENTION_S": "0",
    "VERSO_SCRUB_SHARE": "0",
}
_WAIT_S = 1200.0
_ONE = "one"
_OWNER = "full"  # no collection has this uid
_FULL = (64, 244)  # entries of a bucket; above 128 it is no listpack any more


@dataclass(frozen=True)
class Text:
    """One text to be taken in.

    framed: bytes of it compressed by Zstandard with the set's dictionary
    payloads: bytes that a fitted artifact's payload of each of its records has
    """

    data: bytes
    framed: int
    payloads: tuple[int, ...]


def measure(
    artifact: Path, sets: Mapping[str, Sequence[Text]], *, precision: Precision
) -> list[dict[str, Any]]:
    """Take sets in, each into a collection of its own; return a row of bytes a record for each."""
    with tempfile.TemporaryDirectory(prefix="verso-stores-", ignore_cleanup_errors=True) as folder:
        data = Path(folder) / "data"
        stack = Stack(StackConfig(data, artifact, port=0, settings=_SETTINGS))
        try:
            stack.start()
            with Client(stack.url, retries=Retries(patience_s=_WAIT_S)) as client:
                _taken_in(client, _ONE, [Text(b"one text", 0, ())], precision=precision)
                names = {f"set-{number}": name for number, name in enumerate(sets)}
                counts = {
                    collection: _taken_in(client, collection, sets[name], precision=precision)
                    for collection, name in names.items()
                }
            ledger = _ledger(data)
            rows: list[dict[str, Any]] = [
                {
                    "set": name,
                    "records": counts[collection]["records"],
                    "raw": sum(len(text.data) for text in sets[name])
                    / counts[collection]["records"],
                    "patch": counts[collection]["patches"],
                    **_in_valkey(ledger, collection, sets[name], counts[collection]),
                }
                for collection, name in names.items()
            ]
        finally:
            stack.stop()
        # The files have their last form when the store is closed.
        least = files.used_bytes(data / "vectors" / _ONE)
        for row, collection in zip(rows, names, strict=True):
            taken = files.used_bytes(data / "vectors" / collection) - least
            row["vectors on disk"] = taken / row["records"]
        return rows


def _taken_in(
    client: Client, collection: str, texts: Sequence[Text], *, precision: Precision
) -> dict[str, float]:
    client.create_collection(collection, precision=precision)
    documents = (Document(text.data, id=str(number)) for number, text in enumerate(texts))
    report = client.ingest(documents, collection=collection)
    if report.failed:
        raise AssertionError(f"{collection}: {len(report.failed)} texts were refused")
    until = time.monotonic() + _WAIT_S
    while (stats := client.stats(collection)).verified < len(texts):
        if time.monotonic() > until:
            raise TimeoutError(f"{collection}: {stats.verified} of {len(texts)} texts verified")
        time.sleep(1.0)
    return {"records": stats.chunks, "patches": stats.bytes_patches / stats.chunks}


def _ledger(data: Path) -> redis.Redis:
    folder = DataFolder(data.resolve())
    port = folder.valkey_port()
    assert port is not None
    return redis.Redis(host=LOOPBACK, port=port, password=folder.secret(), db=0)


def _in_valkey(
    ledger: redis.Redis, collection: str, texts: Sequence[Text], counts: Mapping[str, float]
) -> dict[str, float]:
    uid = ledger.hget(keys.NAMES["uids"], collection)
    assert isinstance(uid, bytes)
    owned = _owned(ledger, uid.decode())
    entries = _entries(ledger, owned, uid.decode())
    numbers = range(len(texts))
    plain = {f"{number}": texts[number].data for number in numbers}
    framed = {f"{number}": bytes(texts[number].framed) for number in numbers}
    fitted = {name: _fitted(entry, texts[int(name)].payloads) for name, entry in entries.items()}
    bytes_of = {
        "text": taken(ledger, plain, 0),
        "zstd+dict": taken(ledger, framed, 0),
        "zstd+dict, 64": taken(ledger, framed, _FULL[0]),
        "entry": _usage(ledger, owned),
        **{f"entry, {share}": taken(ledger, _packed(entries), share) for share in _FULL},
        **{f"fitted, {share}": taken(ledger, _packed(fitted), share) for share in _FULL},
    }
    return {name: size / counts["records"] for name, size in bytes_of.items()}


def _owned(ledger: redis.Redis, uid: str) -> list[bytes]:
    """Name the keys that hold a collection's entries, and texts where it keeps them."""
    kinds = ("docs", "long", "text")
    return [
        name for kind in kinds for name in ledger.scan_iter(keys.key(kind, uid, "*"), count=1000)
    ]


def _entries(ledger: redis.Redis, owned: Sequence[bytes], uid: str) -> dict[str, Entry]:
    """Read the entries of a collection, by document."""
    found: dict[str, Entry] = {}
    for name in owned:
        if ledger.type(name) == b"hash":
            fields: Any = ledger.hgetall(name)
            for field, value in fields.items():
                document = field.decode()
                own: Any = ledger.get(keys.key("long", uid, document))
                found[document] = Entry.unpack(own if value[0] & Flag.LONG else value)
    return found


def _fitted(entry: Entry, payloads: Sequence[int]) -> Entry:
    """Return an entry with payloads of these sizes instead of its own."""
    records = zip(entry.records, payloads, strict=True)
    return replace(
        entry, records=tuple(replace(record, payload=bytes(size)) for record, size in records)
    )


def _packed(entries: Mapping[str, Entry]) -> dict[str, bytes]:
    return {name: entry.pack() for name, entry in entries.items()}


def taken(ledger: redis.Redis, values: Mapping[str, bytes], share: int) -> int:
    """Write values into keys of their own, or about so many to a bucket; return their bytes.

    What is too long for a bucket gets a key of its own, and a head in the bucket, as in the ledger.
    """
    names = set()
    buckets = max(1, round(len(values) / share)) if share else 0
    for number, (field, value) in enumerate(values.items()):
        short = len(value) <= MAX_BUCKET_VALUE_BYTES
        if buckets:
            names.add(bucket := keys.key("docs", _OWNER, number % buckets))
            head = Entry(seq=1, size_bytes=len(value), records=()).head()
            ledger.hset(bucket, field, value if short else head)
        if not buckets or not short:
            names.add(own := keys.key("long", _OWNER, field))
            ledger.set(own, value)
    size = _usage(ledger, names)
    ledger.delete(*names)
    return size


def _usage(ledger: redis.Redis, names: Iterable[str | bytes]) -> int:
    return sum(ledger.memory_usage(name, samples=0) or 0 for name in names)

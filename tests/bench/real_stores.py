"""What do the stores of a running platform hold for a record? Asked of them, not computed.

Texts are taken in by a platform in processes of its own, verified and dropped. Then

- Valkey says what the keys with the patches take (``MEMORY USAGE``, every field counted): names,
  fields, lengths and the allocator's rounding included. A collection has its buckets from the
  start (4,096), so with few documents most entries have a key of their own; the same entries, 64
  to a bucket, are what a collection of a quarter of a million takes, and 244 one of a million;
- the files of each collection's vectors are counted, as the file system holds them, above what an
  empty collection takes;
- the same texts are put into the same Valkey as most would keep them, one plain key each, for
  comparison, and removed again.
"""

from __future__ import annotations

import itertools
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import redis

from verso_client import Client, Document, Retries
from verso_core.jobs import Precision
from verso_core.ledger import keys
from verso_standalone.folder import DataFolder
from verso_standalone.stack import Stack, StackConfig
from verso_standalone.valkey import LOOPBACK

_SETTINGS = {"VERSO_SETTLE_S": "0.5", "VERSO_RAW_GRACE_S": "0", "VERSO_SCRUB_SHARE": "0"}
_WAIT_S = 1200.0
_EMPTY = "empty"
_FULL = (64, 244)  # entries of a bucket; above 128 it is no listpack any more
_SECTOR_BYTES = 512  # what stat(2) counts blocks in


def measure(
    artifact: Path, sets: Mapping[str, Sequence[bytes]], *, precision: Precision
) -> list[dict[str, Any]]:
    """Take sets in, each into a collection of its own; give a row of bytes a record for each."""
    with tempfile.TemporaryDirectory(prefix="verso-stores-", ignore_cleanup_errors=True) as folder:
        data = Path(folder) / "data"
        stack = Stack(StackConfig(data, artifact, port=0, settings=_SETTINGS))
        try:
            stack.start()
            with Client(stack.url, retries=Retries(patience_s=_WAIT_S)) as client:
                client.create_collection(_EMPTY, precision=precision)
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
                    "patches": counts[collection]["patches"],
                    **_in_valkey(ledger, collection, sets[name], counts[collection]),
                }
                for collection, name in names.items()
            ]
        finally:
            stack.stop()
        # The files have their last form when the store is closed.
        empty = _on_disk(data / "vectors" / _EMPTY)
        for row, collection in zip(rows, names, strict=True):
            taken = _on_disk(data / "vectors" / collection) - empty
            row["vectors on disk"] = taken / row["records"]
        return rows


def _taken_in(
    client: Client, collection: str, texts: Sequence[bytes], *, precision: Precision
) -> dict[str, float]:
    client.create_collection(collection, precision=precision)
    documents = (Document(text, id=str(number)) for number, text in enumerate(texts))
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
    ledger: redis.Redis, collection: str, texts: Sequence[bytes], counts: Mapping[str, float]
) -> dict[str, float]:
    uid = ledger.hget(keys.NAMES["uids"], collection)
    assert isinstance(uid, bytes)
    owned = [
        name
        for kind in ("docs", "long", "text")
        for name in ledger.scan_iter(keys.key(kind, uid.decode(), "*"), count=1000)
    ]
    entries = {
        field: value
        for name in owned
        if ledger.type(name) == b"hash"
        for field, value in _fields(ledger, name).items()
    }
    full = {share: _filled(ledger, collection, entries, share) for share in _FULL}
    plain = [f"plain:{collection}:{number}" for number in range(len(texts))]
    for name, text in zip(plain, texts, strict=True):
        ledger.set(name, text)
    found = {
        "entries in Valkey": _usage(ledger, owned) / counts["records"],
        **{
            f"{share} to a bucket": _usage(ledger, names) / counts["records"]
            for share, names in full.items()
        },
        "texts in Valkey": _usage(ledger, plain) / counts["records"],
    }
    ledger.delete(*plain, *itertools.chain.from_iterable(full.values()))
    return found


def _filled(
    ledger: redis.Redis, collection: str, entries: Mapping[bytes, bytes], share: int
) -> list[str]:
    """Write entries again into buckets that are as full as a large collection's."""
    names = [f"full:{share}:{collection}:{at}" for at in range(-(-len(entries) // share))]
    for number, (field, value) in enumerate(entries.items()):
        ledger.hset(names[number // share], field, value)
    return names


def _fields(ledger: redis.Redis, name: str | bytes) -> dict[Any, Any]:
    found = ledger.hgetall(name)
    assert isinstance(found, dict)
    return found


def _usage(ledger: redis.Redis, names: Iterable[str | bytes]) -> int:
    return sum(ledger.memory_usage(name, samples=0) or 0 for name in names)


def _on_disk(folder: Path) -> int:
    """Give the bytes that a folder's files take on the disk; many are longer, with holes."""
    found = (path.stat() for path in folder.rglob("*") if path.is_file())
    return sum(_SECTOR_BYTES * one.st_blocks for one in found)

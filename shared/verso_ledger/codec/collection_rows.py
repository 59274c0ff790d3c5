"""Read and write collections, what they hold, and the writes of documents."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Container, Mapping

from pydantic import ValidationError

from verso_core import crc
from verso_core.errors import CollectionExists, LedgerBehind, RecordCorrupt
from verso_core.jobs import Collection, CollectionKind
from verso_core.jobs.fitting import Fitting
from verso_core.jobs.statistics import Holdings, Share
from verso_core.record import MAX_SLOT, Codec, Entry, bucket_of
from verso_ledger.codec.scalars import Arg, text
from verso_ledger.models import DocumentDelete, DocumentWrite
from verso_ledger.names import HOME

MAX_BUCKET_VALUE_BYTES = 1024
"""Longest entry inside a bucket: the server's ``hash-max-listpack-value``."""

_BLANKS = 8 * crc.CRC_BYTES


def write_args(document: DocumentWrite | DocumentDelete, *, uid: str, buckets: int) -> list[Arg]:
    """Write the nine arguments that ``read_writes`` in ``prelude.lua`` reads."""
    bucket = bucket_of(document.document, buckets=buckets)
    where: list[Arg] = [document.collection, uid, bucket, document.document]
    if isinstance(document, DocumentDelete):
        op = "d" if document.replaces is None else f"d:{document.replaces}"
        return [op, *where, "", "", 0, ""]
    short, long = document.entry, b""
    if len(short) > MAX_BUCKET_VALUE_BYTES:
        short, long = Entry.unpack(document.entry).head(), document.entry
    op = "w" if document.replaces is None else f"m:{document.replaces}"
    return [op, *where, short, long, int(document.text is not None), document.text or b""]


def own_name(name: str, razed: bytes, *, ledger: str = HOME) -> str:
    """Return the own name of a new collection.

    All ledgers share the vector store, and a ledger may still have vectors removed of a collection
    whose name is given again on another one. So own names of different ledgers differ.

    Args:
        name: what users call it.
        razed: what the ledger knows of the last collection of this name; empty for nothing.
        ledger: name of the ledger that will have it.
    """
    if ledger == HOME and not razed:
        return name
    words = (name.encode(), razed) if ledger == HOME else (ledger.encode(), name.encode(), razed)
    digest = hashlib.blake2b(b" ".join(words), digest_size=8).hexdigest()
    return f"again-{digest}" if ledger == HOME else f"{ledger}-{digest}"


def stored_collection(stored: bytes, asked: Collection) -> Collection:
    """Return the stored collection if it has the requested settings.

    Raises:
        LedgerBehind: none was stored, since the ledger is read-only.
        CollectionExists: the stored one has other settings.
    """
    if stored == b"read_only":
        raise LedgerBehind
    found = load(stored)
    if (found.precision, found.text_policy) != (asked.precision, asked.text_policy):
        raise CollectionExists(
            f"{asked.name!r} exists with precision {found.precision.value} and text policy "
            f"{found.text_policy.value}"
        )
    return found


class Reader:
    """Reads the collections of a ledger; a row that is as it was last is not parsed again.

    There may be thousands, and processes read them every second.
    """

    def __init__(self) -> None:
        self._read: dict[bytes, Collection] = {}

    def collections(
        self,
        rows: Mapping[bytes, bytes],
        *,
        aliases: Mapping[bytes, bytes],
        hidden: Container[bytes],
    ) -> dict[str, Collection]:
        """Read all collections, by the name that users know, in order."""
        shown = {name: row for name, row in rows.items() if name not in hidden}
        shown |= {alias: rows[name] for alias, name in aliases.items() if name in rows}
        before = self._read
        read = {row: before.get(row) or load(row) for row in shown.values()}
        self._read = read
        return {text(name): read[row] for name, row in sorted(shown.items())}


def holdings(row: Mapping[bytes, bytes]) -> Holdings | None:
    """Read a collection's counts; None if it was never counted."""
    if b"full" not in row:
        return None
    counts = {name.decode(): int(n) for name, n in row.items() if n.isdigit()}
    shares = {
        codec: Share(counts.get(f"records:{codec:d}", 0), counts.get(f"bytes:{codec:d}", 0))
        for codec in Codec
    }
    return Holdings(
        documents=counts.get("documents", 0),
        chunks=counts.get("chunks", 0),
        verified=counts.get("verified", 0),
        unreadable=counts.get("unreadable", 0),
        bytes_text=counts.get("bytes_text", 0),
        bytes_entries=counts.get("bytes_entries", 0),
        codecs={codec: share for codec, share in shares.items() if share.records},
        slots={
            slot: records
            for slot in range(MAX_SLOT + 1)
            if (records := counts.get(f"slot:{slot}", 0))
        },
        bytes_cold=counts.get("cold", 0),
    )


def load(row: bytes) -> Collection:
    """Read what :func:`dump` wrote; a flipped bit is corrected.

    Rows that were written before there was a CRC are read as they are.

    Raises:
        RecordCorrupt: more of it is not as it was written.
    """
    stored = row
    if not row.endswith(b"}"):
        checked = crc.corrected(row[:-_BLANKS] + _from_blanks(row[-_BLANKS:]))
        stored = b"" if checked is None else checked[: -crc.CRC_BYTES]
    try:
        return Collection.model_validate_json(stored)
    except ValidationError as exc:
        raise RecordCorrupt("what is stored of a collection is damaged") from exc


def dump(collection: Collection) -> bytes:
    """Write a collection as it is stored: as JSON, with a CRC in blanks behind it.

    Processes of before the CRC read JSON and pass over blanks, so they read such a row too. An
    owner, fitted tables and what is as it was before it could be chosen are left out.
    """
    without = {"owner"} if collection.owner is None else set()
    without |= {"fitting"} if collection.fitting == Fitting() else set()
    without |= {"auto_fit"} if collection.auto_fit else set()
    without |= {"kind"} if collection.kind is CollectionKind.DOCUMENTS else set()
    fields = collection.model_dump(mode="json", exclude=without)
    checked = crc.closed(json.dumps(fields, separators=(",", ":"), sort_keys=True).encode())
    return checked[: -crc.CRC_BYTES] + _to_blanks(checked[-crc.CRC_BYTES :])


def _to_blanks(check: bytes) -> bytes:
    """Write a CRC as spaces (0) and tabs (1)."""
    bits = f"{int.from_bytes(check):0{_BLANKS}b}"
    return bits.translate(str.maketrans("01", " \t")).encode()


def _from_blanks(blanks: bytes) -> bytes:
    """Read a CRC; a blank with a flipped bit is what it is nearest to."""
    bits = "".join(
        str(int((blank ^ ord("\t")).bit_count() < (blank ^ ord(" ")).bit_count()))
        for blank in blanks
    )
    return int(bits, 2).to_bytes(crc.CRC_BYTES)

"""What is stored for a document: its entry, with one record for each chunk of its text.

The vector of a chunk is in the vector store; everything else that is needed to decode the chunk's
bytes is its **record**:

    offset  size  field
    0       1     codec in the low 3 bits, artifact slot in the high 5
    1       8     hash of the stored vector's bytes (blake2b-8): names the point, reveals a change
    9       4     checksum of the chunk's bytes (blake2b-4, keyed for each collection)
    13            payload, in the codec's own format

The *artifact slot* is an index into the collection's append-only list of codec ids, so that a
record always finds the decoder that it was written for. The checksum is keyed because an unkeyed
hash of a short log line would confirm a correct guess of the line.

The records of a document, in order, are part of its **entry**, the value that the ledger keeps:

    offset  size  field
    0       1     format version in the low 3 bits, flags in the high 5
    1       6     sequence number of the job that wrote it, big endian: the later write wins
    7       v     size of the text, bytes
    ..      v     number of records
    ..      4     with the ABOUT flag: hash of metadata and time (blake2b-4, keyed as the checksum)
    ..            for each record: v size, then the record
    ..      2     CRC-16/CCITT of all bytes before it, with the VERIFIED bits taken as 0

``v`` is an unsigned LEB128 number. An entry too long for a bucket has a key of its own, and the
bucket then holds an entry with the LONG flag and no records.

The CRC detects every single flipped bit but those of VERIFIED, which the ledger sets without
computing a CRC; VERIFIED is therefore written in two bits that must agree. The text of a damaged
entry may still be decoded, since each record has a checksum. Entries of format 1 are older: they
have neither CRC nor ABOUT, and one bit for VERIFIED.

Format 3 is format 2 of a document whose points have no payload. Their ids lead to it instead
(:func:`locating_id`); a document of the other formats is named by its points' payload.

Format 4 is a verified entry of format 2 or 3 that is in cold storage, as a :class:`Part` of an
object. What is left of each record is enough to name its point and to find its codec, without size:

    offset  size  field
            1     codec and slot
            8     hash of the vector

and behind the records stands where the part is, with a bit that says whether the entry is located:

    offset  size  field
            8     name of the object
            v     offset in it
            v     size of the part * 2 + (1 if it is of format 3)

One flipped bit of it is corrected with the CRC. The part is the entry as it was and a CRC that
corrects a flipped bit (:mod:`verso_core.crc`).
"""

from __future__ import annotations

import binascii
import hashlib
import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum, IntFlag
from itertools import chain
from typing import Any
from uuid import UUID

from verso_core import crc
from verso_core.errors import PatchCorrupt

CHECKSUM_BYTES = 4
VECTOR_HASH_BYTES = 8
RECORD_OVERHEAD_BYTES = 1 + VECTOR_HASH_BYTES + CHECKSUM_BYTES
MAX_SLOT = 31
ABOUT_BYTES = 4
_PLAIN, _CHECKED, _LOCATED, _COLD = 1, 2, 3, 4
"""Format versions: without a CRC, with one, the latter for points without payload, and one in cold
storage. No single flipped bit makes the last one another."""
_CRC_BYTES = 2
_SEQ_BYTES = 6
MAX_SEQ = (1 << 8 * _SEQ_BYTES) - 1
_CHUNK_BITS = 16  # of a locating id
_COLD_RECORD_BYTES = 1 + VECTOR_HASH_BYTES
_COLD_MASK, _COLD_BITS = 7 | 16 | 64 | 32, _COLD | 16 | 64  # format, VERIFIED and DELETED
OBJECT_BYTES = 8
"""Length of the name of an object of cold storage that holds entries."""


class Codec(IntEnum):
    """How a payload is decoded to the chunk's bytes; the numbers are on disk and never change."""

    RAW = 0
    ZSTD = 1
    NGRAM = 2
    NEURAL = 3
    SEGMENTED = 4  # several neural payloads in sequence, each after its size
    MIXTURE = 5  # the collection's own texts and the n-gram model together

    @property
    def reads_vector(self) -> bool:
        """Whether a payload of this codec is decoded with the vector of its record."""
        return self in (Codec.NEURAL, Codec.SEGMENTED)


class Flag(IntFlag):
    """What is known of an entry."""

    NONE = 0
    LONG = 8  # the records are in a key of the document's own
    VERIFIED = 16 | 64  # an independent decode of the stored bytes returned the text
    DELETED = 32  # a tombstone: an older write that arrives late must not restore the document
    ABOUT = 128  # the entry has a hash of metadata and time; set by packing only


_TWIN = 64
"""The bit that repeats VERIFIED in format 2."""


@dataclass(frozen=True, slots=True)
class Record:
    """What is stored of one chunk besides the vector that ``vector_hash`` identifies."""

    codec: Codec
    slot: int
    vector_hash: bytes
    checksum: bytes
    payload: bytes

    def pack(self) -> bytes:
        """Return the record in the format of the module's docstring."""
        head = bytes([self.codec | self.slot << 3])
        return head + self.vector_hash + self.checksum + self.payload

    @classmethod
    def unpack(cls, data: bytes) -> Record:
        """Read a record.

        Raises:
            PatchCorrupt: the data are shorter than the fixed part or name no known codec.
        """
        if len(data) < RECORD_OVERHEAD_BYTES:
            least = RECORD_OVERHEAD_BYTES
            raise PatchCorrupt(f"expected a record of >= {least} B, got {len(data)}")
        try:
            codec = Codec(data[0] & 7)
        except ValueError as exc:
            raise PatchCorrupt(f"expected codec 0..{max(Codec)}, got {data[0] & 7}") from exc
        split = 1 + VECTOR_HASH_BYTES
        return cls(
            codec=codec,
            slot=data[0] >> 3,
            vector_hash=data[1:split],
            checksum=data[split:RECORD_OVERHEAD_BYTES],
            payload=data[RECORD_OVERHEAD_BYTES:],
        )


@dataclass(frozen=True, slots=True)
class Part:
    """Where an entry and its CRC are in cold storage: name of the object, offset and size."""

    object: bytes
    offset: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Entry:
    """A stored document without its vectors and without its text.

    ``about`` is the :func:`about_hash` of its metadata and time; None for an entry of format 1,
    which has no such hash and is packed in format 1 again. ``damaged``: the bytes are not what was
    packed; nothing in the entry may be used unchecked, and it must not be packed. ``located``: its
    points have no payload, so it has neither metadata nor time, and their ids lead to the document.
    ``cold``: where the entry is in cold storage; its records have neither checksum nor payload
    then, and it must not be packed with another sequence number.
    """

    seq: int
    size_bytes: int
    records: tuple[Record, ...]
    flags: Flag = Flag.NONE
    about: bytes | None = b""
    damaged: bool = False
    located: bool = False
    cold: Part | None = None

    def pack(self) -> bytes:
        """Return the entry in the format of the module's docstring."""
        flags = self.flags | (Flag.ABOUT if self.about else Flag.NONE)
        parts = [self._head(flags, len(self.records)), self.about or b""]
        if (cold := self.cold) is not None:
            parts[0] = bytes([_COLD | int(flags)]) + parts[0][1:]
            parts += [record.pack()[:_COLD_RECORD_BYTES] for record in self.records]
            where = _varint(2 * cold.size_bytes + self.located)
            return self._closed(b"".join([*parts, cold.object, _varint(cold.offset), where]))
        for record in self.records:
            data = record.pack()
            parts += [_varint(len(data)), data]
        return self._closed(b"".join(parts))

    def moved(self, place: Part) -> Entry:
        """Return what is left of the entry once it is in cold storage."""
        left = (replace(record, checksum=b"", payload=b"") for record in self.records)
        return replace(self, records=tuple(left), cold=place)

    def part(self) -> bytes:
        """Return the part of an object that holds the entry."""
        return crc.closed(self.pack())

    def back(self, part: bytes | None) -> Entry:
        """Return the whole of an entry in cold storage; ``damaged`` if a bit had flipped.

        Args:
            part: what was read of its object; None if that is not there.

        Raises:
            PatchCorrupt: the part is not there, or is not of this entry.
        """
        if part is None:
            raise PatchCorrupt("the object of cold storage that holds the entry is not there")
        whole = Entry.unpack(crc.opened(part))
        mine = replace(self, damaged=False, flags=whole.flags)
        if self.cold is None or whole.cold is not None or whole.moved(self.cold) != mine:
            raise PatchCorrupt("the part of cold storage is of another entry")
        damaged = self.damaged or whole.damaged or not crc.intact(part)
        return replace(whole, flags=self.flags, damaged=damaged)

    def head(self) -> bytes:
        """Return the bucket's part of an entry whose records are in a key of their own."""
        return self._closed(self._head(self.flags | Flag.LONG, 0))

    def _head(self, flags: Flag, records: int) -> bytes:
        version = _LOCATED if self.located else _CHECKED
        first = _PLAIN | int(flags) & ~_TWIN if self.about is None else version | int(flags)
        return b"".join(
            [
                bytes([first]),
                self.seq.to_bytes(_SEQ_BYTES, "big"),
                _varint(self.size_bytes),
                _varint(records),
            ]
        )

    def _closed(self, data: bytes) -> bytes:
        return data if self.about is None else data + _crc(data)

    @classmethod
    def unpack(cls, data: bytes) -> Entry:
        """Read an entry.

        Raises:
            PatchCorrupt: the data do not follow the format exactly.
        """
        stored, data = data, _corrected(data)
        version, flags, damaged = _opened(data)
        if data != stored:  # whole entries whose heads are damaged are told by LONG
            flags, damaged = flags | Flag(stored[0] & Flag.LONG), True
        end = len(data) - (0 if version == _PLAIN else _CRC_BYTES)
        seq = int.from_bytes(data[1 : 1 + _SEQ_BYTES], "big")
        size, at = _read_varint(data, 1 + _SEQ_BYTES)
        count, at = _read_varint(data, at)
        about = None if version == _PLAIN else b""
        if flags & Flag.ABOUT:
            about = data[at : at + ABOUT_BYTES]
            at += ABOUT_BYTES
        known = Flag(int(flags) & ~int(Flag.ABOUT))
        if version == _COLD:
            left, cold, located = _read_cold(data[at:end], count)
            return cls(seq, size, left, known, about, damaged, located, cold)
        records = []
        for _ in range(count):
            length, at = _read_varint(data, at)
            if at + length > end:
                raise PatchCorrupt(f"expected {length} B of record at {at}, got {end - at}")
            records.append(Record.unpack(data[at : at + length]))
            at += length
        if at != end:
            raise PatchCorrupt(f"expected an entry of {at} B, got {end}")
        return cls(seq, size, tuple(records), known, about, damaged, version == _LOCATED)


def _opened(data: bytes) -> tuple[int, Flag, bool]:
    """Return the version and the flags of an entry, and whether it is damaged."""
    version = data[0] & 7 if data else 0
    if version not in range(_PLAIN, _COLD + 1) or len(data) < 1 + _SEQ_BYTES:
        found = data[:1].hex() or "nothing"
        raise PatchCorrupt(f"expected an entry of format {_PLAIN} to {_COLD}, got {found}")
    bits = data[0] & 0xF8
    if version == _PLAIN:
        if bits & (_TWIN | Flag.ABOUT):
            raise PatchCorrupt(f"expected flags of format {_PLAIN}, got {bits:#04x}")
        return version, Flag(bits | (_TWIN if bits & Flag.VERIFIED else 0)), False
    halved = bits & Flag.VERIFIED not in (0, Flag.VERIFIED)
    damaged = halved or _crc(data[:-_CRC_BYTES]) != data[-_CRC_BYTES:]
    if damaged and bits & Flag.DELETED:
        raise PatchCorrupt("expected an intact entry of a deleted document, got a damaged one")
    return version, Flag(bits | Flag.VERIFIED if halved else bits), damaged


def _corrected(data: bytes) -> bytes:
    """Return an entry in cold storage with a flipped bit corrected; all else as it is.

    Raises:
        PatchCorrupt: it is one, and more of it is not as it was written.
    """
    if len(data) < 1 + _SEQ_BYTES + _CRC_BYTES or data[0] & 7 in (_PLAIN, _CHECKED, _LOCATED):
        return data
    verified = bytes([data[0] | int(Flag.VERIFIED)]) + data[1:]  # no other entry is moved
    near = (crc.flipped(verified, place) for place in range(8 * len(data)))
    for one in chain([verified], near):
        if one[0] & _COLD_MASK == _COLD_BITS and _crc(one[:-_CRC_BYTES]) == one[-_CRC_BYTES:]:
            return one
    if data[0] & 7 == _COLD:
        raise PatchCorrupt("expected an entry in cold storage, got one that is damaged")
    return data


def _read_cold(data: bytes, count: int) -> tuple[tuple[Record, ...], Part, bool]:
    """Read records without checksum and payload, where the entry is, and whether it is located."""
    at = count * _COLD_RECORD_BYTES
    if at + OBJECT_BYTES > len(data):
        raise PatchCorrupt(f"expected {count} records in cold storage, got {len(data)} bytes")
    try:
        records = tuple(
            Record(Codec(data[n] & 7), data[n] >> 3, data[n + 1 : n + _COLD_RECORD_BYTES], b"", b"")
            for n in range(0, at, _COLD_RECORD_BYTES)
        )
    except ValueError as exc:
        raise PatchCorrupt(f"expected codecs 0..{max(Codec)}, got another") from exc
    offset, end = _read_varint(data, at + OBJECT_BYTES)
    size, end = _read_varint(data, end)
    if end != len(data):
        raise PatchCorrupt("expected a place in cold storage, got other bytes")
    return records, Part(data[at : at + OBJECT_BYTES], offset, size >> 1), bool(size & 1)


def _crc(data: bytes) -> bytes:
    """Return the CRC-16/CCITT (ITU-T V.41, initial value 0xFFFF) of an entry. Shape: 2 bytes."""
    steady = bytes([data[0] & ~int(Flag.VERIFIED)]) + data[1:]
    return binascii.crc_hqx(steady, 0xFFFF).to_bytes(_CRC_BYTES, "big")


def seq_of(data: bytes) -> int:
    """Return the sequence number of a packed entry without unpacking it."""
    return int.from_bytes(data[1 : 1 + _SEQ_BYTES], "big")


def written_by(data: bytes, seq: int) -> Entry | None:
    """Return the entry that a job wrote, if a stored one differs only in its sequence number.

    Args:
        data: an entry that seems to be damaged or written by another job.
        seq: the job's sequence number. With this number the CRC must be right.
    """
    try:
        entry = Entry.unpack(data[:1] + seq.to_bytes(_SEQ_BYTES, "big") + data[1 + _SEQ_BYTES :])
    except PatchCorrupt:
        return None
    return None if entry.damaged or entry.about is None else entry


def checksum(text: bytes, *, key: bytes) -> bytes:
    """Hash a chunk's bytes under its collection's key (blake2b, RFC 7693). Shape: 4 bytes."""
    return hashlib.blake2b(text, digest_size=CHECKSUM_BYTES, key=key).digest()


def about_hash(metadata: Mapping[str, Any] | None, time: float | None, *, key: bytes) -> bytes:
    """Hash a document's metadata and time. Shape: 4 bytes, or b"" if it has neither.

    Args:
        metadata: a flat object of scalars, in any order.
        time: Unix seconds.
        key: the collection's checksum key.
    """
    if not metadata and time is None:
        return b""
    said = json.dumps([metadata or {}, None if time is None else float(time)], sort_keys=True)
    return hashlib.blake2b(said.encode(), digest_size=ABOUT_BYTES, key=key).digest()


def vector_hash(stored: bytes) -> bytes:
    """Hash a vector's bytes exactly as the store returns them (blake2b). Shape: 8 bytes."""
    return hashlib.blake2b(stored, digest_size=VECTOR_HASH_BYTES).digest()


def point_id(collection: str, document: str, *, seq: int, chunk: int, vector: bytes) -> UUID:
    """Return the id of the point of one chunk.

    The id depends on the vector's bytes: an attempt that repeats a write stores the same bytes
    under the same id, and one that computed other bytes makes an orphan. The bytes that a committed
    record depends on are thus never changed.

    Args:
        collection: name of the collection.
        document: id of the document.
        seq: sequence number of the job that writes it.
        chunk: index of the chunk in the document, >= 0.
        vector: the 8 bytes of :func:`vector_hash`.
    """
    name = b"\0".join([collection.encode(), document.encode()])
    digest = hashlib.blake2b(name, digest_size=16, person=b"verso.point")
    digest.update(struct.pack("<QQ", seq, chunk) + vector)
    return UUID(bytes=digest.digest(), version=5)


def locating_id(collection: str, document: str, *, seq: int, chunk: int, vector: bytes) -> UUID:
    """Return the id of the point of one chunk, of a document whose points have no payload.

        bits  field
        64    hash of the document's id by which its bucket is chosen, lowest bit first
        48    of :func:`point_id` of the chunk
        16    chunk

    A bucket is the hash modulo a power of two, so points of one bucket are neighbours: who reads
    points in the order of their ids reads each bucket once.

    Args: as of :func:`point_id`.
    """
    unique = point_id(collection, document, seq=seq, chunk=chunk, vector=vector).bytes[:6]
    low = int.from_bytes(unique, "big") << _CHUNK_BITS | chunk & ((1 << _CHUNK_BITS) - 1)
    return UUID(int=_reversed(document_hash(document)) << 64 | low)


def located(point: UUID) -> tuple[int, int]:
    """Return the hash of the document's id, and the chunk, that a locating id holds."""
    return _reversed(point.int >> 64), point.int & ((1 << _CHUNK_BITS) - 1)


def _reversed(number: int) -> int:
    """Return 64 bits in the opposite order."""
    return int(f"{number:064b}"[::-1], 2)


def point_ids(collection: str, document: str, entry: Entry) -> list[UUID]:
    """Return the ids of the points that an entry's records depend on, in order."""
    id_of = locating_id if entry.located else point_id
    return [
        id_of(collection, document, seq=entry.seq, chunk=n, vector=record.vector_hash)
        for n, record in enumerate(entry.records)
    ]


def document_hash(document: str) -> int:
    """Return the 64-bit hash of a document's id (blake2b)."""
    digest = hashlib.blake2b(document.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big")


def bucket_of(document: str, *, buckets: int) -> int:
    """Return which of a collection's buckets holds a document's entry."""
    return document_hash(document) % buckets


def total_payload(records: Sequence[Record]) -> int:
    """Return the size of the records' patches, bytes: one for the codec, and the payload, each."""
    return sum(1 + len(record.payload) for record in records)


def pack_parts(parts: Sequence[bytes]) -> bytes:
    """Join byte strings, each after its size: the payload of a SEGMENTED record."""
    return b"".join(_varint(len(part)) + part for part in parts)


def unpack_parts(data: bytes) -> list[bytes]:
    """Undo :func:`pack_parts`.

    Raises:
        PatchCorrupt: the data do not follow the format exactly.
    """
    parts, at = [], 0
    while at < len(data):
        size, at = _read_varint(data, at)
        if at + size > len(data):
            raise PatchCorrupt(f"expected {size} B of payload at {at}, got {len(data) - at}")
        parts.append(data[at : at + size])
        at += size
    return parts


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data) and shift < 63:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise PatchCorrupt(f"expected a number at byte {at} of {len(data)}")

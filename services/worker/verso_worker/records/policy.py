"""Which codecs are tried for a chunk, and which of their payloads is kept.

A payload is priced in bytes: its own, and those that its reading costs. Under ``smallest`` reading
costs nothing. Under ``balanced`` a millisecond of a core costs ``BYTES_PER_MS``: to be kept, the
decoder must save a tenth of a text's length. Under ``fast`` slow codecs are not tried.

Coding with the decoder takes half as long as encoding a chunk. Under ``balanced`` it is tried only
where the best other payload is long enough, and on the rest of a batch only if it won among the
first chunks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from verso_core.jobs import CodecPolicy
from verso_core.record import Codec

Offer = tuple[Codec, bytes]
"""A codec and the payload that it coded."""

BYTES_PER_MS = 2.0
"""Bytes that a millisecond of reading must save.

A byte in the ledger's memory costs in a year about as much as 4 ms of a core (3.5 dollars a month
for a GB, 0.04 for an hour of a core). Every read costs again: those of callers, the verify after
the ingest, and the scrub. At 2 B/ms a record that is read eight times a year breaks even.
"""

MS_PER_KB: Mapping[Codec, float] = {
    Codec.RAW: 0.0,
    Codec.ZSTD: 0.03,
    Codec.NGRAM: 0.9,
    Codec.MIXTURE: 6.0,
    Codec.NEURAL: 50.0,
    Codec.SEGMENTED: 50.0,
}
"""What decoding 1000 bytes of text takes of a core, measured; one text alone takes longer."""

FAST_MS_PER_KB = 0.1
"""10 MB/s: the slowest codec under ``fast``."""

MOST_SAVED = 1 / 3
"""The decoder saves more than this part of the best other payload in 5 % of the sample corpus."""

PROBES = 8
"""Chunks of a batch that the decoder codes first; if it wins none, it codes no other."""


def allowed(codec: Codec, policy: CodecPolicy) -> bool:
    """Whether a codec is tried at all."""
    return policy is not CodecPolicy.FAST or MS_PER_KB[codec] <= FAST_MS_PER_KB


def price(offer: Offer, policy: CodecPolicy, *, size_bytes: int) -> float:
    """Return what a payload costs, bytes; ``size_bytes`` is the size of its chunk."""
    codec, payload = offer
    return price_of(codec, len(payload), policy, size_bytes=size_bytes)


def price_of(codec: Codec, payload_bytes: int, policy: CodecPolicy, *, size_bytes: int) -> float:
    """Return what a payload of so many bytes costs, bytes."""
    if policy is CodecPolicy.SMALLEST:
        return payload_bytes
    return payload_bytes + _reading(codec, size_bytes)


def ordered(offers: Sequence[Offer], policy: CodecPolicy, *, size_bytes: int) -> list[Offer]:
    """Return a chunk's payloads, cheapest first; of two equal ones, the one that is read faster."""
    return sorted(offers, key=lambda one: (price(one, policy, size_bytes=size_bytes), one[0]))


def decoder_may_win(offers: Sequence[Offer], policy: CodecPolicy, *, size_bytes: int) -> bool:
    """Whether the decoder's payload may be cheaper than all of a chunk's other payloads."""
    if policy is not CodecPolicy.BALANCED:
        return allowed(Codec.NEURAL, policy)
    best = min(price(one, policy, size_bytes=size_bytes) for one in offers)
    smallest = min(len(payload) for _, payload in offers)
    return smallest * (1 - MOST_SAVED) + _reading(Codec.NEURAL, size_bytes) < best


def parts(rows: Sequence[int], policy: CodecPolicy) -> list[list[int]]:
    """Split the chunks where the decoder may win: it codes a part only if it won in the one before.

    Under ``balanced`` the first part holds a few chunks from all over the batch.
    """
    step = len(rows) // PROBES
    if policy is not CodecPolicy.BALANCED or step < 2:
        return [list(rows)]
    return [list(rows[::step]), [row for at, row in enumerate(rows) if at % step]]


def _reading(codec: Codec, size_bytes: int) -> float:
    """Return what reading a chunk costs, bytes."""
    return BYTES_PER_MS * MS_PER_KB[codec] * size_bytes / 1000

"""Tables fitted to a collection's texts: how they are fitted, packed, and checked when read.

A fit takes the collection's newest chunks, in the order in which they were written:

1. Fit a mixture (:mod:`verso_codecs.mixture`) to the first 85 %, round it to several steps, and
   measure what the others take. The sizes are compared under the collection's codec policy with
   what the chunks take now, by the tables that write now and by the artifact.
2. If the collection, ``GROWTH`` times as large, would save more than tables of the first 85 % take,
   and ``LEAST_GAIN``, keep tables that are fitted to all chunks.
3. Code golden samples, decode them, and pack tables and samples.

A worker that loads tables decodes the golden samples first: a machine that computes other bits is
found before a record depends on it.

All records of a generation need its tables, so they are stored with a CRC that corrects a flipped
bit (:mod:`verso_core.crc`); their hash, which the generation's id has, says what is right.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping, Sequence

from verso_codecs import mixture
from verso_codecs.mixture import MixtureTables
from verso_codecs.ngram import NgramTables
from verso_core import crc, frame
from verso_core.errors import ArtifactInvalid, FrameInvalid, PatchCorrupt
from verso_core.jobs import CodecPolicy
from verso_core.jobs.fitting import artifact_of
from verso_core.record import Codec
from verso_worker.records import policy as policies
from verso_worker.records.outputs import Trial, Wanted

LEAST_GAIN = 0.05
"""Share of the patch bytes that new tables must save."""

GROWTH = 8
"""Tables must pay once a collection is so many times as large: 24 kB that save 2.6 bytes a
line more than the tables before do not within the 2,000 lines that are there."""

FEWEST_TEXTS = 200
"""With fewer chunks no choice carries over to the next ones."""

STEPS = (256, 512, 1024)
"""Steps to which weights may be rounded, in 1/65536. Coarse ones make tables smaller, and patches
larger by up to 2 %: which is better depends on how many chunks there are."""

GOLDEN = 16
"""Texts that golden samples are made of; each gives two."""

_FORMAT = 1
_DIGEST_BYTES = 8
_NEXT_DIGIT = bytes.maketrans(b"0123456789", b"1234567890")


def fit(wanted: Wanted, general: NgramTables) -> Trial:
    """Fit tables to chunks, and keep them if they pay.

    Args:
        wanted: the chunks.
        general: the n-gram tables of the artifact that writes into the collection.

    Raises:
        ArtifactInvalid: a golden sample does not decode to its text.
    """
    texts = [text for text in wanted.texts if text]
    if len(texts) < FEWEST_TEXTS:
        return Trial(0, 0.0, 0.0, 0, None)
    tried = MixtureTables.fit_tried(texts, general, steps=STEPS)
    golden, many = samples(texts), wanted.chunks * GROWTH
    offered = {step: pack(tried.tables.rounded(step), golden) for step in STEPS}
    before, levels = _compared(wanted, texts, tried.sizes, general)
    step = min(STEPS, key=lambda step: levels[step] * many + len(offered[step]))
    after, packed = levels[step], offered[step]
    held = len(tried.sizes[step])
    # What was measured are tables of the texts before those held out: smaller, and they gain less.
    share = 1 - sum(map(len, texts[-held:])) / sum(map(len, texts))
    pays = (before - after) * many >= share * len(packed) and before - after >= LEAST_GAIN * before
    return Trial(held, before, after, len(packed), packed if pays or wanted.force else None)


def _compared(
    wanted: Wanted,
    texts: Sequence[bytes],
    sizes: Mapping[int, Sequence[float]],
    general: NgramTables,
) -> tuple[float, dict[int, float]]:
    """Return the mean patch bytes of held-out chunks, the last ones: as they are coded now, and by
    the step to which new tables are rounded.
    """
    serving = None if wanted.serving is None else unpack(wanted.serving, general)
    stored = [kept for text, kept in zip(wanted.texts, wanted.stored, strict=True) if text]
    held = len(next(iter(sizes.values())))
    now, then = 0, dict.fromkeys(sizes, 0)
    for at in range(-held, 0):
        text, kept = texts[at], stored[at]
        offers = [(Codec.RAW, len(text))]
        if kept[0] is not Codec.MIXTURE:
            offers.append(kept)
        if serving is not None:
            offers.append((Codec.MIXTURE, len(mixture.encode(text, serving))))
        elif kept[0] is Codec.MIXTURE:  # by the artifact's own tables, which it goes on using
            offers.append(kept)
        now += 1 + _cheapest(offers, wanted.policy, text)
        for step in then:
            own = (Codec.MIXTURE, round(sizes[step][at] + 0.5))
            then[step] += 1 + _cheapest([*offers, own], wanted.policy, text)
    return now / held, {step: size / held for step, size in then.items()}


def _cheapest(offers: Sequence[tuple[Codec, int]], policy: CodecPolicy, text: bytes) -> int:
    """Return the size of the payload that a policy chooses."""
    priced = [(policies.price_of(c, n, policy, size_bytes=len(text)), n) for c, n in offers]
    return min(priced)[1]


def samples(texts: Sequence[bytes]) -> list[bytes]:
    """Return texts for golden samples: some as they are, and with every digit changed.

    The former are matched as a whole, the latter are coded by the model as well.
    """
    step = max(1, len(texts) // GOLDEN)
    chosen = list(texts[::step][:GOLDEN])
    return chosen + [text.translate(_NEXT_DIGIT) for text in chosen]


def pack(tables: MixtureTables, golden: Sequence[bytes]) -> bytes:
    """Code golden samples, check that they decode, and pack them with the tables.

    Raises:
        ArtifactInvalid: one does not decode to its text.
    """
    payloads = [mixture.encode(text, tables) for text in golden]
    _check(tables, golden, payloads)
    digests = [_digest(text) for text in golden]
    header = {"format": _FORMAT, "salt": secrets.token_hex(8)}
    blobs = [tables.pack(), b"".join(digests), *payloads]
    return frame.pack(header, blobs)


def unpack(packed: bytes, general: NgramTables) -> MixtureTables:
    """Read packed tables, and decode their golden samples.

    Args:
        packed: what :func:`pack` returned.
        general: the n-gram tables that they were fitted with.

    Raises:
        ArtifactInvalid: they are damaged, or this machine decodes a sample to another text.
    """
    try:
        header, [data, digests, *payloads] = frame.unpack(packed)
    except (FrameInvalid, ValueError) as exc:
        raise ArtifactInvalid(f"fitted tables: {exc}") from exc
    if header.get("format") != _FORMAT:
        raise ArtifactInvalid(
            f"fitted tables: expected format {_FORMAT}, got {header.get('format')!a}"
        )
    tables = MixtureTables.unpack(data, general)
    found = [digests[at : at + _DIGEST_BYTES] for at in range(0, len(digests), _DIGEST_BYTES)]
    if [_digest(_decoded(tables, payload)) for payload in payloads] != found:
        raise ArtifactInvalid("fitted tables: a golden sample decodes to another text here")
    return tables


def name_of(codec: str, packed: bytes) -> str:
    """Return the id of a generation: the artifact's codec id, and a hash of the packed tables."""
    return f"{codec}.{hashlib.blake2b(packed, digest_size=8).hexdigest()}"


def closed(packed: bytes) -> bytes:
    """Return packed tables as they are stored."""
    return crc.closed(packed)


def opened(name: str, stored: bytes) -> bytes:
    """Return the packed tables of a generation as they were made, one flipped bit corrected.

    Args:
        name: the generation's id.
        stored: what :func:`closed` returned, or an earlier version's packed tables without a CRC.

    Raises:
        ArtifactInvalid: more than one bit is not as it was stored.
    """
    right = crc.corrected(stored)
    for packed in (stored, b"" if right is None else right[: -crc.CRC_BYTES]):
        if name_of(artifact_of(name), packed) == name:
            return packed
    raise ArtifactInvalid(f"the stored tables of generation {name} are damaged")


def _check(tables: MixtureTables, texts: Sequence[bytes], payloads: Sequence[bytes]) -> None:
    if any(_decoded(tables, one) != text for one, text in zip(payloads, texts, strict=True)):
        raise ArtifactInvalid("fitted tables: a golden sample does not decode to its text")


def _decoded(tables: MixtureTables, payload: bytes) -> bytes:
    try:
        return mixture.decode(payload, tables)
    except PatchCorrupt as exc:
        raise ArtifactInvalid(f"fitted tables: a golden sample: {exc}") from exc


def _digest(text: bytes) -> bytes:
    return hashlib.blake2b(text, digest_size=_DIGEST_BYTES).digest()

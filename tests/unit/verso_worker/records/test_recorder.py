"""The smallest payload that reads back is kept; what does not read back is never given out."""

from __future__ import annotations

import dataclasses
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from verso_codecs.zstd import ZstdCodec
from verso_core.errors import RecordCorrupt
from verso_core.jobs import CodecPolicy, Precision
from verso_core.record import Codec, Record, checksum, vector_hash
from verso_worker.records.policy import PROBES
from verso_worker.records.recorder import Encoded, Guess, Recorder
from verso_worker.records.space import Space, Stored, Vector

KEY = b"key of the collection"
SPACE = Space(Precision.FLOAT16, 4, 100.0)


@dataclass
class Decoder:
    """A decoder that knows some texts by heart: its payload is the text's place in the list.

    It misreads what is in ``shaky`` when disturbed, and what is in ``crowded`` in company.
    """

    known: list[bytes]
    shaky: set[bytes] = field(default_factory=set)
    crowded: set[bytes] = field(default_factory=set)
    coded: int = 0

    def encode(self, texts: Sequence[bytes]) -> Encoded:
        raise AssertionError("records are written for vectors that are there")

    def code(self, texts: Sequence[bytes], vectors: Vector) -> list[bytes | None]:
        self.coded += len(texts)
        return [bytes([self.known.index(t)]) if t in self.known else None for t in texts]

    def read(
        self,
        payloads: Sequence[bytes],
        vectors: Vector,
        *,
        disturbed: bool = False,
        drafts: Sequence[bytes] | None = None,
    ) -> list[bytes | None]:
        texts: list[bytes | None] = []
        for payload in payloads:
            place = payload[0] if payload else len(self.known)
            text = self.known[place] if place < len(self.known) else None
            wrong = (disturbed and text in self.shaky) or (
                len(payloads) > 1 and text in self.crowded
            )
            texts.append(b"wrong" if wrong else text)
        return texts

    def guess(self, vectors: Vector, *, beam: int, max_tokens: int) -> list[Guess]:
        raise AssertionError("nothing is guessed here")

    def segments(self, chunk: bytes) -> list[bytes]:
        return [part + b"|" for part in chunk[:-1].split(b"|")] if b"|" in chunk else [chunk]


def _stored(count: int) -> Stored:
    rng = np.random.default_rng(7)
    return SPACE.round(rng.standard_normal((count, 4)).astype(np.float32))


def _recorder(decoder: Decoder) -> Recorder:
    return Recorder(decoder, {Codec.ZSTD: ZstdCodec(b"")}, decoder)


def _write(
    recorder: Recorder,
    chunks: list[bytes],
    stored: Stored,
    *,
    policy: CodecPolicy = CodecPolicy.SMALLEST,
) -> list[Record]:
    return recorder.write(chunks, stored, precision=SPACE, slot=3, key=KEY, policy=policy)


def test_the_smallest_payload_wins() -> None:
    repeated = b"the same again and again " * 20
    chunks = [b"known by heart", b"abc", repeated]
    records = _write(_recorder(Decoder([chunks[0]])), chunks, _stored(3))
    assert [record.codec for record in records] == [Codec.NEURAL, Codec.RAW, Codec.ZSTD]
    assert all(record.slot == 3 for record in records)


def test_a_chunk_of_several_segments_is_coded_segment_by_segment() -> None:
    parts = [b"one part of it|", b"another part|", b"a third one|"]
    recorder = _recorder(Decoder(parts))
    stored = _stored(2)
    chunks = [b"".join(parts), parts[1]]
    records = _write(recorder, chunks, stored)
    assert [record.codec for record in records] == [Codec.SEGMENTED, Codec.NEURAL]
    assert records[0].payload == b"\x01\x00\x01\x01\x01\x02"
    assert recorder.read(records, list(stored), precision=SPACE, key=KEY) == chunks


def test_a_chunk_with_one_segment_that_the_decoder_cannot_take_is_not_neural() -> None:
    known = b"one part of it|"
    [record] = _write(_recorder(Decoder([known])), [known + b"unknown|"], _stored(1))
    assert not record.codec.reads_vector


@pytest.mark.parametrize("payload", [b"", b"\x01", b"\x05\x00", b"\xff" * 12, b"\x00"])
def test_segments_that_are_none_are_corrupt(payload: bytes) -> None:
    stored = _stored(1)
    record = Record(
        Codec.SEGMENTED, 0, vector_hash(SPACE.raw(stored[0])), checksum(b"x", key=KEY), payload
    )
    [found] = _recorder(Decoder([])).read([record], list(stored), precision=SPACE, key=KEY)
    assert isinstance(found, RecordCorrupt)


def test_a_payload_that_fails_under_disturbance_is_not_kept() -> None:
    text = b"near a tie"
    [record] = _write(_recorder(Decoder([text], shaky={text})), [text], _stored(1))
    assert record.codec is Codec.RAW


def test_a_fast_record_uses_no_model() -> None:
    text = b"known by heart"
    decoder = Decoder([text])
    [record] = _write(_recorder(decoder), [text], _stored(1), policy=CodecPolicy.FAST)
    assert record.codec in (Codec.RAW, Codec.ZSTD)
    assert decoder.coded == 0


def test_a_balanced_record_keeps_a_payload_that_saves_enough() -> None:
    """The decoder's payload has one byte; reading it costs a tenth of the text."""
    text = b"a line that no other codec makes shorter: 8f3a91c2"
    [record] = _write(_recorder(Decoder([text])), [text], _stored(1), policy=CodecPolicy.BALANCED)
    assert record.codec is Codec.NEURAL


def test_a_balanced_record_does_not_try_what_cannot_win() -> None:
    """Repeated text has a short payload already: no other one could save a tenth of the text."""
    text = b"the same again and again " * 20
    decoder = Decoder([text])
    [record] = _write(_recorder(decoder), [text], _stored(1), policy=CodecPolicy.BALANCED)
    assert record.codec is Codec.ZSTD
    assert decoder.coded == 0


@pytest.mark.parametrize(("known", "coded"), [(0, PROBES), (40, 40)])
def test_the_decoder_goes_on_only_if_it_won_among_the_first(known: int, coded: int) -> None:
    chunks = [f"{secrets.token_hex(20)} {n}".encode() for n in range(40)]
    decoder = Decoder(chunks[:known])
    records = _write(_recorder(decoder), chunks, _stored(40), policy=CodecPolicy.BALANCED)
    assert sum(record.codec is Codec.NEURAL for record in records) == known
    assert decoder.coded == coded


@given(
    chunks=st.lists(st.binary(max_size=80), min_size=1, max_size=24),
    policy=st.sampled_from(CodecPolicy),
)
def test_any_chunks_read_back(chunks: list[bytes], policy: CodecPolicy) -> None:
    stored = _stored(len(chunks))
    recorder = _recorder(Decoder(chunks[::2]))
    records = _write(recorder, chunks, stored, policy=policy)
    assert recorder.read(records, list(stored), precision=SPACE, key=KEY) == chunks


def test_a_record_needs_its_vector_only_for_the_decoder() -> None:
    chunks = [b"known by heart", b"abc"]
    recorder = _recorder(Decoder(chunks[:1]))
    records = _write(recorder, chunks, _stored(2))
    neural, raw = recorder.read(records, [None, None], precision=SPACE, key=KEY)
    assert isinstance(neural, RecordCorrupt)
    assert raw == b"abc"


def test_a_vector_that_changed_is_noticed() -> None:
    text = b"known by heart"
    stored = _stored(1)
    recorder = _recorder(Decoder([text]))
    [record] = _write(recorder, [text], stored)
    other = stored[0].copy()
    other[0] += np.float16(0.5)
    [found] = recorder.read([record], [other], precision=SPACE, key=KEY)
    assert isinstance(found, RecordCorrupt)


@pytest.mark.parametrize("codec", [Codec.RAW, Codec.ZSTD, Codec.NEURAL])
def test_a_wrong_text_is_never_given(codec: Codec) -> None:
    payload = {
        Codec.RAW: b"wrong",
        Codec.ZSTD: ZstdCodec(b"").encode(b"wrong"),
        Codec.NEURAL: b"\0",
    }[codec]
    stored = _stored(1)
    record = Record(
        codec, 0, vector_hash(SPACE.raw(stored[0])), checksum(b"right", key=KEY), payload
    )
    recorder = _recorder(Decoder([b"wrong"]))
    [found] = recorder.read([record], list(stored), precision=SPACE, key=KEY)
    assert isinstance(found, RecordCorrupt)


def test_garbage_in_a_payload_is_corrupt_and_leaves_its_neighbours_alone() -> None:
    chunks = [b"abc" * 40, b"fine"]
    recorder = _recorder(Decoder([]))
    stored = _stored(2)
    records = _write(recorder, chunks, stored)
    records[0] = dataclasses.replace(records[0], payload=b"\xff" * 9)
    broken, fine = recorder.read(records, list(stored), precision=SPACE, key=KEY)
    assert isinstance(broken, RecordCorrupt)
    assert fine == b"fine"


def test_a_record_misread_in_company_is_read_alone() -> None:
    """The canonical decode is the one in the smallest batch; it is tried before giving up."""
    chunks = [b"one of two", b"two of two"]
    recorder = _recorder(Decoder(chunks, crowded={chunks[0]}))
    stored = _stored(2)
    records = [
        Record(
            Codec.NEURAL,
            0,
            vector_hash(SPACE.raw(row)),
            checksum(chunk, key=KEY),
            bytes([place]),
        )
        for place, (chunk, row) in enumerate(zip(chunks, stored, strict=True))
    ]
    assert recorder.read(records, list(stored), precision=SPACE, key=KEY) == chunks


@pytest.mark.parametrize("precision", Precision)
def test_every_flipped_bit_of_a_stored_vector_is_found(precision: Precision) -> None:
    """A decoder reads any vector, so only the hash tells a wrong one from the right one."""
    space = Space(precision, 4, 100.0)
    text = b"known by heart"
    recorder = _recorder(Decoder([text]))
    vector = np.array([[0.5, -0.25, 0.125, 0.75]], np.float32)
    stored = space.round(vector)
    [record] = recorder.write(
        [text], stored, precision=space, slot=3, key=KEY, policy=CodecPolicy.SMALLEST
    )
    assert record.codec is Codec.NEURAL
    [right] = recorder.read([record], [stored[0]], precision=space, key=KEY)
    assert right == text
    raw = bytearray(stored.tobytes())
    for bit in range(8 * len(raw)):
        raw[bit // 8] ^= 1 << bit % 8
        wrong = np.frombuffer(bytes(raw), stored.dtype)
        [told] = recorder.read([record], [wrong], precision=space, key=KEY)
        assert isinstance(told, RecordCorrupt)
        raw[bit // 8] ^= 1 << bit % 8

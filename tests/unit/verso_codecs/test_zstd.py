"""The zstd codec restores texts exactly and refuses what is not a frame of its own."""

import contextlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from verso_codecs import zstd
from verso_codecs.zstd import ZstdCodec
from verso_core.errors import ArtifactInvalid, PatchCorrupt

SAMPLES = [b"error at line %d: cannot open file %d\n" % (n, n * 7919 % 1000) for n in range(2000)]


@pytest.fixture(scope="module")
def codec() -> ZstdCodec:
    return ZstdCodec(zstd.train(SAMPLES, 8192))


@given(text=st.binary(max_size=2000))
def test_any_bytes_come_back(codec: ZstdCodec, text: bytes) -> None:
    assert codec.decode(codec.encode(text)) == text


def test_a_dictionary_helps_texts_like_its_samples(codec: ZstdCodec) -> None:
    plain = ZstdCodec(b"")
    text = b"error at line 77: cannot open file 123\n"
    assert plain.decode(plain.encode(text)) == text
    assert len(codec.encode(text)) < len(plain.encode(text)) / 1.5


def test_all_of_a_dictionary_is_within_reach() -> None:
    """A text is far shorter than the dictionary; its start must count as much as its end."""
    passage = np.random.default_rng(1).bytes(200)
    far, near = passage + bytes(60_000), bytes(60_000) + passage
    assert [len(ZstdCodec(raw).encode(passage)) < 30 for raw in (far, near)] == [True, True]


def test_too_few_samples_still_give_a_dictionary() -> None:
    codec = ZstdCodec(zstd.train([b"one short sample"], 4096))
    assert codec.decode(codec.encode(b"one short sample")) == b"one short sample"


@given(payload=st.binary(max_size=60))
def test_hostile_payloads_decode_to_something_or_are_refused(
    codec: ZstdCodec, payload: bytes
) -> None:
    with contextlib.suppress(PatchCorrupt):
        assert len(codec.decode(payload, limit_bytes=1 << 16)) <= 1 << 16


def test_a_text_beyond_the_limit_is_refused(codec: ZstdCodec) -> None:
    payload = codec.encode(bytes(100_000))
    assert codec.decode(payload, limit_bytes=100_000) == bytes(100_000)
    with pytest.raises(PatchCorrupt):
        codec.decode(payload, limit_bytes=99_999)


def test_truncated_and_lengthened_frames_are_refused(codec: ZstdCodec) -> None:
    payload = codec.encode(b"something long enough to hold a few literal bytes 8712936")
    for wrong in (payload[:-1], payload + b"\0", payload * 2, payload + bytes(600), b""):
        with pytest.raises(PatchCorrupt):
            codec.decode(wrong)


def test_a_payload_of_runs_is_stopped_early() -> None:
    """RFC 8878, 3.1.1.2: four bytes of an RLE block stand for up to 128 KiB."""
    header = bytes([0x00, 0x58])  # no content size; window of 2 MiB
    run = ((128 << 10) << 3 | 1 << 1).to_bytes(3, "little") + b"a"
    with pytest.raises(PatchCorrupt):
        ZstdCodec(b"").decode(header + run * 10_000, limit_bytes=1 << 20)


def test_a_damaged_dictionary_is_refused() -> None:
    dictionary = bytearray(zstd.train(SAMPLES, 8192))
    dictionary[8:40] = b"\xff" * 32
    with pytest.raises(ArtifactInvalid):
        ZstdCodec(bytes(dictionary))

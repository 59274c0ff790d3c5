"""Cutting keeps every byte in order, and every chunk fits both windows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
from tokenizers import decoders as token_decoders

from verso_worker.records.chunking import Cutter

DECODER_WINDOW = 32
ENCODER_WINDOW = 24


def _byte_level() -> Tokenizer:
    """Return a lossless byte-level tokenizer with one token a byte: the hardest for a cutter."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({symbol: n for n, symbol in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = token_decoders.ByteLevel()
    return tokenizer


def _word_pieces() -> Tokenizer:
    """Return a tokenizer with one token a letter, which drops white space and control
    characters.
    """
    vocabulary = {"[UNK]": 0}
    for letter in "abcdefghijklmnopqrstuvwxyz.":
        vocabulary[letter] = len(vocabulary)
        vocabulary["##" + letter] = len(vocabulary)
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return tokenizer


@pytest.fixture(scope="module")
def cutter() -> Cutter:
    return Cutter(
        decoder=_byte_level(),
        encoder=_word_pieces(),
        max_decoder_tokens=DECODER_WINDOW,
        max_encoder_tokens=ENCODER_WINDOW,
    )


_texts = st.one_of(
    st.binary(max_size=600),
    st.text(max_size=300).map(str.encode),
    st.lists(
        st.sampled_from(["word", " ", "\n", "\r\n", ". ", "é", "👩‍👩‍👧", "\t", "\0"]), max_size=200
    ).map(lambda parts: "".join(parts).encode()),
)


@given(text=_texts)
def test_joined_chunks_are_the_text(cutter: Cutter, text: bytes) -> None:
    chunks = cutter.cut(text)
    assert b"".join(chunks) == text
    assert chunks == [b""] or all(chunks)
    assert cutter.first(text) == chunks[0]


@given(text=st.text(max_size=400).map(str.encode))
def test_every_chunk_of_utf8_is_utf8(cutter: Cutter, text: bytes) -> None:
    for chunk in cutter.cut(text):
        assert chunk.decode().encode() == chunk


@given(text=_texts)
def test_joined_segments_are_the_chunk_and_fit_the_decoder(cutter: Cutter, text: bytes) -> None:
    for chunk in cutter.cut(text):
        segments = cutter.segments(chunk)
        assert b"".join(segments) == chunk
        if len(segments) == 1:
            continue
        for segment in segments:
            tokens = cutter.decoder.encode(segment.decode(), add_special_tokens=False).ids
            assert len(tokens) < DECODER_WINDOW


def test_segments_are_of_about_equal_length(cutter: Cutter) -> None:
    sizes = [len(part) for part in cutter.segments(b"ab " * 12)]
    assert len(sizes) == 2
    assert max(sizes) < 1.5 * min(sizes)


def test_text_that_the_encoder_does_not_see_makes_no_endless_chunk(cutter: Cutter) -> None:
    chunks = cutter.cut(b" " * 4000)
    assert max(map(len, chunks)) <= 8 * DECODER_WINDOW


@given(words=st.lists(st.sampled_from(["a", "bc", "def", "ghij"]), max_size=120))
def test_every_chunk_fits_the_encoder(cutter: Cutter, words: list[str]) -> None:
    for chunk in cutter.cut(" ".join(words).encode()):
        tokens = cutter.encoder.encode(chunk.decode(), add_special_tokens=False).ids
        assert len(tokens) + 2 <= ENCODER_WINDOW


def test_a_cut_falls_behind_a_line_where_there_is_one(cutter: Cutter) -> None:
    text = b"first line of a log\nsecond line of a log\n"
    assert cutter.cut(text) == [b"first line of a log\n", b"second line of a log\n"]
    assert cutter.segments(b"first line\nof a text\nthat is long\n") == [
        b"first line\nof a text\n",
        b"that is long\n",
    ]


def test_a_cut_falls_behind_a_word_where_there_is_no_line(cutter: Cutter) -> None:
    chunks = cutter.cut(b"several words that stand in one line without an end")
    assert all(chunk.endswith(b" ") for chunk in chunks[:-1])
    assert len(chunks) > 1


def test_a_megabyte_in_one_line_is_cut(cutter: Cutter) -> None:
    text = b"0123456789abcdef" * 65536
    assert b"".join(cutter.cut(text)) == text


def test_bytes_that_are_not_utf8_are_cut_behind_line_feeds(cutter: Cutter) -> None:
    text = (b"\xff" * 300 + b"\n") * 5
    chunks = cutter.cut(text)
    assert b"".join(chunks) == text
    assert chunks[0].endswith(b"\n")


def test_a_text_is_whole_as_long_as_both_windows_reach(cutter: Cutter) -> None:
    letters = ENCODER_WINDOW - 5  # two special tokens, three to spare
    assert cutter.cut(b"a" * letters) == [b"a" * letters]
    assert len(cutter.cut(b"a" * (letters + 1))) == 2
    window = DECODER_WINDOW - 1
    assert cutter.segments(b" " * window) == [b" " * window]
    assert len(cutter.segments(b" " * (window + 1))) == 2


def test_characters_that_the_encoder_spells_out_are_counted_as_it_does() -> None:
    encoder = _byte_level()
    encoder.normalizer = normalizers.NFKD()  # makes 18 characters of this one, which has 3 bytes
    cutter = Cutter(
        decoder=_byte_level(),
        encoder=encoder,
        max_decoder_tokens=DECODER_WINDOW,
        max_encoder_tokens=100,
    )
    chunks = cutter.cut("\ufdfa".encode() * 8)
    assert b"".join(chunks).decode() == "\ufdfa" * 8
    assert len(chunks) > 1

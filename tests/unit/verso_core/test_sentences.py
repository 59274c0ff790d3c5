"""Texts in sentences and passages, and their places in other counts than bytes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from verso_core.jobs.heads.models import TextSpan
from verso_core.texts import MAX_SENTENCES, PASSAGE_BYTES, passage_spans, sentence_spans

LINE = "e\u0301 \U0001f469 one more line of a log. "


def sentences(text: bytes) -> list[bytes]:
    return [text[start:end] for start, end in sentence_spans(text)]


def test_a_text_is_cut_behind_its_sentences_and_lines() -> None:
    text = b"A title of some length\nThe first one is here. No. And here is the second one!\r\nend"
    assert sentences(text) == [
        b"A title of some length",
        b"The first one is here.",
        b"And here is the second one!",
    ]


def test_what_has_no_sentence_is_one() -> None:
    assert sentences(b"disk full") == [b"disk full"]
    assert sentences(b"") == [b""]
    assert passage_spans(b"") == [(0, 0)]


def test_a_long_text_costs_no_more_than_its_first_sentences() -> None:
    assert len(sentences(b"one more line of a log\n" * 9_999)) == MAX_SENTENCES
    [only] = sentences(b"x" * 1_000_000)
    assert len(only) < 100_000
    assert len(passage_spans(b"one more line of a log\n" * 9_999)) <= MAX_SENTENCES


def test_no_character_is_cut_where_a_long_text_ends() -> None:
    for shift in range(4):
        text = b"x" * shift + "\U0001f469".encode() * 20_000
        [(start, end)] = sentence_spans(text)
        text[start:end].decode()


def test_a_passage_is_as_many_sentences_as_it_holds() -> None:
    text = (LINE * 100).encode()
    spans = passage_spans(text)
    assert all(end - start <= PASSAGE_BYTES for start, end in spans)
    assert all(end - start > PASSAGE_BYTES // 2 for start, end in spans[:-1])
    assert b"".join(text[start:end] + b" " for start, end in spans) == text
    long = b"x" * (2 * PASSAGE_BYTES) + b".\nThe end."
    assert passage_spans(long) == [(0, len(long) - 9), (len(long) - 8, len(long))]


@given(st.binary(max_size=300))
def test_sentences_and_passages_are_parts_of_the_text_in_their_order(text: bytes) -> None:
    for spans in (sentence_spans(text), passage_spans(text)):
        assert spans
        at = 0
        for start, end in spans:
            assert at <= start <= end <= len(text)
            at = end


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=60), st.data())
def test_a_place_names_the_same_part_in_every_count(text: str, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, len(text)))
    first = len(text[:start].encode())
    place = TextSpan.of(text.encode(), first, first + len(text[start:end].encode()))
    assert (place.start, place.end) == (start, end)
    assert place.start_utf16 is not None
    assert place.end_utf16 is not None
    units = text.encode("utf-16-le")[2 * place.start_utf16 : 2 * place.end_utf16]
    assert units.decode("utf-16-le") == text[start:end]


def test_a_place_in_what_is_no_text_has_bytes_alone() -> None:
    assert TextSpan.of(b"ok \xff", 0, 2).public() == {"start_byte": 0, "end_byte": 2}

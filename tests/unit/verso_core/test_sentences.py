"""Texts in sentences."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from verso_core.texts import MAX_SENTENCES, sentences


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


def test_a_long_text_costs_no_more_than_its_first_sentences() -> None:
    assert len(sentences(b"one more line of a log\n" * 9_999)) == MAX_SENTENCES
    [only] = sentences(b"x" * 1_000_000)
    assert len(only) < 100_000


@given(st.binary(max_size=300))
def test_sentences_are_parts_of_the_text_in_their_order(text: bytes) -> None:
    found, at = sentences(text), 0
    assert found
    for one in found:
        at = text.index(one, at) + len(one)

"""Offsets of an answer index the original text, whatever its bytes are."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from verso_core.texts import sentence_around
from verso_worker.rules.answer import Context


@given(st.text(max_size=60), st.data())
def test_characters_of_a_text_become_its_bytes(text: str, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, len(text)))
    if any("\ud800" <= c <= "\udfff" for c in text):
        return
    place = Context.of(text.encode(), {}).text_span(start, end)
    assert text.encode()[place.start_byte : place.end_byte] == text[start:end].encode()
    assert (place.start, place.end) == (start, end)


@given(st.binary(max_size=60), st.data())
def test_any_bytes_have_exact_byte_offsets(data: bytes, draw: st.DataObject) -> None:
    context = Context.of(data, {})
    start = draw.draw(st.integers(0, len(context.read)))
    end = draw.draw(st.integers(start, len(context.read)))
    before, inside = context.text_span(0, start), context.text_span(start, end)
    assert before.end_byte == inside.start_byte
    whole = context.text_span(0, len(context.read))
    assert (whole.start_byte, whole.end_byte) == (0, len(data))
    kept = data[inside.start_byte : inside.end_byte].decode("utf-8", "surrogateescape")
    assert len(kept) == end - start


def test_bytes_that_are_no_text_have_no_characters() -> None:
    place = Context.of(b"ok \xff\xfe timed out", {}).text_span(6, 15)
    assert place.public() == {"start_byte": 6, "end_byte": 15}


def test_evidence_is_the_sentence_or_line_of_the_answer() -> None:
    text = "One is here. Two stands here! Three\nfour"
    for answer, sentence in (("is", "One is here."), ("stands", "Two stands here!")):
        at = text.index(answer)
        start, end = sentence_around(text, at, at + len(answer))
        assert text[start:end] == sentence
    start, end = sentence_around("x" * 5000, 2000, 2004)
    assert (start, end) == (1700, 2304)

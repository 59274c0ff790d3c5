"""Cutting documents into chunks."""

import random

from hypothesis import given
from hypothesis import strategies as st

from verso_training.data import chunks, dataset
from verso_training.data.sources import Chunk, Document, Split

prose = st.lists(
    st.sampled_from(["word ", "A sentence ends. ", "line\n", "para\n\n", "x" * 90, "é🙂 "]),
    min_size=1,
    max_size=80,
).map("".join)


def _document(text: str, *, source: str = "books", family: str = "books") -> Document:
    return Document(family, source, f"{source}:{hash(text)}", text, Split.TRAIN)


@given(prose, st.integers(0, 5))
def test_chunks_are_pieces_of_the_text_in_order(text: str, seed: int) -> None:
    place = 0
    for chunk in chunks.cut(_document(text), random.Random(seed)):
        found = text.find(chunk.text, place)
        assert found >= 0
        place = found + len(chunk.text)


@given(prose, st.data())
def test_a_boundary_lies_inside_its_window(text: str, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(text) - 1))
    limit = data.draw(st.integers(start + 1, len(text)))
    assert start < chunks.boundary(text, start, limit) <= limit


def test_a_boundary_prefers_paragraphs_to_lines_to_words() -> None:
    assert chunks.boundary("aaaa bb cc\n\ndd\nee ff", 0, 20) == 12
    assert chunks.boundary("aaaa bb cc\ndd ee", 0, 16) == 11
    assert chunks.boundary("aaaaaa bbbb cc", 0, 14) == 12


def test_every_chunk_fits_the_context() -> None:
    fitted_on = ["some words to learn from, again and again"] * 5
    small = dataset.fit(fitted_on, vocab=300)
    long = [Chunk("0123456789 " * 40, "logs", "logs"), Chunk("some words", "books", "books")]
    fitted = list(chunks.fit_tokens(long, small, max_tokens=64))
    assert all(len(ids) < 64 for _, ids in fitted)
    assert sum(chunk.source == "logs" for chunk, _ in fitted) >= 8


def test_repeated_texts_are_drawn_once() -> None:
    pool = [_document("The same sentence stands in every file.") for _ in range(9)]
    drawn = chunks.draw(pool, budgets={"books": 10_000}, rng=random.Random(0))
    assert len(drawn) == 1


def test_boilerplate_lines_of_logs_are_dropped() -> None:
    banner = "** this package is installed by the usual installer **\n"
    pool = [
        _document(banner * 3 + f"unique failure number {n} of the run\n", source="l", family="logs")
        for n in range(40)
    ]
    drawn = chunks.draw(pool, budgets={"l": 1_000_000}, rng=random.Random(0))
    alone = sum(set(chunk.text.splitlines()) == {banner.strip()} for chunk in drawn)
    assert alone <= 4  # the first few are news
    assert sum("unique failure" in chunk.text for chunk in drawn) >= 10


def test_a_source_stops_at_its_budget() -> None:
    pool = [_document(f"Document {n} says something of its own. " * 5) for n in range(200)]
    drawn = chunks.draw(pool, budgets={"books": 3000}, rng=random.Random(0))
    assert 3000 <= sum(len(chunk.text) for chunk in drawn) < 3600

"""The n-gram codec restores any bytes, compresses what it was fitted on, and refuses damage."""

import contextlib
import random
from pathlib import Path
from typing import Any

import fields
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from verso_codecs import coder, ngram
from verso_codecs.ngram import NgramTables
from verso_core.errors import ArtifactInvalid, PatchCorrupt

WORDS = [
    "the",
    "disk",
    "of",
    "node",
    "was",
    "full",
    "and",
    "its",
    "queue",
    "had",
    "to",
    "wait",
    "for",
    "a",
    "new",
    "volume",
    "to",
    "be",
    "ready",
]


def sentences(seed: int, *, count: int) -> list[bytes]:
    """Short texts from a small vocabulary, with numbers."""
    rng = np.random.default_rng(seed)
    texts = []
    for _ in range(count):
        words = [str(rng.choice(WORDS)) for _ in range(int(rng.integers(3, 15)))]
        texts.append(f"{' '.join(words)} {rng.integers(1000)}.".encode())
    return texts


@pytest.fixture(scope="module")
def tables() -> NgramTables:
    return NgramTables.fit(
        sentences(1, count=1500),
        heldout=sentences(2, count=200),
        widths=(12,) * 8,
        counting_width=12,
    )


@given(text=st.one_of(st.binary(max_size=300), st.text(max_size=100).map(str.encode)))
def test_any_bytes_come_back(tables: NgramTables, text: bytes) -> None:
    assert ngram.decode(ngram.encode(text, tables), tables) == text


@given(rng=st.randoms(use_true_random=False), count=st.integers(1, 12))
def test_lines_of_values_come_back(tables: NgramTables, rng: random.Random, count: int) -> None:
    text = fields.line(rng, fields=count).encode()
    assert ngram.decode(ngram.encode(text, tables), tables) == text


@pytest.mark.parametrize(
    "text", [b"", b"\0", bytes(5000), b"ab" * 3000, bytes(range(256)) * 20, b"\xff" * 4]
)
def test_monotonous_and_hostile_texts_come_back(tables: NgramTables, text: bytes) -> None:
    assert ngram.decode(ngram.encode(text, tables), tables) == text


def test_known_language_is_compressed(tables: NgramTables) -> None:
    texts = sentences(3, count=100)
    size = sum(len(ngram.encode(text, tables)) for text in texts)
    assert size < 0.3 * sum(len(text) for text in texts)


def test_a_repeated_passage_costs_little(tables: NgramTables) -> None:
    """What was never seen in training is still found again within the record."""
    once = np.random.default_rng(4).bytes(60)
    twice_bits = coder.cost(*ngram.decisions(once * 2, tables))
    assert twice_bits < 1.4 * coder.cost(*ngram.decisions(once, tables))


def test_a_payload_is_as_long_as_its_ideal_cost(tables: NgramTables) -> None:
    for text in sentences(5, count=50):
        ideal = coder.cost(*ngram.decisions(text, tables)) / 8
        assert ideal - 1.0 < len(ngram.encode(text, tables)) < ideal + 1.1


@given(payload=st.binary(max_size=60))
def test_hostile_payloads_decode_to_something_or_are_refused(
    tables: NgramTables, payload: bytes
) -> None:
    with contextlib.suppress(PatchCorrupt):
        assert len(ngram.decode(payload, tables, limit_bytes=500)) <= 500


def test_a_text_beyond_the_limit_is_refused(tables: NgramTables) -> None:
    payload = ngram.encode(b"the disk was full " * 100, tables)
    assert len(ngram.decode(payload, tables, limit_bytes=1800)) == 1800
    with pytest.raises(PatchCorrupt):
        ngram.decode(payload, tables, limit_bytes=1799)


def test_bytes_after_the_end_are_refused(tables: NgramTables) -> None:
    with pytest.raises(PatchCorrupt):
        ngram.decode(ngram.encode(b"the disk was full", tables) + b"\x01" * 9, tables)


def test_tables_survive_a_file(tables: NgramTables, tmp_path: Path) -> None:
    tables.save(tmp_path / "ngram.npz")
    again = NgramTables.load(tmp_path / "ngram.npz")
    for name in tables.model._fields:
        np.testing.assert_array_equal(getattr(again.model, name), getattr(tables.model, name))
    text = b"the queue had to wait"
    assert ngram.encode(text, again) == ngram.encode(text, tables)


@pytest.mark.parametrize(
    ("member", "value"),
    [
        ("width", np.int64(60)),
        ("width", np.int64(5)),
        ("width", np.array(["12"])),
        ("gaps", np.zeros(10, np.uint8)),
        ("pairs", np.zeros(10, np.int32)),
        ("tallies", np.zeros((2, 256), np.int64)),
        ("tallies", np.full((2, 256), -1, np.int64)),
        ("stretches", np.zeros((3, 256), np.int16)),
        ("weights", np.zeros((5, 1, 1), np.int32)),
        ("squash", np.zeros(5631, np.uint16)),
        ("ends", np.ones((20, 256), np.float32)),
        ("ends", np.array([None])),
    ],
)
def test_tables_that_do_not_fit_are_refused(
    tables: NgramTables, tmp_path: Path, member: str, value: np.ndarray[Any, Any]
) -> None:
    path = tmp_path / "ngram.npz"
    tables.save(path)
    members = dict(np.load(path))
    members[member] = value
    np.savez(path, **members)
    with pytest.raises(ArtifactInvalid):
        NgramTables.load(path)


def test_a_damaged_file_is_refused(tables: NgramTables, tmp_path: Path) -> None:
    path = tmp_path / "ngram.npz"
    tables.save(path)
    path.write_bytes(path.read_bytes()[:-500])
    with pytest.raises(ArtifactInvalid):
        NgramTables.load(path)


def test_fitting_twice_gives_the_same_tables(tables: NgramTables) -> None:
    settings = {"widths": (10,) * 8, "counting_width": 12}
    first, second = (
        NgramTables.fit(sentences(1, count=50), heldout=sentences(2, count=20), **settings)  # type: ignore[arg-type]
        for _ in range(2)
    )
    for name in first.model._fields:
        np.testing.assert_array_equal(getattr(first.model, name), getattr(second.model, name))

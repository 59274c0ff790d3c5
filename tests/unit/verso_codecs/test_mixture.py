"""The mixture restores any bytes, says little of what it knows, and refuses damage."""

import contextlib
import random
import re
from pathlib import Path
from typing import Any

import fields
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from verso_codecs import mixture, mixture_fit, mixture_packing, ngram
from verso_codecs.mixture import MixtureTables, chosen_texts
from verso_codecs.mixture_model import Mixing
from verso_codecs.ngram import NgramTables
from verso_core.errors import ArtifactInvalid, PatchCorrupt


def lines(seed: int, *, count: int) -> list[bytes]:
    """Lines of three templates; each second one gives its time twice, in two ways."""
    rng = np.random.default_rng(seed)
    made = []
    for number in range(count):
        seconds = 1_117_838_570 + 40 * number
        clock = np.datetime64(seconds - 7 * 3600, "s").astype(object)
        node = f"R{rng.integers(40):02}-M{rng.integers(2)}"
        kind = rng.integers(3)
        if kind == 0:
            line = f"{seconds} {clock:%Y.%m.%d} {node} {clock:%Y-%m-%d-%H.%M.%S} {node} cache error"
        elif kind == 1:
            line = f"{seconds} {clock:%Y.%m.%d} {node} generating core.{rng.integers(10_000)}"
        else:
            line = f"{seconds} {clock:%Y.%m.%d} {node} peer 10.0.0.{rng.integers(255)} was lost"
        made.append(line.encode())
    return made


@pytest.fixture(scope="module")
def general() -> NgramTables:
    other = [b"the disk of node %d was full and the queue had to wait" % n for n in range(40)]
    return NgramTables.fit(other, heldout=other[:10], widths=(8,) * 8, counting_width=10)


@pytest.fixture(scope="module")
def tables(general: NgramTables) -> MixtureTables:
    return MixtureTables.fit(lines(1, count=300), general)


@pytest.fixture(scope="module")
def packed(tables: MixtureTables) -> bytes:
    return tables.pack()


@given(text=st.one_of(st.binary(max_size=300), st.text(max_size=100).map(str.encode)))
def test_any_bytes_come_back(tables: MixtureTables, text: bytes) -> None:
    assert mixture.decode(mixture.encode(text, tables), tables) == text


_LOG_PIECES = st.sampled_from(
    [b"1117838570", b"1117838570123", b"2005-06-03", b" ", b".", b"-", b"9" * 40, b"R01-M1", b"\0"]
)


@given(pieces=st.lists(st.one_of(_LOG_PIECES, st.binary(max_size=5)), max_size=30))
def test_any_mixture_of_fields_comes_back(tables: MixtureTables, pieces: list[bytes]) -> None:
    text = b"".join(pieces)
    assert mixture.decode(mixture.encode(text, tables), tables) == text


@given(rng=st.randoms(use_true_random=False), count=st.integers(1, 12))
def test_lines_of_values_come_back(tables: MixtureTables, rng: random.Random, count: int) -> None:
    text = fields.line(rng, fields=count).encode()
    assert mixture.decode(mixture.encode(text, tables), tables) == text


@pytest.mark.parametrize("text", [b"", b"\0", bytes(5000), b"17" * 2000, bytes(range(256)) * 4])
def test_monotonous_and_hostile_texts_come_back(tables: MixtureTables, text: bytes) -> None:
    assert mixture.decode(mixture.encode(text, tables), tables) == text


def test_lines_like_those_of_the_history_take_little(
    tables: MixtureTables, general: NgramTables
) -> None:
    """Later lines: their times were never seen."""
    later = lines(1, count=400)[300:]
    own = sum(len(mixture.encode(line, tables)) for line in later)
    raw = sum(map(len, later))
    assert own < 0.2 * raw
    assert own < 0.3 * sum(len(ngram.encode(line, general)) for line in later)


def test_a_date_follows_from_the_seconds_before_it(tables: MixtureTables) -> None:
    later = [line for line in lines(1, count=400)[300:] if line.endswith(b"cache error")]
    elsewhen = [re.sub(rb"\.[0-9]{2}\.[0-9]{2} ", b".17.03 ", line) for line in later]
    expected = mixture_fit.cost(tables.tables, later)
    assert expected + 8 * len(later) < mixture_fit.cost(tables.tables, elsewhen)
    assert tables.tables.history.clock_shift_s == -7 * 3600


def test_no_record_depends_on_another(tables: MixtureTables) -> None:
    line, other = lines(2, count=2)
    first = mixture.encode(line, tables)
    mixture.encode(other, tables)
    assert mixture.encode(line, tables) == first


@given(payload=st.binary(max_size=60))
@settings(deadline=None)
def test_hostile_payloads_decode_to_something_or_are_refused(
    tables: MixtureTables, payload: bytes
) -> None:
    with contextlib.suppress(PatchCorrupt):
        assert len(mixture.decode(payload, tables, limit_bytes=500)) <= 500


def test_a_text_beyond_the_limit_is_refused(tables: MixtureTables) -> None:
    payload = mixture.encode(b"cache error " * 100, tables)
    assert len(mixture.decode(payload, tables, limit_bytes=1200)) == 1200
    with pytest.raises(PatchCorrupt):
        mixture.decode(payload, tables, limit_bytes=1199)


def test_bytes_after_the_end_are_refused(tables: MixtureTables) -> None:
    payload = mixture.encode(b"cache error", tables)
    with pytest.raises(PatchCorrupt):
        mixture.decode(payload + b"\x01" * 9, tables)


def test_tables_survive_a_file(tables: MixtureTables, general: NgramTables, tmp_path: Path) -> None:
    """The file holds texts, not tables: counting them again gives the same ones."""
    tables.save(tmp_path / "mixture.npz")
    again = MixtureTables.load(tmp_path / "mixture.npz", general)
    for part in ("history", "mixing"):
        ours, theirs = getattr(tables.tables, part), getattr(again.tables, part)
        for name in ours._fields:
            np.testing.assert_array_equal(getattr(theirs, name), getattr(ours, name))
    assert again.texts == tables.texts


@pytest.mark.parametrize(
    ("member", "value"),
    [
        ("format", np.int64(99)),
        ("texts", np.zeros(10, np.uint8)),
        ("texts", np.zeros(10, np.int32)),
        ("lengths", np.array([1 << 31], np.uint32)),
        ("lengths", np.array([3], np.uint32)),
        ("lengths", np.array([[3]], np.uint32)),
        ("clock_shift_s", np.int64(10**9)),
        ("clock_shift_s", np.array(["7"])),
        ("stretches", np.zeros((3, 256), np.int16)),
        ("weights", np.zeros((5, 1, 1), np.int32)),
        ("end_stretches", np.zeros((6, 256), np.float32)),
        ("end_weights", np.array([None])),
    ],
)
def test_tables_that_do_not_fit_are_refused(
    tables: MixtureTables,
    general: NgramTables,
    tmp_path: Path,
    member: str,
    value: np.ndarray[Any, Any],
) -> None:
    path = tmp_path / "mixture.npz"
    tables.save(path)
    members = dict(np.load(path))
    members[member] = value
    np.savez(path, **members)
    with pytest.raises(ArtifactInvalid):
        MixtureTables.load(path, general)


def test_nothing_to_fit_to_is_refused(general: NgramTables) -> None:
    with pytest.raises(ValueError, match="at least one text"):
        MixtureTables.fit([b"", b""], general)


@pytest.mark.parametrize("texts", [[b"a"], [b"a", b"\xff\x00"], [b"7" * 300]])
def test_very_few_texts_are_enough(general: NgramTables, texts: list[bytes]) -> None:
    few = MixtureTables.fit(texts, general)
    for text in (*texts, b"something else 12"):
        assert mixture.decode(mixture.encode(text, few), few) == text


def test_the_history_is_the_last_texts_and_a_sample_of_the_others() -> None:
    texts = [b"%06d" % number for number in range(1000)]
    kept = chosen_texts(texts, limit_bytes=1200)
    assert kept == sorted(kept)
    assert kept[-100:] == texts[-100:]
    assert 1000 <= sum(map(len, kept)) <= 1206
    older = [int(text) for text in kept[:-100]]
    assert max(older) > 800
    assert min(older) < 50
    assert chosen_texts([b"", b"a"], limit_bytes=5) == [b"a"]


def test_the_clock_is_found_by_the_dates_that_follow() -> None:
    assert mixture_fit.clock_shift(lines(3, count=50)) == -7 * 3600
    assert mixture_fit.clock_shift([b"no time at all", b"1117838570 alone"]) == 0


@settings(deadline=None, max_examples=25)
@given(
    texts=st.lists(st.binary(min_size=1, max_size=60), min_size=1, max_size=30),
    probe=st.binary(max_size=80),
)
def test_packed_tables_come_back_and_code_the_same(
    general: NgramTables, texts: list[bytes], probe: bytes
) -> None:
    fitted = MixtureTables.fit(texts, general)
    again = MixtureTables.unpack(fitted.pack(), general)
    assert again.texts == fitted.texts
    for name in fitted.tables.mixing._fields:
        mine, its = getattr(fitted.tables.mixing, name), getattr(again.tables.mixing, name)
        assert mine.dtype == its.dtype
        assert np.array_equal(mine, its)
    for text in (*texts, probe):
        assert mixture.encode(text, again) == mixture.encode(text, fitted)
    assert again.pack() == fitted.pack()


@settings(deadline=None, max_examples=25)
@given(
    seed=st.integers(0, 1 << 32),
    moved=st.integers(0, 40),
    unit=st.integers(1, 1 << 20),
    shift_s=st.integers(-86400, 86400),
)
def test_any_mixing_comes_back(
    general: NgramTables, tables: MixtureTables, seed: int, moved: int, unit: int, shift_s: int
) -> None:
    """Numbers of the whole range of their types, few or many of them moved."""
    rng = np.random.default_rng(seed)
    weights = mixture_packing.first_weights().astype(np.int64)
    rows = tuple(rng.integers(0, size, moved) for size in weights.shape[:2])
    most = ((1 << 31) - 1 - int(weights.max())) // unit
    weights[rows] += unit * rng.integers(-most, most + 1, (moved, weights.shape[2]))
    own = tables.tables.mixing
    mixing = Mixing(
        rng.integers(-(1 << 15), 1 << 15, own.stretches.shape).astype(np.int16),
        weights.astype(np.int32),
        rng.integers(-(1 << 15), 1 << 15, own.end_stretches.shape).astype(np.int16),
        rng.integers(-(1 << 31), 1 << 31, own.end_weights.shape).astype(np.int32),
    )
    parts = mixture_packing.Parts((b"a", b"bc" * 40), shift_s, mixing)
    again = mixture_packing.unpack(mixture_packing.pack(parts, general.model), general.model)
    assert again[:2] == parts[:2]
    for name in mixing._fields:
        mine, its = getattr(again.mixing, name), getattr(mixing, name)
        assert mine.dtype == its.dtype
        np.testing.assert_array_equal(mine, its)


@pytest.mark.parametrize("step", [256, 1024])
def test_rounded_tables_take_half_and_code_about_the_same(tables: MixtureTables, step: int) -> None:
    rounded = tables.rounded(step)
    moved = rounded.tables.mixing.weights - mixture_packing.first_weights()
    before = tables.tables.mixing.weights - mixture_packing.first_weights()
    assert not (moved % step).any()
    assert (np.abs(moved - before) <= step / 2).all()
    assert not (rounded.tables.mixing.stretches % mixture.STRETCH_STEP).any()
    assert len(rounded.pack()) < 0.5 * len(tables.pack())
    later = lines(1, count=400)[300:]
    exact = sum(len(mixture.encode(line, tables)) for line in later)
    assert sum(len(mixture.encode(line, rounded)) for line in later) < 1.05 * exact


def test_tables_of_a_later_form_are_refused(general: NgramTables, tables: MixtureTables) -> None:
    with pytest.raises(ArtifactInvalid, match="expected format 1 or 2, got 3"):
        MixtureTables.unpack(b"\x03" + tables.pack()[1:], general)


@given(data=st.data())
def test_damaged_tables_are_refused_or_read_as_others(
    general: NgramTables, packed: bytes, data: st.DataObject
) -> None:
    """What stores them has a checksum; without it, no damage does more than this."""
    damaged = bytearray(packed)
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(packed) - 1))] ^= data.draw(st.integers(1, 255))
    with contextlib.suppress(ArtifactInvalid):
        MixtureTables.unpack(bytes(damaged), general)


def test_packed_tables_are_smaller_than_saved_ones(tables: MixtureTables, tmp_path: Path) -> None:
    tables.save(tmp_path / "mixture.npz")
    assert len(tables.pack()) < (tmp_path / "mixture.npz").stat().st_size


@given(data=st.data())
def test_packed_tables_that_are_cut_short_are_refused(
    general: NgramTables, packed: bytes, data: st.DataObject
) -> None:
    end = data.draw(st.integers(0, len(packed) - 1))
    with pytest.raises(ArtifactInvalid):
        MixtureTables.unpack(packed[:end], general)


def test_a_fit_says_what_its_last_texts_take(general: NgramTables) -> None:
    """The sizes are those of tables that were fitted to the texts before."""
    texts = lines(3, count=200)
    tried = MixtureTables.fit_tried(texts, general, steps=(256, 1024))
    before = MixtureTables.fit(texts[:-30], general)
    assert list(tried.sizes) == [256, 1024]
    for step, sizes in tried.sizes.items():
        assert len(sizes) == 30
        coded = sum(len(mixture.encode(text, before.rounded(step))) for text in texts[-30:])
        assert abs(sum(sizes) - coded) < 0.25 * coded

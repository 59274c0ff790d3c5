"""Tables fitted to a collection: when they pay, how they are packed, and that damage is found."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from verso_codecs import mixture
from verso_codecs.mixture import MixtureTables
from verso_codecs.ngram import NgramTables
from verso_core import crc, manifest
from verso_core.errors import ArtifactInvalid
from verso_core.jobs import CodecPolicy
from verso_core.record import Codec
from verso_worker.records import fitting, generation
from verso_worker.records.artifact import ngram_tables
from verso_worker.records.outputs import Trial, Wanted

DATA = Path(__file__).parents[3] / "data"
ARTIFACT, FORMER = DATA / "artifact-tiny", DATA / "written-before"


def lines(count: int, seed: int = 0) -> list[bytes]:
    """Lines of one program, with a number and an address that differ."""
    rng = random.Random(seed)
    return [
        b"session %d opened for user root from 10.0.%d.%d port %d"
        % (number, rng.randrange(4), rng.randrange(250), rng.randrange(1024, 60000))
        for number in range(count)
    ]


def wanted(texts: list[bytes], **others: object) -> Wanted:
    stored = [(Codec.RAW, len(text)) for text in texts]
    fields = {"chunks": len(texts), "policy": CodecPolicy.BALANCED} | others
    return Wanted(texts=texts, stored=stored, **fields)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def general() -> NgramTables:
    return ngram_tables(manifest.load(ARTIFACT))


@pytest.fixture(scope="module")
def trial(general: NgramTables) -> Trial:
    return generation.fit(wanted(lines(400), chunks=10_000), general)


def test_tables_of_lines_alike_pay(trial: Trial) -> None:
    assert trial.packed is not None
    assert len(trial.packed) == trial.size_bytes
    assert trial.held_out == 60
    assert trial.after < 0.4 * trial.before


def test_tables_that_take_more_than_they_save_are_not_kept(general: NgramTables) -> None:
    assert generation.fit(wanted(lines(400), chunks=10), general).packed is None


def test_tables_that_are_forced_are_kept(general: NgramTables) -> None:
    assert generation.fit(wanted(lines(400), chunks=10, force=True), general).packed is not None


def test_texts_without_a_pattern_are_not_fitted(general: NgramTables) -> None:
    noise = [random.Random(n).randbytes(60) for n in range(300)]
    assert generation.fit(wanted(noise, chunks=10**6), general).packed is None


def test_few_texts_are_not_fitted(general: NgramTables) -> None:
    assert generation.fit(wanted(lines(50), chunks=10**6), general).held_out == 0


def test_tables_are_compared_with_those_that_write_now(general: NgramTables, trial: Trial) -> None:
    """A second fit to the same texts gains nothing over the first."""
    again = generation.fit(wanted(lines(400), chunks=10_000, serving=trial.packed), general)
    assert again.packed is None
    assert again.before < trial.before


@settings(deadline=None, max_examples=20)
@given(texts=st.lists(st.binary(min_size=1, max_size=50), min_size=1, max_size=20))
def test_packed_tables_are_read_as_they_were(general: NgramTables, texts: list[bytes]) -> None:
    tables = MixtureTables.fit(texts, general)
    golden = generation.samples(texts)
    again = generation.unpack(generation.pack(tables, golden), general)
    for text in golden:
        assert mixture.encode(text, again) == mixture.encode(text, tables)
        assert mixture.decode(mixture.encode(text, again), again) == text


@given(data=st.data())
def test_a_flipped_bit_gives_another_name(trial: Trial, data: st.DataObject) -> None:
    """The name of a generation proves its bytes."""
    assert trial.packed is not None
    at = data.draw(st.integers(0, 8 * len(trial.packed) - 1))
    altered = bytearray(trial.packed)
    altered[at // 8] ^= 1 << at % 8
    assert generation.name_of("c", bytes(altered)) != generation.name_of("c", trial.packed)


def test_other_general_tables_fail_the_golden_samples(trial: Trial) -> None:
    other = [b"the disk of node %d was full and the queue had to wait" % n for n in range(40)]
    tables = NgramTables.fit(other, heldout=other[:10], widths=(8,) * 8, counting_width=10)
    assert trial.packed is not None
    with pytest.raises(ArtifactInvalid, match="golden sample"):
        generation.unpack(trial.packed, tables)


@pytest.mark.parametrize("packed", [b"", b"no frame", b"\x56\0\0\0\0"])
def test_bytes_that_are_no_tables_are_refused(general: NgramTables, packed: bytes) -> None:
    with pytest.raises(ArtifactInvalid):
        generation.unpack(packed, general)


@given(
    sizes=st.tuples(st.floats(0, 1e6), st.floats(0, 1e6)),
    packed=st.none() | st.binary(max_size=50),
    seconds=st.floats(0, 1e6),
)
def test_a_reply_comes_back(
    sizes: tuple[float, float], packed: bytes | None, seconds: float
) -> None:
    trial = Trial(7, *sizes, 50, packed)
    assert fitting.read_reply(fitting.pack_reply(trial, seconds=seconds)) == (trial, seconds)


@given(st.binary(min_size=1, max_size=300), st.data())
def test_stored_tables_come_back_with_a_flipped_bit_and_not_with_more(
    packed: bytes, data: st.DataObject
) -> None:
    name, stored = generation.name_of("codec", packed), generation.closed(packed)
    places = data.draw(st.sets(st.integers(0, 8 * len(stored) - 1), min_size=2, max_size=4))
    first, *others = places
    one = crc.flipped(stored, first)
    assert generation.opened(name, stored) == generation.opened(name, one) == packed
    for place in others:
        one = crc.flipped(one, place)
    if one[: len(packed)] == packed:
        return  # only the CRC is damaged
    with pytest.raises(ArtifactInvalid, match="damaged"):
        generation.opened(name, one)


def test_tables_of_form_1_code_as_they_did(general: NgramTables) -> None:
    """The tables, and what a line of the same kind took by them, were written by 66f1c2f1."""
    packed = (FORMER / "fitted-tables-1.bin").read_bytes()
    assert generation.name_of("codec", packed) == "codec.e6223a0d43e7c905"
    tables = generation.unpack(packed, general)
    line = b"session 2 opened for user root from 10.0.0.86 port 33974"
    assert mixture.encode(line, tables) == bytes.fromhex("ffbf0cd6f798cf")
    again = generation.unpack(generation.pack(tables, [line]), general)
    assert mixture.encode(line, again) == bytes.fromhex("ffbf0cd6f798cf")


def test_tables_that_were_stored_without_a_crc_are_read(trial: Trial) -> None:
    assert trial.packed is not None
    assert generation.opened(generation.name_of("codec", trial.packed), trial.packed)

"""The rank stream gives the tokens back, also from logits that are a little off."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from verso_codecs import ranks
from verso_codecs.ranks import Events, RankTables, Streams
from verso_core.errors import ArtifactInvalid

EPSILON = 0.004
Record = tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.int32]]


def confidence_of(logits: NDArray[np.float32]) -> NDArray[np.float32]:
    """Log-odds of the top token, as the decoder computes it."""
    top = logits.max(axis=1, keepdims=True)
    rest = np.exp((logits - top).astype(np.float64)).sum(axis=1) - 1.0
    return np.asarray(np.clip(-np.log(np.maximum(rest, 1e-30)), -20, 20), np.float32)


def a_record(rng: np.random.Generator, *, tokens: int, vocab: int) -> Record:
    """Logits that are right more often where they are sure, as a trained decoder's."""
    logits = rng.normal(0, 1, (tokens, vocab)).astype(np.float32)
    sure = rng.gamma(2.0, 3.0, tokens).astype(np.float32)
    targets = rng.integers(0, vocab, tokens).astype(np.int32)
    favourite = np.where(rng.random(tokens) < 1 - np.exp(-sure / 2), targets, 0)
    logits[np.arange(tokens), favourite] += sure
    return logits, confidence_of(logits), targets


def fitted(records: Sequence[Record], *, vocab: int) -> RankTables:
    found = [ranks.events(logits, sure, targets=t, epsilon=EPSILON) for logits, sure, t in records]
    return RankTables.fit(found, vocab=vocab, confidence_epsilon=EPSILON)


@pytest.fixture(scope="module")
def tables() -> RankTables:
    rng = np.random.default_rng(7)
    records = [a_record(rng, tokens=int(rng.integers(1, 60)), vocab=300) for _ in range(200)]
    return fitted(records, vocab=300)


def encoded(record: Record, tables: RankTables) -> bytes:
    logits, sure, targets = record
    return ranks.encode(
        logits,
        sure,
        targets=targets,
        tables=tables,
        epsilon=EPSILON,
        confidence_epsilon=EPSILON,
    )


def disturbed(values: NDArray[np.float32], rng: np.random.Generator) -> NDArray[np.float32]:
    """Add noise of at most half an epsilon, after rounding to float32."""
    with np.errstate(over="ignore", invalid="ignore"):
        moved = values + rng.uniform(-EPSILON / 2, EPSILON / 2, values.shape).astype(np.float32)
        distance = np.abs(moved.astype(np.float64) - values.astype(np.float64))
    return np.where(distance <= EPSILON / 2, moved, values).astype(np.float32)


def decoded(
    payloads: Sequence[bytes], records: Sequence[Record], tables: RankTables, *, seed: int
) -> list[list[int]]:
    """Decode all payloads side by side from disturbed logits, rows in changing order."""
    rng = np.random.default_rng(seed)
    streams = Streams(payloads, tables)
    tokens: list[list[int]] = [[] for _ in records]
    while True:
        active = [row for row, record in enumerate(records) if len(tokens[row]) < len(record[2])]
        if not active:
            break
        rows = rng.permutation(np.array(active, np.int32))
        logits = np.stack([records[row][0][len(tokens[row])] for row in rows])
        sure = np.array([records[row][1][len(tokens[row])] for row in rows], np.float32)
        found = streams.step(rows, disturbed(logits, rng), disturbed(sure, rng))
        for row, token in zip(rows, found, strict=True):
            tokens[row].append(int(token))
    assert all(streams.unread(row) == 0 for row in range(len(streams)))
    return tokens


@given(seed=st.integers(0, 2**32 - 1), coarse=st.sampled_from([0.0, 0.004, 0.008, 0.5]))
def test_tokens_come_back_from_disturbed_logits(
    tables: RankTables, seed: int, coarse: float
) -> None:
    """Coarse logits have many ties and gaps of exactly one epsilon."""
    rng = np.random.default_rng(seed)
    records = [a_record(rng, tokens=int(rng.integers(1, 40)), vocab=300) for _ in range(5)]
    if coarse:
        records = [
            ((np.round(logits / coarse) * coarse).astype(np.float32), sure, targets)
            for logits, sure, targets in records
        ]
    payloads = [encoded(record, tables) for record in records]
    expected = [[int(token) for token in record[2]] for record in records]
    assert decoded(payloads, records, tables, seed=seed) == expected


@pytest.mark.parametrize("value", [0.0, -1e30, 3.4e38, np.inf, -np.inf, np.nan])
def test_tokens_come_back_from_constant_logits(tables: RankTables, value: float) -> None:
    logits = np.full((9, 300), value, np.float32)
    record = (logits, np.zeros(9, np.float32), np.arange(9, dtype=np.int32) * 37)
    assert decoded([encoded(record, tables)], [record], tables, seed=1) == [list(record[2])]


def test_tokens_come_back_when_every_confidence_is_unsafe(tables: RankTables) -> None:
    """All eight shifts of an edge occur, so some positions must become exceptions."""
    rng = np.random.default_rng(3)
    logits, _, targets = a_record(rng, tokens=64, vocab=300)
    shifts = np.arange(64) % 8 * tables.shift_step
    sure = (float(tables.edges[0]) + shifts).astype(np.float32)
    sure[5] = np.nan
    record = (logits, sure, targets)
    assert decoded([encoded(record, tables)], [record], tables, seed=2) == [list(targets)]


def test_every_rank_up_to_the_last_bin_has_a_code(tables: RankTables) -> None:
    logits = np.tile(np.arange(300, dtype=np.float32), (150, 1))
    targets = (299 - np.arange(150)).astype(np.int32)
    record = (logits, np.ones(150, np.float32), targets)
    found = ranks.events(*record[:2], targets=targets, epsilon=EPSILON)
    assert list(found.ranks) == [*range(ranks.MAX_RANK + 1)] + [ranks.ESCAPE] * 20
    assert decoded([encoded(record, tables)], [record], tables, seed=4) == [list(targets)]


def test_a_deep_token_costs_less_than_its_literal(tables: RankTables) -> None:
    """Too deep for a rank, it still has one among the few tokens that share its low bits."""
    rng = np.random.default_rng(12)
    logits = rng.normal(0, 3, (40, 300)).astype(np.float32)
    targets = logits.argsort(axis=1)[:, -150].astype(np.int32)
    record = (logits, confidence_of(logits), targets)
    found = ranks.events(*record[:2], targets=targets, epsilon=EPSILON)
    assert (found.ranks == ranks.ESCAPE).all()
    assert (found.rank_rows[1] < 2).mean() > 0.9
    assert decoded([encoded(record, tables)], [record], tables, seed=5) == [list(targets)]


def test_a_sure_and_right_decoder_needs_almost_no_bytes(tables: RankTables) -> None:
    rng = np.random.default_rng(11)
    logits = rng.normal(0, 1, (50, 300)).astype(np.float32)
    targets = rng.integers(0, 300, 50).astype(np.int32)
    logits[np.arange(50), targets] += 25
    assert len(encoded((logits, confidence_of(logits), targets), tables)) <= 2


def test_payload_is_as_long_as_its_ideal_cost(tables: RankTables) -> None:
    rng = np.random.default_rng(5)
    records = [a_record(rng, tokens=30, vocab=300) for _ in range(50)]
    ideal = sum(
        ranks.bits(
            ranks.events(logits, sure, targets=targets, epsilon=EPSILON),
            tables,
            confidence_epsilon=EPSILON,
        )
        for logits, sure, targets in records
    )
    real = sum(len(encoded(record, tables)) for record in records)
    assert real > 0.95 * ideal / 8
    assert real < ideal / 8 + 0.6 * len(records)


def test_corrupt_payloads_give_tokens_of_the_vocabulary(tables: RankTables) -> None:
    rng = np.random.default_rng(6)
    payloads = [rng.bytes(int(rng.integers(0, 30))) for _ in range(64)]
    streams = Streams(payloads, tables)
    rows = np.arange(64, dtype=np.int32)
    for _ in range(200):
        logits = rng.normal(0, 3, (64, 300)).astype(np.float32)
        tokens = streams.step(rows, logits, confidence_of(logits))
        assert tokens.min() >= 0
        assert tokens.max() < 300


def test_bytes_no_encoder_writes_are_seen(tables: RankTables) -> None:
    record = a_record(np.random.default_rng(8), tokens=12, vocab=300)
    streams = Streams([encoded(record, tables) + b"\x01\x01\x01"], tables)
    for position in range(12):
        streams.step(np.zeros(1, np.int32), record[0][position : position + 1], record[1][:1])
    assert streams.unread(0) > 0


def test_fitted_edges_pay_where_confidence_tells_the_rank() -> None:
    rng = np.random.default_rng(9)
    records = [a_record(rng, tokens=40, vocab=300) for _ in range(200)]
    found = [ranks.events(x, c, targets=t, epsilon=EPSILON) for x, c, t in records]
    flat = RankTables.fit(found, vocab=300, confidence_epsilon=EPSILON, bucket_count=1)
    rich = RankTables.fit(found, vocab=300, confidence_epsilon=EPSILON, bucket_count=12)
    cost = [
        sum(ranks.bits(events, table, confidence_epsilon=EPSILON) for events in found)
        for table in (flat, rich)
    ]
    assert flat.edges.size == 0
    assert rich.edges.size > 2
    assert cost[1] < 0.95 * cost[0]


@pytest.mark.parametrize("vocab", [2, 3, 5, 257, 8192])
def test_any_vocabulary_size_is_coded(vocab: int) -> None:
    rng = np.random.default_rng(vocab)
    records = [a_record(rng, tokens=20, vocab=vocab) for _ in range(20)]
    table = fitted(records, vocab=vocab)
    payloads = [encoded(record, table) for record in records]
    assert decoded(payloads, records, table, seed=0) == [list(r[2]) for r in records]


def test_tables_survive_a_file(tables: RankTables, tmp_path: Path) -> None:
    tables.save(tmp_path / "ranks.npz")
    again = RankTables.load(tmp_path / "ranks.npz")
    for name in ("edges", "shifts", "exceptions", "ranks", "literals"):
        np.testing.assert_array_equal(getattr(again, name), getattr(tables, name))
    assert (again.shift_step, again.vocab) == (tables.shift_step, tables.vocab)


@pytest.mark.parametrize(
    ("member", "value"),
    [
        ("ranks", np.ones((1, 1, 1), np.uint16)),
        ("literals", np.zeros(512, np.uint16)),
        ("edges", np.array([1.0, 1.0], np.float32)),
        ("edges", np.array([np.nan], np.float32)),
        ("shift_step", np.float64(0.0)),
        ("vocab", np.int64(70_000)),
        ("shifts", np.ones(7, np.int64)),
        ("narrow", np.zeros((3, 8), np.uint16)),
        ("literals", np.array([None] * 512)),
    ],
)
def test_tables_that_do_not_fit_are_refused(
    tables: RankTables, tmp_path: Path, member: str, value: object
) -> None:
    path = tmp_path / "ranks.npz"
    tables.save(path)
    members = dict(np.load(path))
    members[member] = np.asarray(value)
    np.savez(path, **members)
    with pytest.raises(ArtifactInvalid):
        RankTables.load(path)


def test_a_damaged_or_missing_file_is_refused(tables: RankTables, tmp_path: Path) -> None:
    path = tmp_path / "ranks.npz"
    with pytest.raises(ArtifactInvalid):
        RankTables.load(path)
    tables.save(path)
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(ArtifactInvalid):
        RankTables.load(path)


def test_shapes_that_do_not_fit_are_refused(tables: RankTables) -> None:
    logits, sure, targets = a_record(np.random.default_rng(1), tokens=4, vocab=300)
    with pytest.raises(ValueError, match="expected targets"):
        ranks.events(logits, sure, targets=targets + 300, epsilon=EPSILON)
    with pytest.raises(ValueError, match="expected logits"):
        ranks.events(logits, sure[:2], targets=targets, epsilon=EPSILON)
    streams = Streams([b""], tables)
    with pytest.raises(IndexError):
        streams.step(np.array([1], np.int32), logits[:1], sure[:1])
    with pytest.raises(ValueError, match="expected logits"):
        streams.step(np.array([0], np.int32), logits[:1, :5], sure[:1])


def test_no_record_at_all_still_gives_tables() -> None:
    table = RankTables.fit([], vocab=10, confidence_epsilon=EPSILON)
    empty = Events(np.empty((3, 0), np.int32), np.empty(0, np.float32), np.empty(0, np.int32))
    assert len(ranks.encode_events(empty, table, confidence_epsilon=EPSILON)) <= 1

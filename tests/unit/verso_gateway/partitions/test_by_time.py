"""What partitions by time tell, joined: as if one collection had told it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest
from fastapi import Request
from hypothesis import given
from hypothesis import strategies as st
from tests.integration.verso_gateway.conftest import collection

from verso_core.errors import CollectionBusy, PartitionMissing, RequestInvalid
from verso_core.jobs import Collection, CollectionKind, SearchMode, SearchParams
from verso_core.jobs.collections import (
    STATEMENTS,
    STREAMS,
    Partitioned,
    RolloverRule,
    Stage,
    TimePart,
)
from verso_core.jobs.logs.views import (
    MAX_INTERVALS,
    Label,
    Labels,
    LabelsParams,
    LabelValue,
    Statements,
    StatementsParams,
    StatementView,
    Volume,
    VolumeSeries,
)
from verso_core.jobs.search import Explanation, Hit, Hits, StatementLine
from verso_gateway.feed.batch import Batch, StreamKey, StreamLines
from verso_gateway.partitions import missing, scatter, search, writing
from verso_gateway.partitions.logs import spans, views
from verso_ledger.ledgers import rolled

HOUR = 3600.0
Line = tuple[int, str, str]
"""Hour, host and statement of a line."""
lines_of = st.lists(
    st.tuples(st.integers(0, 9), st.sampled_from("abc"), st.sampled_from(["up", "down", "odd"])),
    max_size=12,
)
parts_of = st.lists(lines_of, min_size=1, max_size=4)


def state(*numbers: int, writing: int | None = None, **changes: object) -> Partitioned:
    parts = tuple(TimePart(number=n, stage=Stage.LIVE, since=0.0) for n in numbers)
    last = numbers[-1] if writing is None else writing
    found = Partitioned(partitions=1, rollover=RolloverRule(), parts=parts, writing=last)
    return found.model_copy(update=changes)


def parted(noted: Partitioned) -> Collection:
    made = collection("logs", kind=CollectionKind.LOGS)
    return made.model_copy(update={"parted": noted, "partitions": len(noted.numbers)})


def volume_of(lines: Sequence[Line]) -> Volume:
    """Count lines as a worker does."""
    if not lines:
        return Volume(lines=0, interval_s=HOUR, starts=(), counts=())
    first, last = min(lines)[0], max(lines)[0]
    hours = range(first, last + 1)
    by_host = {host: Counter(at for at, own, _ in lines if own == host) for _, host, _ in lines}
    rows = sorted(by_host.items(), key=lambda row: (-row[1].total(), row[0]))
    return Volume(
        lines=len(lines),
        interval_s=HOUR,
        starts=tuple(at * HOUR for at in hours),
        counts=tuple(Counter(at for at, _, _ in lines)[at] for at in hours),
        series=tuple(
            VolumeSeries(value=host, lines=own.total(), counts=tuple(own[at] for at in hours))
            for host, own in rows
        ),
    )


@given(parts_of)
def test_volumes_join_to_that_of_all_lines(parts: list[list[Line]]) -> None:
    every = [line for part in parts for line in part]
    assert views.joined_volume([volume_of(part) for part in parts], limit=9) == volume_of(every)


def labels_of(lines: Sequence[Line]) -> Labels:
    counts = Counter(host for _, host, _ in lines)
    rows = sorted(counts.items(), key=lambda row: (-row[1], row[0]))
    values = tuple(LabelValue(value=host, lines=n) for host, n in rows)
    label = Label(name="host", lines=len(lines), distinct=len(counts), values=values)
    return Labels(lines=len(lines), labels=(label,) if lines else ())


@given(parts_of)
def test_labels_join_to_those_of_all_lines(parts: list[list[Line]]) -> None:
    every = [line for part in parts for line in part]
    asked = LabelsParams(collection="logs", name="host")
    assert views.joined_labels([labels_of(part) for part in parts], asked) == labels_of(every)


def statements_of(lines: Sequence[Line], *, number: int = 0, counted: bool) -> Statements:
    found = []
    for own, text in enumerate(sorted({text for _, _, text in lines})):
        times = [at for at, _, one in lines if one == text]
        hours = range(min(lines)[0], max(lines)[0] + 1)
        found.append(
            StatementView(
                id=str(number * STATEMENTS + own),
                statement=text,
                count=len(times),
                first_seen=min(times) * HOUR,
                last_seen=max(times) * HOUR,
                counts=tuple(times.count(at) for at in hours) if counted else (),
            )
        )
    found.sort(key=lambda one: -one.count)
    starts = tuple(at * HOUR for at in range(min(lines)[0], max(lines)[0] + 1)) if lines else ()
    return Statements(
        lines=len(lines),
        distinct=len(found),
        starts=starts if counted else (),
        interval_s=HOUR if counted else None,
        statements=tuple(found),
    )


@given(parts_of, st.booleans())
def test_statements_join_to_those_of_all_lines(parts: list[list[Line]], counted: bool) -> None:
    every = [line for part in parts for line in part]
    asked = StatementsParams(collection="logs", interval_s=HOUR if counted else None)
    told = [statements_of(part, counted=counted) for part in parts]
    found = views.joined_statements(range(len(parts)), told, asked)
    whole = statements_of(every, counted=counted)
    assert (found.lines, found.distinct, found.starts) == (
        whole.lines, whole.distinct, whole.starts,
    )  # fmt: skip
    rows = [
        sorted((one.model_copy(update={"id": "0"}) for one in these), key=lambda one: one.statement)
        for these in (found.statements, whole.statements)
    ]
    assert rows[0] == rows[1]
    for one in found.statements:
        number, own = divmod(int(one.id), STATEMENTS)
        assert told[number].statements[[row.id for row in told[number].statements].index(str(own))]


def test_too_many_intervals_are_refused() -> None:
    far = [Volume(lines=1, interval_s=1.0, starts=(at,), counts=(1,)) for at in (0.0, 1e6)]
    with pytest.raises(RequestInvalid, match="intervals"):
        views.joined_volume(far, limit=9)


def test_intervals_suit_late_lines_of_a_newer_partition() -> None:
    year_s = 366 * 24 * HOUR
    new, old = (Volume(lines=1, interval_s=60.0, starts=(at,), counts=(1,)) for at in (year_s, 0.0))
    for parts in ([new, old], [old, new]):
        assert 0 < year_s / views.common_length_s(parts) < MAX_INTERVALS


def test_a_line_tells_its_partition() -> None:
    there = parted(state(2, 3, 5))
    assert scatter.holder(there, f"{3 * STREAMS + 7}:12") == "logs.3"
    assert scatter.holder(there, f"{4 * STREAMS}:12") == "logs.5"
    assert scatter.holder(there, "a document") == "logs.5"
    assert scatter.names_of(there) == ["logs.2", "logs.3", "logs.5"]
    assert writing.taking(there) == "logs.5"
    assert writing.taking(there.model_copy(update={"parted": None})) == "logs"


@pytest.mark.parametrize(
    "cursor", ["", "1", ".", "x.", "-1.", "\u00b2.", "\u0663.", "9" * 5000 + "."]
)
def test_what_is_no_cursor_is_refused(cursor: str) -> None:
    with pytest.raises(RequestInvalid):
        scatter.place_in(cursor)
    assert scatter.place_in("12.a.b") == (12, "a.b")
    assert scatter.place_in("0.") == (0, None)


def test_partitions_without_lines_of_the_times_are_not_asked() -> None:
    noted = state(0, 1, 2)
    noted = noted.changed(0, first=10.0, last=20.0).changed(1, first=15.0, last=30.0)
    there = parted(noted)
    second = 1_000_000_000
    assert spans.numbers_in(there) == [0, 1, 2]
    assert spans.numbers_in(there, start_ns=25 * second) == [1, 2]
    assert spans.numbers_in(there, end_ns=12 * second) == [0, 2]
    assert spans.numbers_in(there, start_ns=20 * second, end_ns=21 * second) == [0, 1, 2]
    alone = parted(state(0).changed(0, first=10.0, last=20.0))
    assert spans.numbers_in(alone, start_ns=25 * second) == [0]


def test_a_missing_partition_is_named_and_the_others_are_asked() -> None:
    there = parted(state(0, 1, 2).changed(1, stage=Stage.MISSING, first=10.0, last=20.0))
    with pytest.raises(PartitionMissing, match=r"logs\.1"):
        scatter.holder(there, f"{STREAMS}:0")
    assert scatter.names_of(there) == ["logs.0", "logs.2"]
    assert spans.numbers_in(there) == [0, 2]
    assert spans.numbers_in(there, missing=True) == [0, 1, 2]
    assert spans.numbers_in(there, start_ns=30_000_000_000, missing=True) == [0, 2]
    ended = state(0, 1).changed(1, stage=Stage.MISSING)
    with pytest.raises(CollectionBusy):
        writing.taking(parted(ended))
    assert scatter.holder(parted(ended), "a document") == "logs.0"
    assert writing.taking(parted(state(0, 1, 2, writing=1).changed(1, stage=Stage.MISSING))) == (
        "logs.2"
    )


def preferring(*preferences: str) -> Request:
    headers = [(b"prefer", one.encode()) for one in preferences]
    return Request({"type": "http", "headers": headers})


def test_an_answer_names_what_it_leaves_out_or_is_refused() -> None:
    there = parted(state(0, 1, 2).changed(1, stage=Stage.MISSING, first=10.0, last=20.0))
    either, strict, lenient = (
        preferring(),
        preferring("wait=3", "handling=strict"),
        preferring("handling=lenient"),
    )
    named = {"missing_partitions": ("logs.1",)}
    assert missing.left_out(either, there) == named
    assert missing.left_out(either, there, end_ns=15_000_000_000) == named
    assert missing.left_out(lenient, there, handling="strict") == named
    for request, handling in ((strict, "lenient"), (either, "strict")):
        with pytest.raises(PartitionMissing, match=r"logs\.1"):
            missing.left_out(request, there, handling=handling)
    assert missing.left_out(strict, there, end_ns=9_000_000_000) == {}
    assert missing.left_out(strict, there, start_ns=30_000_000_000) == {}
    assert missing.left_out(strict, parted(state(0, 1))) == {}
    assert missing.left_out(strict, collection("docs")) == {}


def test_what_takes_lines_next_and_took_them_before() -> None:
    noted = state(0, 1, 2, 3, writing=2)
    noted = noted.changed(0, rolled=1.0).changed(1, rolled=4e9).changed(3, stage=Stage.MAKING)
    notes = {"logs": noted, "docs": Partitioned(partitions=4)}
    assert rolled.following(notes, "logs.1") == "logs.2"
    assert rolled.following(notes, "logs.2") is None
    assert rolled.before(notes, "logs.2", now=3e9, within_s=60.0) == ["logs.1"]
    assert rolled.before(notes, "logs.3", now=3e9, within_s=60.0) == ["logs.2", "logs.1"]
    for other in ("docs.1", "docs", "logs"):
        assert rolled.before(notes, other, now=3e9, within_s=60.0) == []
        assert rolled.following(notes, other) is None


def test_no_line_is_left_out_where_two_partitions_become_one() -> None:
    def lines(*numbers: int) -> StreamLines:
        return StreamLines({"host": "a"}, [b"%d" % n for n in numbers], [*numbers], [b""] * 2)

    old, new = StreamKey("logs.0", "a", "1"), StreamKey("logs.1", "a", "2")
    both = Batch({old: lines(0, 2), new: lines(1, 3)}, size_bytes=8)
    renamed = both.renamed({"logs.0": "logs.1"}, {"logs.1": "2"})
    assert [*renamed.streams] == [new]
    assert renamed.streams[new].lines == [b"0", b"2", b"1", b"3"]
    assert renamed.streams[new].positions == [0, 2, 1, 3]
    assert both.streams[old].positions == [0, 2]


def hit(part: int, text: str, score: float, *, at: float, count: int, values: bool = False) -> Hit:
    line = StatementLine(id=f"{part}:1", time=f"2026-01-01T00:00:{at:02.0f}Z", text=text)
    return Hit(
        id=f"{part}:1#0", document=f"{part}:1", chunk=0, score=score, statement=text,
        statement_id="7", count=count, first_seen=at - 1, last_seen=at, lines=(line,) * 3,
        explain=Explanation(dense=score, values=values or None),
    )  # fmt: skip


def test_hits_of_one_statement_are_joined() -> None:
    parts = [
        Hits(hits=(hit(0, "up", 0.9, at=10.0, count=4), hit(0, "odd", 0.5, at=9.0, count=1))),
        Hits(hits=(hit(1, "up", 0.8, at=20.0, count=3), hit(1, "down", 0.85, at=21.0, count=2))),
    ]
    asked = SearchParams(collection="logs", mode=SearchMode.DENSE)
    up, down, odd = search.ranked(parts, asked)
    assert (up.statement, up.score, up.count) == ("up", 0.9, 7)
    assert (up.first_seen, up.last_seen, up.id) == (9.0, 20.0, "1:1#0")
    assert [line.id for line in up.lines] == ["1:1"] * 3
    assert (down.statement, odd.statement) == ("down", "odd")


def test_a_statement_shows_lines_of_older_partitions_where_the_newest_has_few() -> None:
    few = hit(1, "up", 0.8, at=20.0, count=1)
    few = few.model_copy(update={"lines": few.lines[:1]})
    parts = [Hits(hits=(hit(0, "up", 0.9, at=10.0, count=4),)), Hits(hits=(few,))]
    [up] = search.ranked(parts, SearchParams(collection="logs", mode=SearchMode.DENSE))
    assert [line.id for line in up.lines] == ["1:1", "0:1", "0:1"]


def test_lines_with_the_values_that_were_asked_for_come_first() -> None:
    parts = [
        Hits(hits=(hit(0, "up", 1.0, at=10.0, count=1, values=True),)),
        Hits(hits=(hit(1, "up", 0.8, at=20.0, count=900), hit(1, "down", 1.2, at=21.0, count=2))),
    ]
    up, down = search.ranked(parts, SearchParams(collection="logs", mode=SearchMode.DENSE))
    assert (up.statement, up.count, up.last_seen) == ("up", 1, 10.0)
    assert down.statement == "down"

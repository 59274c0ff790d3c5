"""Lines of a log collection: what goes in comes out, in order, whatever happens meanwhile."""

from __future__ import annotations

import json
import random

import pytest
from tests.integration.verso_worker.rules.log_lines import (
    NAME,
    START,
    ingest,
    lines,
    query,
    raw,
    search,
)
from tests.integration.verso_worker.worker_parts import BUCKETS, Stores, make_pipeline
from tests.wire import Item

from verso_core.errors import CollectionUnknown
from verso_core.jobs import CollectionKind, Kind, Queue, Status
from verso_core.jobs.collections import CollectionParams
from verso_core.jobs.logs.lines import IngestLinesParams, LinesItem
from verso_core.jobs.slices import cut, read_slice
from verso_core.segments import LogState
from verso_ledger.collections.logs import Logs
from verso_worker.models.artifacts import ArtifactStore
from verso_worker.rules.grouping.templates import LIMITS, Limits, Miner
from verso_worker.rules.logs import mining
from verso_worker.stores.edge.client import EdgeVectors


@pytest.fixture
def logs(stores: Stores) -> Stores:
    """The stores, with an empty log collection."""
    stores.pipeline.create_collection(CollectionParams(name=NAME, kind=CollectionKind.LOGS))
    return stores


def test_what_goes_in_comes_out_in_order(logs: Stores) -> None:
    text = lines(5000)
    half = text.index(b"\n", len(text) // 2) + 1
    found = ingest(logs, text[:half], text[half:])
    assert sum(one["lines"] for one in found) == 5000
    assert raw(logs) == text
    newest = raw(logs, order="newest").splitlines()
    assert newest == text.splitlines()[::-1]
    state = logs.ledger.logs.state(NAME)
    assert (state.lines, state.verified, state.text_bytes) == (5000, 5000, len(text))
    assert state.segment_bytes < len(text) / 4


def test_lines_without_a_line_end_at_the_end_and_any_bytes_come_out(logs: Stores) -> None:
    drawn = random.Random(5)
    text = bytes(drawn.randrange(256) for _ in range(3000)) + b"\r\n\x00\xff\n\n\nlast"
    ingest(logs, text, packed=False)
    assert raw(logs) == text


def test_lines_for_a_collection_that_is_gone_are_no_damage_of_the_one_that_has_its_name(
    logs: Stores,
) -> None:
    params = IngestLinesParams(collection=NAME, uid="0", stream=0, labels={}, arrived=START)
    [spec] = cut(Kind.INGEST_LINES, params, [LinesItem(0, 1, b"x\n")], max_bytes=1 << 20)
    with pytest.raises(CollectionUnknown, match="is gone"):
        logs.pipeline.run(read_slice(spec.payload), seq=1 << 40)


def test_a_line_is_read_by_its_id_and_deleted(logs: Stores) -> None:
    text = lines(300)
    ingest(logs, text)
    rows = text.splitlines()
    assert logs.read("0:0", "0:299", "0:300", collection=NAME) == [
        rows[0], rows[299], "document_unknown",
    ]  # fmt: skip
    status, [result] = logs.do(
        Kind.DELETE, {"collection": NAME}, [Item({"id": "0:7"}), Item({"id": "0:999"})]
    )
    assert status is Status.SUCCEEDED
    assert [item["deleted"] for item in result.items] == [True, False]
    assert logs.read("0:7", collection=NAME) == ["document_unknown"]
    assert raw(logs).splitlines() == rows[:7] + rows[8:]


def test_streams_are_merged_by_time_and_pages_hold_each_line_once(logs: Stores) -> None:
    for host in "abc":
        ingest(logs, lines(700, host=host), host=host)
    found = [json.loads(row) for row in raw(logs, raw=False, limit=100).splitlines()]
    assert len(found) == 2100
    assert len({row["id"] for row in found}) == 2100
    assert [row["time"] for row in found] == sorted(row["time"] for row in found)
    only = raw(logs, filter={"field": "host", "eq": "b"})
    assert only == lines(700, host="b")
    since = raw(logs, filter={"field": "time", "gte": START + 690})
    assert len(since.splitlines()) == 30
    assert raw(logs, contains="user3", limit=1000).count(b"user3") == raw(logs).count(b"user3")


def test_a_search_finds_statements_with_counts_and_values(logs: Stores) -> None:
    ingest(logs, lines(2000))
    hits = search(logs, b"writing a block to the disk failed", mode="hybrid")
    assert {hit["count"] for hit in hits} == {500}
    line = lines(2000).splitlines()[2]
    [best, *_] = search(logs, line)
    assert "write to block" in best["statement"]
    # A whole line is found by its values, though it begins with a time.
    [same, *_] = search(logs, line, lines=True, limit=2)
    assert logs.read(same["id"], collection=NAME) == [line]
    block = line.split(b"block ")[1].split()[0]
    [value, *_] = search(logs, b"block " + block)
    assert value["count"] == 1
    plain = search(logs, b"link is up", lines=True, limit=7)
    assert len(plain) == 7


def test_a_value_of_a_question_is_not_found_in_a_longer_one(logs: Stores) -> None:
    rows = [b"user%d logged in from 10.0.0.%d\n" % (n, n % 250) for n in range(1000)]
    ingest(logs, b"".join(rows))
    [best, *_] = search(logs, b"who logged in from 10.0.0.1")
    assert best["count"] == 4
    plain = search(logs, b"who logged in from 10.0.0.1", lines=True, limit=7)
    texts = [logs.read(hit["id"], collection=NAME)[0] for hit in plain]
    assert texts == [
        *(b"user%d logged in from 10.0.0.1" % n for n in (751, 501, 251, 1)),
        *(b"user%d logged in from 10.0.0.%d" % (n, n - 750) for n in (999, 998, 997)),
    ]


@pytest.mark.parametrize("hosts", ["a", "abc"])
def test_a_hit_says_when_its_first_and_last_lines_were_wherever_they_stand(
    logs: Stores, hosts: str
) -> None:
    """Times that go back, and streams beside one another: the newest lines are the newest."""
    drawn = random.Random(len(hosts))
    times: list[int] = []
    for host in hosts:
        seconds = [drawn.randrange(86_400) for _ in range(2500)]
        rows = [
            f"2026-01-01T{n // 3600:02}:{n // 60 % 60:02}:{n % 60:02}Z job {n} is done\n"
            for n in seconds
        ]
        ingest(logs, "".join(rows).encode(), host=host)
        times += seconds
    [hit, *_] = search(logs, b"which job is done?")
    assert (hit["count"], len(times)) == (len(times), 2500 * len(hosts))
    assert (hit["first_seen"], hit["last_seen"]) == (START + min(times), START + max(times))
    newest = [f"{n // 3600:02}:{n // 60 % 60:02}:{n % 60:02}" for n in sorted(times)[:-4:-1]]
    assert [line["time"][11:19] for line in hit["lines"]] == newest


def test_small_segments_are_merged(logs: Stores) -> None:
    text = lines(600)
    rows = text.splitlines(keepends=True)
    for start in range(0, 600, 50):
        ingest(logs, b"".join(rows[start : start + 50]))
    logs.do(Kind.DELETE, {"collection": NAME}, [Item({"id": "0:55"})])
    assert len(logs.ledger.logs.segments(logs.uid(NAME))) == 12
    assert logs.scrub(NAME)["sound"] == 599
    assert len(logs.ledger.logs.segments(logs.uid(NAME))) == 1
    assert raw(logs).splitlines() == [*text.splitlines()[:55], *text.splitlines()[56:]]
    assert logs.read("0:54", "0:55", "0:56", collection=NAME)[1] == "document_unknown"


@pytest.mark.parametrize("bits", [4, 255], ids=["one that reading corrects", "more"])
def test_a_damaged_segment_is_written_again_by_its_verify(logs: Stores, bits: int) -> None:
    text = lines(2500)
    ingest(logs, text, verify=False)
    name = f"verso:segment:{logs.uid(NAME)}:0:0"
    stored = logs.redis.get(name)
    assert isinstance(stored, bytes)
    data = bytearray(stored)
    data[len(data) // 2] ^= bits
    logs.redis.set(name, bytes(data))
    logs.dispatcher.run_queue(Queue.SCRUB)
    assert logs.redis.get(name) == stored
    assert raw(logs) == text
    assert logs.ledger.logs.state(NAME).verified == 2500


def test_the_text_stays_until_the_lines_read_back(logs: Stores) -> None:
    for start in (0, 40):
        ingest(logs, lines(40, start=start), verify=False)
    logs.pipeline._lines.management.merge(logs.ledger.documents.collection(NAME))
    [name] = logs.redis.keys("verso:segment:*")
    stored = logs.redis.get(name)
    assert isinstance(stored, bytes)
    logs.redis.set(name, stored[:-9] + bytes(5) + stored[-4:])
    payloads = set(logs.redis.keys("verso:payload:*"))
    logs.dispatcher.run_queue(Queue.SCRUB)
    logs.ledger.maintenance.drop_due()
    assert payloads <= set(logs.redis.keys("verso:payload:*"))
    assert logs.ledger.logs.state(NAME).verified == 0


def test_lines_that_were_deleted_before_their_verify_are_verified(logs: Stores) -> None:
    """Segments that are gone are missing to the verify; those that were lost are not."""
    ingest(logs, lines(2100), verify=False)
    params = {"collection": NAME, "filter": {"field": "time", "lt": START + 2048}}
    logs.do(Kind.DELETE_MATCHING, params, [Item({"part": 0, "parts": 1})])
    assert raw(logs).count(b"\n") == 52
    logs.dispatcher.run_queue(Queue.SCRUB)
    assert logs.ledger.logs.state(NAME).verified == 2100
    ingest(logs, lines(2100, start=2100), verify=False)
    logs.redis.zremrangebyrank(f"verso:segments:{logs.uid(NAME)}", -2, -2)
    logs.dispatcher.run_queue(Queue.SCRUB)
    assert logs.ledger.logs.state(NAME).verified == 2100


def test_lines_that_were_deleted_are_verified_while_others_change_the_collection(
    logs: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    ingest(logs, lines(2100), verify=False)
    params = {"collection": NAME, "filter": {"field": "time", "lt": START + 2048}}
    logs.do(Kind.DELETE_MATCHING, params, [Item({"part": 0, "parts": 1})])
    right = Logs.state

    def changing(self: Logs, collection: str) -> LogState:
        logs.redis.hincrby(f"verso:log:{logs.uid(NAME)}", "text", 1)
        return right(self, collection)

    monkeypatch.setattr(Logs, "state", changing)
    logs.dispatcher.run_queue(Queue.SCRUB)
    assert logs.ledger.logs.state(NAME).verified == 2100


def test_no_flipped_bit_of_a_segment_returns_a_wrong_line(logs: Stores) -> None:
    text = lines(400)
    ingest(logs, text)
    rows = text.splitlines()
    name = f"verso:segment:{logs.uid(NAME)}:0:0"
    stored = logs.redis.get(name)
    assert isinstance(stored, bytes)
    drawn = random.Random(3)
    names = [f"0:{n}" for n in range(0, 400, 40)]
    for _ in range(60):
        data = bytearray(stored)
        data[drawn.randrange(len(data))] ^= 1 << drawn.randrange(8)
        logs.redis.set(name, bytes(data))
        found = logs.read(*names, collection=NAME)
        for n, line in zip(range(0, 400, 40), found, strict=True):
            assert line in (rows[n], "record_corrupt", "patch_corrupt")
    logs.redis.set(name, stored)


def test_a_deleted_collection_leaves_no_key(logs: Stores) -> None:
    ingest(logs, lines(3000))
    uid = logs.uid(NAME)
    logs.do(Kind.COLLECTION_DELETE, {"name": NAME}, [Item({})])
    for _ in range(20):
        logs.ledger.maintenance.drop_due()
    left = [
        key for key in logs.redis.scan_iter("verso:*") if key.split(b":")[2:3] == [uid.encode()]
    ]
    assert left == []


def test_new_statements_are_grouped_once_however_many_are_encoded(
    logs: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    right, grouped = Miner.templates, [0]

    def counted(self: Miner) -> list[str]:
        grouped[0] += 1
        return right(self)

    monkeypatch.setattr(Miner, "templates", counted)
    drawn = random.Random(8)
    words = ["gate", "door", "wall", "roof", "lamp", "sink", "desk", "sofa", "shelf", "stair"]
    text = "".join(" ".join(drawn.choices(words, k=12)) + "\n" for _ in range(400))
    [found] = ingest(logs, text.encode(), host="a")
    assert found["statements"] > 300
    assert grouped[0] == 1
    assert search(logs, b"gate and door")


def test_texts_in_a_frame_share_a_vector_and_are_found_by_their_words(logs: Stores) -> None:
    drawn = random.Random(8)
    words = ["gate", "door", "wall", "roof", "lamp", "sink", "desk", "sofa", "shelf", "stair"]
    rows = [
        f'{{"host":"web-{n % 3}","short_message":"{" ".join(drawn.choices(words, k=12))}",'
        f'"timestamp":{START + n},"level":6}}'
        for n in range(1500)
    ]
    rows[1200] = rows[1200].replace('message":"', 'message":"a payment was refused by the bank ')
    rows[1300] = rows[1300].replace('message":"', 'message":"this payment was taken at the bank ')
    text = "".join(f"{row}\n" for row in rows).encode()
    [found] = ingest(logs, text, host="a")
    assert found["statements"] == LIMITS.texts + 1
    assert found["records"] == 0
    assert raw(logs) == text
    for question in b"a payment was refused", rows[1200].encode():
        [best, *_] = search(logs, question, mode="hybrid")
        assert [line["id"] for line in best["lines"]] == ["0:1200"]
        assert best["statement"].startswith('{"host":"web-<*>","short_message":"a payment was')
        assert best["count"] == 1
        [line, *_] = search(logs, question, mode="hybrid", lines=True)
        assert line["id"] == "0:1200"
        [row, *_] = raw(logs, raw=False, question=question.decode()).splitlines()
        assert json.loads(row)["id"] == "0:1200"
    # The vectors of what has these words are compared, though none is stored.
    hits = search(logs, b"payment bank", mode="hybrid", explain=True)[:2]
    assert {hit["lines"][0]["id"] for hit in hits} == {"0:1200", "0:1300"}
    assert hits[0]["explain"]["dense"] != hits[1]["explain"]["dense"]
    # The statement of all of them is found by the id that a hit has.
    own = raw(logs, raw=False, statement=best["statement_id"]).splitlines()
    assert len(own) == 1500 - LIMITS.texts
    near = raw(logs, raw=False, statement=best["statement_id"], question="was refused")
    assert sorted(near.splitlines()) != []
    assert {json.loads(row)["id"] for row in near.splitlines()} == {
        json.loads(row)["id"] for row in own
    }
    assert json.loads(near.splitlines()[0])["id"] == "0:1200"


def test_workers_that_take_texts_in_a_frame_in_by_turns_have_the_same_statements(
    logs: Stores, model_store: ArtifactStore, vectors: EdgeVectors, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mining, "LIMITS", Limits(20, 30))

    def another() -> Stores:
        pipeline = make_pipeline(model_store, vectors, logs.ledger, buckets=BUCKETS)
        return Stores(logs.ledger, pipeline, vectors)

    drawn = random.Random(3)
    words = ["gate", "door", "wall", "roof", "lamp", "sink", "desk", "sofa", "shelf", "stair"]
    workers, sent = [logs, another()], b""
    for turn in range(6):
        rows = [
            f'{{"level":"{drawn.choice(["info", "error"])}",'
            f'"msg":"{" ".join(drawn.choices(words, k=9))}"}}'
            for _ in range(30)
        ]
        part = "".join(f"{row}\n" for row in rows).encode()
        ingest(workers[turn % 2], part)
        sent += part
    found = [
        [
            search(one, question, mode="hybrid")
            for question in (b"gate and sofa", sent.split(b"\n")[99])
        ]
        for one in (*workers, another())
    ]
    assert found[0] == found[1] == found[2]
    assert [raw(one) for one in workers] == [sent, sent]
    state = logs.ledger.logs.state(NAME)
    assert state.statements <= 30 + 3


@pytest.mark.parametrize("order", ["oldest", "newest"])
def test_pages_of_lines_of_one_time_show_each_once(logs: Stores, order: str) -> None:
    for host in "abcd":
        text = "".join(f"2026-01-01T00:00:00Z {host} event {n}\n" for n in range(2500))
        ingest(logs, text.encode(), host=host)
    pages = query(logs, limit=700, order=order, raw=False)
    ids = [json.loads(row)["id"] for page in pages for row in page.data.splitlines()]
    assert [page.lines for page in pages] == [700] * 14 + [200]
    assert sorted(ids) == sorted(f"{stream}:{n}" for stream in range(4) for n in range(2500))


def test_the_first_search_of_a_worker_finds_as_every_other_does(
    logs: Stores, model_store: ArtifactStore, vectors: EdgeVectors
) -> None:
    """By words and by vectors: a worker that has just started has read none of either."""
    ingest(logs, lines(400))
    found = search(logs, b"the link is up", lines=False)
    pipeline = make_pipeline(model_store, vectors, logs.ledger, buckets=BUCKETS)
    fresh = Stores(logs.ledger, pipeline, vectors)
    assert search(fresh, b"the link is up", lines=False) == found

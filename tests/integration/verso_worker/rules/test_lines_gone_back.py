"""Lines that workers take in and read while the ledger returns as it was before."""

from __future__ import annotations

from contextlib import closing

import pytest
from tests.integration.verso_worker.rules.log_lines import NAME, ingest, lines, raw
from tests.integration.verso_worker.worker_parts import BUCKETS, Stores, make_pipeline
from tests.wire import Item
from tests.wire import cut as wire_cut

from verso_core.errors import RecordCorrupt
from verso_core.jobs import CollectionKind, Kind, Queue
from verso_core.jobs.collections import CollectionParams
from verso_ledger import Ledger, NewJob
from verso_ledger.connection import connect
from verso_worker.jobs import executor
from verso_worker.models.artifacts import ArtifactStore

KNOWN, LOST = lines(40), b"".join(b"raid: array md%d is degraded\n" % n for n in range(40))
OTHER = b"".join(b"fan %d stopped at once\n" % n for n in range(40))


@pytest.fixture
def logs(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> Stores:
    """The stores, with a log collection; work that is to be done again is due at once."""
    monkeypatch.setattr(executor, "_RETRY_S", 0.0)
    stores.pipeline.create_collection(CollectionParams(name=NAME, kind=CollectionKind.LOGS))
    ingest(stores, KNOWN, host="a")
    return stores


def another(logs: Stores, model_store: ArtifactStore, url: str) -> Stores:
    """Return a worker that has just started."""
    ledger = Ledger(connect(url))
    pipeline = make_pipeline(model_store, logs.vectors, ledger, buckets=BUCKETS)
    return Stores(ledger, pipeline, logs.vectors)


def held(logs: Stores) -> dict[bytes, bytes]:
    """Return what the ledger holds."""
    return {name: logs.redis.dump(name) or b"" for name in logs.redis.scan_iter()}


def go_back(logs: Stores, before: dict[bytes, bytes]) -> None:
    """Let the ledger hold what it held."""
    logs.redis.flushdb()
    for name, value in before.items():
        logs.redis.restore(name, 0, value)


def test_lines_are_coded_by_what_the_ledger_has_and_not_by_what_a_worker_remembers(
    logs: Stores, model_store: ArtifactStore, valkey_url: str
) -> None:
    before = held(logs)
    ingest(logs, LOST, host="a")
    go_back(logs, before)
    ingest(logs, LOST, host="a")
    fresh = another(logs, model_store, valkey_url)
    with closing(fresh.ledger):
        assert raw(fresh) == raw(logs) == KNOWN + LOST


def test_workers_that_know_other_lost_shapes_agree_again(
    logs: Stores, model_store: ArtifactStore, valkey_url: str
) -> None:
    before = held(logs)
    ingest(logs, LOST, host="a")
    go_back(logs, before)
    fresh = another(logs, model_store, valkey_url)
    with closing(fresh.ledger):
        ingest(fresh, OTHER, host="a")
        assert raw(logs) == KNOWN + OTHER
        ingest(logs, LOST, host="a")
        ingest(fresh, LOST, host="b")
        for one in (logs, fresh):
            assert raw(one, filter={"field": "host", "eq": "a"}) == KNOWN + OTHER + LOST
            assert raw(one, filter={"field": "host", "eq": "b"}) == LOST


def test_fitted_tables_that_were_lost_code_nothing(
    logs: Stores, model_store: ArtifactStore, valkey_url: str
) -> None:
    before = held(logs)
    ingest(logs, lines(3000), host="b")
    go_back(logs, before)
    fresh = another(logs, model_store, valkey_url)
    with closing(fresh.ledger):
        ingest(fresh, lines(2000, start=50), host="b")
        ingest(logs, lines(1000), host="b")
        both = lines(2000, start=50) + lines(1000)
        assert raw(fresh, filter={"field": "host", "eq": "b"}) == both
        assert raw(logs, filter={"field": "host", "eq": "b"}) == both


def test_lines_of_tables_that_are_gone_are_an_error_also_once_others_have_their_number(
    logs: Stores, model_store: ArtifactStore, valkey_url: str
) -> None:
    ingest(logs, lines(3000), host="b")
    [name] = logs.redis.scan_iter("verso:fitted:*")
    logs.redis.delete(name)
    first = another(logs, model_store, valkey_url)
    with closing(first.ledger):
        assert failure(first, host="b") == RecordCorrupt.code
        ingest(first, OTHER * 60, host="c")  # tables of the same number are fitted to these
        assert logs.redis.hlen(name) == 1
    fresh = another(logs, model_store, valkey_url)
    with closing(fresh.ledger):
        for worker in logs, fresh:
            assert raw(worker, filter={"field": "host", "eq": "c"}) == OTHER * 60
            assert raw(worker, filter={"field": "host", "eq": "a"}) == KNOWN
        assert failure(fresh, host="b") == RecordCorrupt.code
        ingest(logs, LOST, host="d")  # by a worker that knows the first tables
        assert raw(fresh, filter={"field": "host", "eq": "d"}) == LOST


def failure(logs: Stores, **labels: str) -> str:
    """Return the code of the error that a list of lines ends with."""
    [(name, value)] = labels.items()
    params = {"collection": NAME, "limit": 0, "raw": True, "filter": {"field": name, "eq": value}}
    slices = list(wire_cut(Kind.LINES, params, [Item({})]))
    job = NewJob(kind=Kind.LINES, queue=Queue.INTERACTIVE, slices=slices)
    accepted = logs.ledger.jobs.accept(job)
    logs.dispatcher.run_queue(Queue.INTERACTIVE)
    error = logs.ledger.jobs.get(accepted.job_id).error
    return "" if error is None else str(error["code"])


def test_lines_of_a_stream_that_took_a_lost_ones_number_have_its_labels(
    logs: Stores, model_store: ArtifactStore, valkey_url: str
) -> None:
    before = held(logs)
    ingest(logs, lines(40, start=100), host="b")
    assert raw(logs, filter={"field": "host", "eq": "b"}) == lines(40, start=100)
    go_back(logs, before)
    fresh = another(logs, model_store, valkey_url)
    with closing(fresh.ledger):
        for start in (200, 300):
            ingest(fresh, lines(40, start=start), host="c")
    assert raw(logs, filter={"field": "host", "eq": "b"}) == b""
    found = raw(logs, filter={"field": "host", "eq": "c"})
    assert found == lines(40, start=200) + lines(40, start=300)

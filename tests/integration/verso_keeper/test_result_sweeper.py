"""The sweep of large results against a real ledger."""

from __future__ import annotations

from pathlib import Path

import pytest
import redis
from tests.wire import Item, cut

from verso_core.errors import ResultLost
from verso_core.jobs import Kind, Queue
from verso_core.result_files import SHARDS, ResultFiles
from verso_keeper.periodic import ResultSweeper
from verso_ledger import Commit, Ledger, NewJob
from verso_ledger.keys import key

FRAME = b"\x56" + b"v" * 5000


def finished(ledger: Ledger, files: ResultFiles, *, keep_s: int) -> tuple[str, bytes]:
    """Do a job with a large result; returns its id and what the ledger holds."""
    slices = list(cut(Kind.EMBED, {}, [Item({}, b"text")]))
    ledger.jobs.accept(NewJob(kind=Kind.EMBED, queue=Queue.BULK, slices=slices, keep_s=keep_s))
    [lease] = ledger.leases.claim(Queue.BULK, owner="w")
    held = files.keep(lease.job_id, lease.number, FRAME)
    assert ledger.leases.commit(lease, held, ok=1, errors=0) is Commit.DONE
    return lease.job_id, held


def test_results_go_when_their_jobs_have_expired(valkey_url: str, tmp_path: Path) -> None:
    ledger, files = Ledger.from_url(valkey_url), ResultFiles(tmp_path, inline_bytes=1000)
    brief, held = finished(ledger, files, keep_s=600)
    lasting, other = finished(ledger, files, keep_s=600)
    sweeper = ResultSweeper(files, ledger.jobs.known)
    assert sum(sweeper.step() for _ in SHARDS) == 0
    with redis.Redis.from_url(valkey_url) as raw:
        raw.delete(key("job", brief))  # as its time does
    assert sum(sweeper.step() for _ in SHARDS) == 1
    with pytest.raises(ResultLost):
        files.read(brief, 0, held)
    found = ledger.jobs.result(lasting)
    assert found == other
    assert files.read(lasting, 0, other) == FRAME
    ledger.close()

"""Facts about the ledger that need no server."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import verso_ledger
from verso_core.errors import BodyTooLarge, JobUnknown, LedgerUnavailable, QueueFull
from verso_core.jobs import Kind, Queue, SliceSpec, Status
from verso_core.record import Codec, Entry, Flag, Record
from verso_ledger import (
    DocumentDelete,
    DocumentWrite,
    Limits,
    NewJob,
    Policy,
    connection,
)
from verso_ledger.codec import collection_rows, job_rows, scalars
from verso_ledger.codec.admission import Admission, accepted
from verso_ledger.connection import translated
from verso_ledger.events.job_events import JobChanges
from verso_ledger.keys import NAMES, key
from verso_ledger.scripts import SHARED, source

LUA = Path(verso_ledger.__file__).parent / "lua"
STEPS = sorted(path.stem for path in LUA.glob("*.lua") if path.stem not in SHARED)


def _names(pattern: str) -> set[str]:
    """Find every name that the scripts use in this way."""
    return {name for path in LUA.glob("*.lua") for name in re.findall(pattern, path.read_text())}


def _entry(size: int) -> bytes:
    record = Record(Codec.RAW, 0, b"hashhash", b"sums", b"p" * size)
    return Entry(seq=7, size_bytes=size, records=(record,)).pack()


def test_every_key_a_script_uses_is_in_the_list_and_every_listed_key_is_used() -> None:
    used = {
        name for path in LUA.glob("*.lua") for name in re.findall(r"K\.(\w+)", path.read_text())
    }
    python = "".join(path.read_text() for path in LUA.parent.rglob("*.py"))
    used |= set(re.findall(r'key\(\s*"(\w+)"', python))
    assert used == set(NAMES)


def test_every_policy_number_is_used_by_a_script() -> None:
    used = {
        name for path in LUA.glob("*.lua") for name in re.findall(r"P\.(\w+)", path.read_text())
    }
    assert used == set(Policy.__dataclass_fields__)


def test_every_key_is_documented() -> None:
    documented = re.findall(r"^    (\w+) +(?:-|\{)", verso_ledger.keys.__doc__ or "", re.MULTILINE)
    assert sorted(documented) == sorted(NAMES)


@pytest.mark.parametrize("step", STEPS)
def test_a_full_server_refuses_only_what_adds_work(step: str) -> None:
    first = source(step, Policy()).splitlines()[0]
    adds_work = step in (
        *("accept", "collection_put", "generation_add", "move_put", "reserve", "stage"),
    )
    assert first == ("#!lua" if adds_work else "#!lua flags=allow-oom")


def test_a_policy_of_its_own_reaches_the_script() -> None:
    assert "max_crashes=9," in source("reap", Policy(max_crashes=9))
    assert "backoff_ms={1,2}" in source("reap", Policy(backoff_ms=(1, 2)))


def test_keys_join_their_parts() -> None:
    assert key("docs", 7, 12) == "verso:docs:7:12"
    assert key("seq") == "verso:seq"


def test_a_job_that_no_queue_could_hold_is_too_large() -> None:
    parts = [SliceSpec(payload=b"12345", items=1)] * 2
    job = NewJob(Kind.EMBED, Queue.BULK, parts, limits=Limits(max_slices=2, max_bytes=10))
    assert Admission.of(job).staged == []
    for limits in (Limits(max_slices=1, max_bytes=10), Limits(max_slices=2, max_bytes=9)):
        with pytest.raises(BodyTooLarge):
            Admission.of(NewJob(Kind.EMBED, Queue.BULK, parts, limits=limits))


def test_replies_of_accept_become_answers_or_errors() -> None:
    assert accepted([b"new", b"j"]).replayed is False
    assert accepted([b"dup", b"j"]).replayed is True
    with pytest.raises(QueueFull) as full:
        accepted([b"full", 17])
    assert full.value.retry_after_s == 17


def test_a_job_without_fields_is_unknown() -> None:
    with pytest.raises(JobUnknown):
        job_rows.job_record("j", {})


def test_a_job_that_has_not_started_has_no_times_but_its_creation() -> None:
    row = {
        "kind": "embed", "queue": "bulk", "tenant": "t", "st": "queued", "made": "1500",
        "deadline": "0", "slices": "1", "items": "2", "ok": "0", "err": "0", "done": "0",
        "att": "0",
    }  # fmt: skip
    record = job_rows.job_record("j", {k.encode(): v.encode() for k, v in row.items()})
    assert (record.created, record.started, record.finished, record.deadline) == (
        1.5, None, None, None,
    )  # fmt: skip
    assert record.status is Status.QUEUED
    assert record.error is None


def test_an_entry_longer_than_a_bucket_value_leaves_its_head_there() -> None:
    for size, long in ((5, False), (990, False), (1100, True)):
        entry = _entry(size)
        args = collection_rows.write_args(DocumentWrite("c", "d", entry), uid="1", buckets=16)
        short, whole = args[5], args[6]
        assert isinstance(short, bytes)
        assert len(short) <= collection_rows.MAX_BUCKET_VALUE_BYTES
        assert (whole == entry) is long
        assert bool(Entry.unpack(short).flags & Flag.LONG) is long
        assert Entry.unpack(short).seq == 7


def test_an_empty_text_is_kept_and_no_text_is_not() -> None:
    def kept(text: bytes | None) -> list[scalars.Arg]:
        write = DocumentWrite("c", "d", _entry(1), text=text)
        return collection_rows.write_args(write, uid="1", buckets=16)[7:]

    assert kept(b"") == [1, b""]
    assert kept(None) == [0, b""]
    assert collection_rows.write_args(DocumentDelete("c", "d"), uid="1", buckets=16)[0] == "d"


def test_a_connection_that_uvloop_finds_closed_is_a_ledger_that_does_not_answer() -> None:
    with pytest.raises(LedgerUnavailable), translated():
        raise RuntimeError("unable to perform operation on <TCPTransport closed=True>")
    with pytest.raises(RuntimeError, match="ours"), translated():
        raise RuntimeError("a fault of ours")


@pytest.mark.parametrize(
    "url", ["unix://:secret@/run/valkey?db=0", "redis://:secret@localhost:1/0"]
)
def test_a_ledger_may_be_at_a_unix_socket(url: str) -> None:
    pools: list[Any] = [
        connection.connect(url).connection_pool,
        connection.connect_async(url).connection_pool,
    ]
    assert [pool.make_connection().db for pool in pools] == [0, 0]


def test_changes_are_noted_until_there_are_too_many_of_them() -> None:
    changes = JobChanges()
    assert changes.take() is None  # at first any job may have changed
    for job in ("a", "b", "a"):
        changes.note(job)
    assert changes.is_set()
    assert changes.take() == ["a", "b"]
    assert not changes.is_set()
    assert changes.take() == []
    for n in range(5000):
        changes.note(str(n))
    assert changes.take() is None

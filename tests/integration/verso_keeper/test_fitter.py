"""When a collection is fitted: after its first chunks, when patches grow, never twice at once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from typing import Any

import pytest
import redis
from tests.wire import Result, read_slice

from verso_core.jobs import (
    CodecPolicy,
    Collection,
    CollectionKind,
    Precision,
    Queue,
    TextPolicy,
)
from verso_core.jobs.fitting import Generation, GenerationStage
from verso_keeper.fitter import FULL_BYTES, WINDOW, Fitter
from verso_ledger import Ledger
from verso_ledger.keys import key

HOUR_S = 3600.0


class Place:
    """A real ledger with a collection whose counts a test sets, and a keeper's duty."""

    def __init__(self, ledger: Ledger, raw: redis.Redis) -> None:
        self.ledger = ledger
        self.raw = raw
        self.now = 1_800_000_000.0
        self.fitter = self.new()

    def new(self, after: int = 1000) -> Fitter:
        return Fitter(self.ledger, after_chunks=after, growth=0.1, clock=lambda: self.now)

    def hold(self, chunks: int, *, patches: int = 0, text: int = 0, **slots: int) -> None:
        """Set what the collection holds."""
        uid = self.raw.hget(key("uids"), "c")
        assert isinstance(uid, bytes)
        row = {"chunks": chunks, "bytes_text": text, "records:5": chunks, "bytes:5": patches}
        for field, count in (row | slots).items():
            self.raw.hset(key("counts", uid.decode()), field, str(count))

    def asked(self) -> list[tuple[int, int]]:
        """Run a round; return the numbers and chunks of the fits that wait, and end them."""
        self.fitter.step()
        leases = self.ledger.leases.claim(Queue.FIT, owner="worker", n=10)
        found = []
        for lease in leases:
            work = read_slice(lease.payload)
            assert work.params["collection"] == "c"
            [item] = work.items
            found.append((work.params["number"], item.header["chunks"]))
            result = Result([{"ok": True, "collection": "c"}])
            self.ledger.leases.commit(lease, result.pack(), ok=1, errors=0)
        return found

    def gain(self, *, level: float, chunks: int) -> str:
        """Do what a fit that gains does, and let its tables serve."""
        number = self.ledger.documents.collection("c").fitting.number
        made = Generation(
            id=f"codec.{number}", stage=GenerationStage.CANARY, bytes=1, level=level, fitted=0.0
        )
        assert self.ledger.generations.add("c", made, b"t", number=number, chunks=chunks)
        self.ledger.generations.stage("c", made.id, GenerationStage.SERVING)
        return made.id


@pytest.fixture
def place(valkey_url: str) -> Iterator[Place]:
    with closing(Ledger.from_url(valkey_url)) as ledger, redis.Redis.from_url(valkey_url) as raw:
        ledger.documents.collection_put(_collection())
        yield Place(ledger, raw)


def _collection(policy: CodecPolicy = CodecPolicy.BALANCED) -> Collection:
    return Collection(
        name="c",
        precision=Precision.INT8,
        text_policy=TextPolicy.PATCH,
        space="0123456789abcdef",
        dim=4,
        int8_scale=0.1,
        artifacts=("codec",),
        buckets=16,
        checksum_key="00ff00ff00ff",
        created=datetime.now(UTC),
        codec_policy=policy,
    )


def test_a_collection_is_fitted_after_its_first_chunks(place: Place) -> None:
    place.hold(999)
    assert place.asked() == []
    place.hold(1000)
    assert place.asked() == [(0, 1000)]


def test_a_keeper_that_starts_again_submits_the_same_job(place: Place) -> None:
    place.hold(1000)
    place.fitter.step()
    place.fitter = place.new()
    assert place.asked() == [(0, 1000)]


def test_nothing_is_fitted_where_the_setting_says_so(place: Place) -> None:
    place.hold(10**6)
    place.fitter = place.new(after=0)
    assert place.asked() == []


@pytest.mark.parametrize("setting", [{"auto_fit": False}, {"kind": CollectionKind.LOGS}])
def test_a_collection_that_is_not_to_be_fitted_is_not(
    place: Place, setting: dict[str, Any]
) -> None:
    place.hold(10**4)
    change = place.ledger.documents.collection_change
    change("c", lambda one: one.model_copy(update=setting))
    assert place.asked() == []


def test_a_collection_that_reads_no_tables_is_not_fitted(place: Place) -> None:
    place.ledger.documents.collection_change("c", lambda _: _collection(CodecPolicy.FAST))
    place.hold(10**6)
    assert place.asked() == []


def test_one_that_failed_is_submitted_again_in_another_hour(place: Place) -> None:
    place.hold(1000)
    assert place.asked() == [(0, 1000)]
    assert place.asked() == []
    place.now += HOUR_S
    assert place.asked() == [(0, 1000)]


def test_one_that_gained_nothing_is_tried_again_when_the_collection_has_doubled(
    place: Place,
) -> None:
    place.ledger.generations.tried("c", number=0, chunks=1000)
    place.hold(1999, text=2 * FULL_BYTES)
    assert place.asked() == []
    place.hold(2000, text=2 * FULL_BYTES)
    assert place.asked() == [(1, 2000)]


def test_more_text_is_worth_another_fit_until_the_tables_are_full(place: Place) -> None:
    place.gain(level=10.0, chunks=1000)
    place.hold(2000, text=FULL_BYTES)
    assert place.asked() == []
    place.hold(2000, text=FULL_BYTES - 1)
    assert place.asked() == [(1, 2000)]


@pytest.mark.parametrize(("size", "due"), [(10.9, False), (11.2, True)])
def test_a_collection_is_fitted_again_when_its_new_patches_grow(
    place: Place, size: float, due: bool
) -> None:
    place.gain(level=10.0, chunks=10_000)
    place.hold(11_000, patches=110_000, text=10 * FULL_BYTES)
    assert place.asked() == []
    place.hold(11_000 + WINDOW, patches=110_000 + int(size * WINDOW), text=10 * FULL_BYTES)
    assert bool(place.asked()) is due


def test_no_other_fit_begins_while_a_canary_is_tried(place: Place) -> None:
    made = Generation(id="codec.0", stage=GenerationStage.CANARY, bytes=1, level=1.0, fitted=0.0)
    place.ledger.generations.add("c", made, b"t", number=0, chunks=1000)
    place.hold(10**6)
    assert place.asked() == []


def test_tables_go_an_hour_after_they_stopped_to_write_if_no_record_names_them(
    place: Place,
) -> None:
    first, slot = place.gain(level=10.0, chunks=1000), 1
    place.gain(level=9.0, chunks=1100)
    place.hold(1100, **{f"slot:{slot}": 3})
    place.now = datetime.now(UTC).timestamp() + HOUR_S + 1
    place.fitter.step()
    assert place.ledger.generations.tables(first) == b"t"
    place.hold(1100, **{f"slot:{slot}": 0})
    place.now -= HOUR_S
    place.fitter.step()
    assert place.ledger.generations.tables(first) == b"t"
    place.now += HOUR_S
    place.fitter.step()
    assert place.ledger.generations.tables(first) is None
    assert place.ledger.documents.collection("c").artifacts == ("codec", "", "codec.1")

"""What collections hold is counted again on a real ledger, once for each pass of the scrub."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime

import pytest
import redis

from verso_core.jobs import Collection, Precision, TextPolicy
from verso_keeper.scrubber import Recounter
from verso_ledger import Ledger, Move
from verso_ledger.keys import key


@pytest.fixture
def ledger(valkey_url: str) -> Iterator[Ledger]:
    with closing(Ledger.from_url(valkey_url)) as ledger:
        for name in ("a", "b"):
            ledger.documents.collection_put(
                Collection(
                    name=name,
                    precision=Precision.FLOAT16,
                    text_policy=TextPolicy.PATCH,
                    space="0123456789abcdef",
                    dim=4,
                    int8_scale=1.0,
                    artifacts=(),
                    buckets=64,
                    checksum_key="00",
                    created=datetime.now(UTC),
                )
            )
        yield ledger


def _break(client: redis.Redis) -> None:
    for name in client.keys(key("counts", "*")):
        client.hset(name, "documents", 3)


def _round(recounter: Recounter) -> None:
    for _ in range(8):  # a step ends early where the machine is slow
        recounter.step()


def _documents(ledger: Ledger) -> list[int]:
    return [ledger.documents.holdings(name).documents for name in ("a", "b")]


def test_counts_are_compared_once_after_each_pass(ledger: Ledger, valkey_url: str) -> None:
    recounter = Recounter(ledger)
    _round(recounter)
    with redis.Redis.from_url(valkey_url) as client:
        _break(client)
        _round(recounter)
        assert _documents(ledger) == [3, 3]  # counted for this pass already
        assert ledger.scrub.move(ledger.scrub.state().turn, Move(begin=True))
        _round(recounter)
        assert _documents(ledger) == [3, 3]  # what this pass may mend is not mended yet
        assert ledger.scrub.move(ledger.scrub.state().turn, Move(end=True))
        _round(recounter)
        assert _documents(ledger) == [0, 0]
        assert ledger.maintenance.backlog().totals["counts:mended"] == 2
        _break(client)
        _round(Recounter(ledger))  # a keeper that starts again
        assert _documents(ledger) == [3, 3]


def test_a_collection_that_goes_is_forgotten(ledger: Ledger) -> None:
    recounter = Recounter(ledger)
    _round(recounter)
    ledger.documents.collection_delete("a")
    _round(recounter)
    assert list(recounter._counted) == ["b"]

"""Settings of a worker that exclude one another are refused before anything is opened."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from verso_worker.settings import Replication, WorkerSettings

URL = "http://qdrant:6333"


def test_replication_is_the_servers_own_unless_it_is_set() -> None:
    assert WorkerSettings().replication == Replication()
    assert WorkerSettings(qdrant_url=URL).replication == Replication()
    assert not Replication(read_consistency=2).of_collections


@pytest.mark.parametrize(
    ("read", "consistency"),
    [("2", 2), ("majority", "majority"), ("quorum", "quorum"), ("all", "all")],
)
def test_replication_is_read_from_the_environment(
    monkeypatch: pytest.MonkeyPatch, read: str, consistency: int | str
) -> None:
    for name, value in {
        "URL": URL,
        "REPLICATION_FACTOR": "3",
        "SHARD_NUMBER": "6",
        "WRITE_CONSISTENCY_FACTOR": "2",
        "READ_CONSISTENCY": read,
    }.items():
        monkeypatch.setenv(f"VERSO_QDRANT_{name}", value)
    asked = WorkerSettings().replication
    assert (asked.factor, asked.shards, asked.write_consistency) == (3, 6, 2)
    assert asked.read_consistency == consistency
    assert asked.of_collections


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"qdrant_read_consistency": "most"}, "or majority, quorum or all, got 'most'"),
    ({"qdrant_read_consistency": "0"}, "a number of replicas from 1"),
    ({"qdrant_read_consistency": "-1"}, "a number of replicas from 1"),
    ({"qdrant_replication_factor": 0}, "greater than or equal to 1"),
    ({"qdrant_shard_number": 0}, "greater than or equal to 1"),
    (
        {"qdrant_replication_factor": 2, "qdrant_write_consistency_factor": 3},
        r"VERSO_QDRANT_REPLICATION_FACTOR \(2\), got 3",
    ),
    ({"qdrant_write_consistency_factor": 1}, r"\(unset\), got 1"),
    (
        {"qdrant_replication_factor": 2, "qdrant_read_consistency": 3},
        r"VERSO_QDRANT_REPLICATION_FACTOR \(2\), got 3",
    ),
    ({"qdrant_url": None, "qdrant_replication_factor": 2}, "expected VERSO_QDRANT_URL"),
]


@pytest.mark.parametrize(("given", "message"), REFUSED, ids=str)
def test_what_the_server_would_lower_in_silence_is_refused(
    given: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValidationError, match=message):
        WorkerSettings(**{"qdrant_url": URL} | given)

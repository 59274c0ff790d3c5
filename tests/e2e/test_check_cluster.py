"""The check of a cluster, from its first document to its verdict, on a started platform.

The platform stands where the cluster's gateway is forwarded to; kubectl's calls have their own
tests. No pod dies here: storms, rounds and rollovers kill the same processes.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.e2e.conftest import Platform
from tests.ops import check_cluster
from tests.ops.check_cluster import COLLECTION, PARTS, Cluster

from verso_client import Client, Document


class Forwarded(Cluster):
    """A cluster whose gateway is a platform's."""

    def __init__(self, platform: Platform) -> None:
        super().__init__([], "verso")
        self.asked: list[str] = []
        self._platform = platform

    def run(self, *argv: str, check: bool = True) -> str:
        self.asked.append(" ".join(argv[:2]))
        return "deployment.apps/worker" if argv[:2] == ("get", "deployment") else ""

    @contextmanager
    def gateway(self) -> Iterator[str]:
        yield self._platform.url


def test_all_documents_of_a_check_are_read_back(platform: Platform, verso: Client) -> None:
    cluster = Forwarded(platform)
    given = argparse.Namespace(
        overlay=Path("k8s/overlays/local"), documents=60, timeout_s=60, api_key=""
    )
    found = check_cluster.check(cluster, given)
    assert (found["documents"], found["exact"], found["lost"], found["wrong"]) == (60, 60, 0, 0)
    assert found["pods killed"] == len(PARTS)
    assert cluster.asked.count("get pod") == len(PARTS)
    assert cluster.asked.count("rollout status") == 2
    assert COLLECTION not in {one.name for one in verso.collections()}


def test_a_lost_and_a_changed_document_are_seen(verso: Client, collection: str) -> None:
    stored = [Document(check_cluster.text_of(0), id="0"), Document(b"another text", id="1")]
    verso.ingest(stored, collection=collection)
    found = check_cluster.read_back(verso, 3, collection=collection)
    assert found == {"documents": 3, "exact": 1, "lost": 1, "wrong": 1}

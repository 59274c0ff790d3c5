"""What the shipped heads promise of stored documents, on the shipped texts of all four log sets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

import pytest
from tests.e2e.conftest import Platform

from verso_client import Client, Document
from verso_core.jobs.heads.classify import Classification
from verso_standalone import sample

MODELS = Path(__file__).parents[2] / "models"
KINDS = {"crash": "kernel", "trace": "java-test", "install": "r-install", "check": "r-check"}
"""Kinds of texts in the corpus, and the source of their labels. All are of test parts."""
EACH = 12


@pytest.fixture(scope="module")
def client(new_platform: Callable[..., Platform]) -> Iterator[Client]:
    """Yield a client of a platform with the shipped model and heads."""
    platform = new_platform()
    platform.artifact = MODELS / "default"
    platform.start()
    with platform.client() as client:
        yield client
    platform.stop()


def _said(client: Client, **what: object) -> list[Classification]:
    found = client.classify("log-failures", top_k=1000, **what)  # type: ignore[arg-type]
    return [one.heads[0] for one in found]


def test_a_stored_document_of_each_log_set_is_classified_as_its_text(client: Client) -> None:
    """By default, in a collection of the default kind: its vectors are coarser than a text's."""
    client.create_collection("failures")
    documents = {document.id: document for document in sample.documents()}
    several = 0
    for kind, source in KINDS.items():
        own = [one for one in documents.values() if one.metadata["kind"] == kind]
        # the longest, since those have several chunks
        chosen = sorted(own, key=lambda one: -len(one.text))[:EACH]
        texts = [
            one.text if isinstance(one.text, str) else one.text.decode(errors="replace")
            for one in chosen
        ]
        ids = [f"{kind}-{at}" for at in range(len(texts))]
        before = client.stats("failures").chunks
        stored = [Document(text, id=name) for text, name in zip(texts, ids, strict=True)]
        assert client.ingest(stored, collection="failures").failed == ()
        several += client.stats("failures").chunks - before > 2 * len(texts)
        by_text = _said(client, texts=texts)
        by_id = _said(client, ids=ids, collection="failures")
        assert [one.label for one in by_id] == [one.label for one in by_text]
        right = [str(one.label).partition("/")[0] for one in by_text]
        assert right.count(source) >= EACH - 1, right
        moved = [
            abs((one.confidence or 0.0) - (other.confidence or 0.0))
            for one, other in zip(by_text, by_id, strict=True)
        ]
        assert median(moved) < 0.01
    assert several >= 3

"""Chunks that repeat are encoded and coded once, and each document reads back exactly.

Real ledger, real vector engine, real (tiny) model.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from itertools import count

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.integration.verso_worker.worker_parts import BUCKETS, Stores, make_pipeline

from verso_core.jobs import CodecPolicy, SearchMode
from verso_core.jobs.collections import CollectionParams
from verso_core.record import Codec
from verso_ledger import Ledger
from verso_ledger.connection import connect
from verso_worker.models.artifacts import ArtifactStore
from verso_worker.records.cache import Cache
from verso_worker.rules.ingest import Coded
from verso_worker.stores.edge.client import EdgeVectors

TEXT = b"Jan 12 10:00:01 host sshd[4242]: Failed password for root"
OTHER = b"Jan 12 10:00:02 host sshd[4243]: Failed password for admin"
POOL = [TEXT, OTHER, b"", b"\xff\x00 no text", TEXT + OTHER, b"x" * 300]


class Told:
    hits = misses = 0

    def __call__(self, hits: int, misses: int, size: int) -> None:
        self.hits, self.misses = self.hits + hits, self.misses + misses


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def stores(
    model_store: ArtifactStore, vectors: EdgeVectors, valkey_url: str, told: Told
) -> Iterator[Stores]:
    with closing(Ledger(connect(valkey_url))) as ledger:
        coded: Cache[Coded] = Cache(1 << 20, on_lookup=told)
        pipeline = make_pipeline(model_store, vectors, ledger, buckets=BUCKETS, coded=coded)
        pipeline.create_collection(CollectionParams(name="default"))
        pipeline.create_collection(
            CollectionParams(name="fast", codec_policy=CodecPolicy.FAST, search=SearchMode.DENSE)
        )
        yield Stores(ledger, pipeline, vectors)


def test_a_text_is_coded_once_in_a_slice_and_once_in_all(stores: Stores, told: Told) -> None:
    stores.fill({"a": TEXT, "b": TEXT, "c": OTHER})
    assert (told.hits, told.misses) == (0, 2)
    stores.fill({"d": OTHER, "e": TEXT})
    assert (told.hits, told.misses) == (2, 2)
    assert stores.read(*"abcde") == [TEXT, TEXT, OTHER, OTHER, TEXT]
    one, two = (stores.entry(name).records[0] for name in "ae")
    assert one == two
    assert stores.points("a") != stores.points("e")


def test_a_collection_never_gets_what_was_coded_for_another(stores: Stores, told: Told) -> None:
    stores.fill({"a": TEXT})
    stores.fill({"a": TEXT}, "fast")
    assert (told.hits, told.misses) == (0, 2)
    [record] = stores.stored("a", "fast").records
    assert record.codec in (Codec.RAW, Codec.ZSTD)
    assert stores.read("a", collection="fast") == [TEXT]


def test_a_repeat_reads_back_after_the_first_was_deleted(stores: Stores) -> None:
    stores.fill({"a": TEXT})
    stores.fill({"b": TEXT})
    stores.fill({"a": OTHER})
    assert stores.read("a", "b") == [OTHER, TEXT]


_number = count()


@settings(
    max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    slices=st.lists(
        st.lists(st.sampled_from(POOL) | st.binary(max_size=60), min_size=1, max_size=6),
        min_size=1,
        max_size=3,
    )
)
def test_texts_with_any_repeats_read_back(stores: Stores, slices: list[list[bytes]]) -> None:
    for texts in slices:
        rows = {f"p{next(_number)}": text for text in texts}
        stores.fill(rows)
        assert stores.read(*rows) == texts

"""Facts about collections as they are made where nothing is chosen."""

from __future__ import annotations

from verso_core.jobs import CodecPolicy, Precision, SearchMode
from verso_core.jobs.collections import CollectionParams, CollectionRequest


def test_a_new_collection_is_hybrid_int4_and_balanced() -> None:
    for made in (CollectionRequest(name="a"), CollectionParams(name="default")):
        assert (made.search, made.precision) == (SearchMode.HYBRID, Precision.INT4)
        assert made.codec_policy is CodecPolicy.BALANCED

"""Words of texts as sparse vectors, and on the wire."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verso_core.errors import VectorInvalid
from verso_worker.records.points import NO_TERMS, Terms
from verso_worker.stores.bm25 import Bm25, pack_terms, unpack_terms

WEIGHTS = st.floats(width=32, min_value=0, max_value=1e6)
TERMS = st.dictionaries(st.integers(0, 2**32 - 1), WEIGHTS, max_size=20).map(
    lambda kept: Terms(tuple(sorted(kept)), tuple(kept[one] for one in sorted(kept)))
)


def test_a_weight_is_the_texts_half_of_bm25() -> None:
    lexicon = Bm25(k=1.2, b=0.75, mean_length=10)
    [terms] = lexicon.documents([b"disk error disk"])
    lengths = 1.2 * (1 - 0.75 + 0.75 * 3 / 10)
    weight = {tf: tf * 2.2 / (tf + lengths) for tf in (1, 2)}
    assert sorted(terms.weights) == pytest.approx([weight[1], weight[2]])


def test_a_query_finds_its_words_in_whatever_form_they_stand() -> None:
    lexicon = Bm25()
    query = lexicon.query(b"Failing disks")
    [terms] = lexicon.documents([b"the disk failed"])
    assert set(query.ids) == set(terms.ids)
    assert query.weights == (1.0, 1.0)


def test_a_word_that_a_query_repeats_weighs_more() -> None:
    lexicon = Bm25(k3=8)
    once, twice = lexicon.query(b"disk"), lexicon.query(b"disks, disk")
    assert once.ids == twice.ids
    assert once.weights + twice.weights == pytest.approx((1.0, 2 * 9 / 10))


def test_ids_are_the_same_in_every_process() -> None:
    assert Bm25().query(b"disk").ids == (171669460,)


@pytest.mark.parametrize("text", [b"", b"the of and", b"\xff\xfe", b" \n\t"])
def test_a_text_may_have_no_words(text: bytes) -> None:
    assert Bm25().documents([text]) == [NO_TERMS]
    assert not Bm25().query(text)


@given(st.lists(st.binary(max_size=200), max_size=4))
def test_any_bytes_have_terms_in_ascending_order(texts: list[bytes]) -> None:
    lexicon = Bm25()
    found = lexicon.documents(texts)
    assert found == lexicon.documents(texts)
    for terms in found:
        assert list(terms.ids) == sorted(set(terms.ids))
        assert len(terms.ids) == len(terms.weights)


@given(st.lists(TERMS, max_size=5))
def test_terms_travel_unchanged(terms: list[Terms]) -> None:
    sizes, blobs = pack_terms(terms)
    assert unpack_terms(sizes, blobs) == terms


def test_blobs_of_another_size_are_refused() -> None:
    sizes, blobs = pack_terms([Terms((1, 2), (1.0, 2.0))])
    with pytest.raises(VectorInvalid):
        unpack_terms(sizes, [blobs[0], blobs[1][:-4]])
    with pytest.raises(VectorInvalid):
        unpack_terms([*sizes, 1], blobs)

"""Ids of documents whose sender gave none."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verso_core.texts import check_document_id
from verso_gateway.bodies import ids

YEAR_2247_NS = 8_741_000_000 * 10**9


def _request(monkeypatch: pytest.MonkeyPatch, *, at_ns: int, number: int) -> list[str]:
    monkeypatch.setattr("time.time_ns", lambda: at_ns)
    return list(itertools.islice(ids.new_ids(), number))


def test_ids_of_a_request_are_distinct_and_in_its_order_by_their_bytes() -> None:
    made = list(itertools.islice(ids.new_ids(), 10_000))
    assert len(set(made)) == len(made)
    assert made == sorted(made, key=str.encode)


def test_a_later_millisecond_has_later_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    times = (0, 10**6, 1_800_000_000 * 10**9, 1_800_000_000 * 10**9 + 10**6, YEAR_2247_NS)
    made = [_request(monkeypatch, at_ns=at, number=1000) for at in times]
    assert made == sorted(made)
    assert all(before[-1] < after[0] for before, after in itertools.pairwise(made))


def test_requests_of_one_millisecond_share_no_id(monkeypatch: pytest.MonkeyPatch) -> None:
    made = [one for _ in range(1000) for one in _request(monkeypatch, at_ns=10**18, number=10)]
    assert len(set(made)) == len(made)


def test_each_id_is_one_that_a_sender_might_give(monkeypatch: pytest.MonkeyPatch) -> None:
    for made in _request(monkeypatch, at_ns=YEAR_2247_NS, number=100):
        assert check_document_id(made) == made
        assert len(made) == ids.ID_CHARACTERS
        assert made.isalnum()


@given(st.lists(st.binary(), min_size=1, max_size=8), st.text(), st.text())
def test_a_key_makes_the_same_ids_of_the_same_texts(
    texts: list[bytes], tenant: str, key: str
) -> None:
    first, again = ids.ids_of_key(tenant, key), ids.ids_of_key(tenant, key)
    made = [first(text) for text in texts]
    assert made == [again(text) for text in texts]
    assert len(set(made)) == len(texts)  # equal texts stay documents of their own
    other = ids.ids_of_key(tenant, key + "x")
    assert not set(made) & {other(text) for text in texts}


def test_a_key_makes_the_ids_that_earlier_releases_made_of_it() -> None:
    """Or a request that one of them has accepted is spread over other partitions when repeated."""
    of_key = ids.ids_of_key("tenant", "key")
    made = [of_key(b"a"), of_key(b"a")]
    assert made == ["a678cf00116bb7dd1ccac8d1a61af866", "e1eb2db14627431e8cb6168bf9313a29"]

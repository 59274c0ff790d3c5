"""Facts about the Prefer header."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verso_gateway.prefer import Preference, parse


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([], Preference()),
        (["wait=5"], Preference(wait_s=5)),
        (['Wait="5"'], Preference(wait_s=5)),
        (["respond-async, wait=10"], Preference(wait_s=10, respond_async=True)),
        (["respond-async", "wait=3; foo=bar"], Preference(wait_s=3, respond_async=True)),
        (["wait=3, wait=9"], Preference(wait_s=3)),
        (["wait=-1", "wait=soon", "handling=lenient"], Preference()),
    ],
)
def test_headers_are_read_as_rfc_7240_says(values: list[str], expected: Preference) -> None:
    assert parse(values) == expected


@given(st.lists(st.text()))
def test_no_header_is_an_error(values: list[str]) -> None:
    parse(values)


def test_the_wait_is_the_callers_up_to_the_limit() -> None:
    assert parse(["wait=500"]).wait(10, max_s=60) == 60
    assert parse(["wait=0"]).wait(10, max_s=60) == 0
    assert parse([]).wait(10, max_s=60) == 10
    assert parse(["respond-async"]).wait(10, max_s=60) == 0
    assert parse(["respond-async, wait=2"]).wait(10, max_s=60) == 2


def test_what_was_applied_is_said() -> None:
    assert parse(["wait=500"]).applied(60) == "wait=60"
    assert parse(["respond-async"]).applied(0) == "respond-async"
    assert parse([]).applied(10) is None

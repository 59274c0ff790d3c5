"""What the headers of a request ask for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import Request

from verso_core.errors import RequestInvalid
from verso_gateway.headers import Preference, Scheduling, parse_prefer, scheduling_of


def request(*headers: tuple[str, str]) -> Request:
    rows = [(name.lower().encode(), value.encode()) for name, value in headers]
    return Request({"type": "http", "headers": rows})


@pytest.mark.parametrize(
    ("value", "urgency"),
    [("u=0", 0), ("u=7, i", 7), ("i, u=1", 1), ("i;x,u=2;y", 2), ("u=8", None), ("u=", None),
     ("", None), ("u=12", None), ("xu=1", None)],
)  # fmt: skip
def test_urgency_is_that_of_rfc_9218_and_nonsense_is_ignored(
    value: str, urgency: int | None
) -> None:
    assert scheduling_of(request(("Priority", value))).urgency == urgency


def test_a_request_that_asks_for_nothing_gets_the_defaults() -> None:
    assert scheduling_of(request()) == Scheduling(urgency=None, deadline_s=None, webhook=None)


def test_a_deadline_and_a_webhook_are_read() -> None:
    hook = "wh_" + "0f" * 16
    found = scheduling_of(request(("Verso-Deadline", "2.5"), ("Verso-Webhook", hook)))
    assert (found.deadline_s, found.webhook) == (2.5, hook)


@pytest.mark.parametrize("value", ["0", "-1", "soon", "1e3", "99999999", "", "nan", "1."])
def test_a_deadline_that_is_none_is_refused(value: str) -> None:
    with pytest.raises(RequestInvalid):
        scheduling_of(request(("Verso-Deadline", value)))


@pytest.mark.parametrize("value", ["wh_1", "https://example.org", "WH_" + "0" * 32])
def test_a_webhook_is_named_by_its_id_never_by_an_address(value: str) -> None:
    with pytest.raises(RequestInvalid):
        scheduling_of(request(("Verso-Webhook", value)))


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([], Preference()),
        (["wait=5"], Preference(wait_s=5)),
        (['Wait="5"'], Preference(wait_s=5)),
        (["respond-async, wait=10"], Preference(wait_s=10, respond_async=True)),
        (["respond-async", "wait=3; foo=bar"], Preference(wait_s=3, respond_async=True)),
        (["wait=3, wait=9"], Preference(wait_s=3)),
        (["wait=-1", "wait=soon", "handling=odd"], Preference()),
        (["handling=strict, wait=2"], Preference(wait_s=2, handling="strict")),
        (['handling="lenient"', "handling=strict"], Preference(handling="lenient")),
    ],
)
def test_headers_are_read_as_rfc_7240_says(values: list[str], expected: Preference) -> None:
    assert parse_prefer(values) == expected


@given(st.lists(st.text()))
def test_no_header_is_an_error(values: list[str]) -> None:
    parse_prefer(values)


def test_the_wait_is_the_callers_up_to_the_limit() -> None:
    assert parse_prefer(["wait=500"]).wait(10, max_s=60) == 60
    assert parse_prefer(["wait=0"]).wait(10, max_s=60) == 0
    assert parse_prefer([]).wait(10, max_s=60) == 10
    assert parse_prefer(["respond-async"]).wait(10, max_s=60) == 0
    assert parse_prefer(["respond-async, wait=2"]).wait(10, max_s=60) == 2


def test_what_was_applied_is_said() -> None:
    assert parse_prefer(["wait=500"]).applied(60) == "wait=60"
    assert parse_prefer(["respond-async"]).applied(0) == "respond-async"
    assert parse_prefer(["handling=strict", "wait=3"]).applied(3) == "wait=3, handling=strict"
    assert parse_prefer([]).applied(10) is None

"""Placement: what the headers of a request ask for."""

from __future__ import annotations

import pytest
from starlette.requests import Request

from verso_core.errors import RequestInvalid
from verso_gateway.placement import Placement, placement_of


def request(*headers: tuple[str, str]) -> Request:
    rows = [(name.lower().encode(), value.encode()) for name, value in headers]
    return Request({"type": "http", "headers": rows})


@pytest.mark.parametrize(
    ("value", "urgency"),
    [("u=0", 0), ("u=7, i", 7), ("i, u=1", 1), ("i;x,u=2;y", 2), ("u=8", 3), ("u=", 3), ("", 3),
     ("u=12", 3), ("xu=1", 3)],
)  # fmt: skip
def test_urgency_is_that_of_rfc_9218_and_nonsense_is_ignored(value: str, urgency: int) -> None:
    assert placement_of(request(("Priority", value))).urgency == urgency


def test_a_request_that_asks_for_nothing_gets_the_defaults() -> None:
    assert placement_of(request()) == Placement(urgency=3, deadline_s=None, webhook=None)


def test_a_deadline_and_a_webhook_are_read() -> None:
    hook = "wh_" + "0f" * 16
    found = placement_of(request(("Verso-Deadline", "2.5"), ("Verso-Webhook", hook)))
    assert (found.deadline_s, found.webhook) == (2.5, hook)


@pytest.mark.parametrize("value", ["0", "-1", "soon", "1e3", "99999999", "", "nan", "1."])
def test_a_deadline_that_is_none_is_refused(value: str) -> None:
    with pytest.raises(RequestInvalid):
        placement_of(request(("Verso-Deadline", value)))


@pytest.mark.parametrize("value", ["wh_1", "https://example.org", "WH_" + "0" * 32])
def test_a_webhook_is_named_by_its_id_never_by_an_address(value: str) -> None:
    with pytest.raises(RequestInvalid):
        placement_of(request(("Verso-Webhook", value)))

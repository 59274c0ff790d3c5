"""Errors and waits out of HTTP answers."""

from __future__ import annotations

import json

import pytest

from verso_client.exchange import Reply, error_of, retry_after_s
from verso_core.errors import CLASSES, QueueFull, Unavailable, VersoError


def problem(status: int, **fields: object) -> Reply:
    return Reply(status, {"content-type": "application/problem+json"}, json.dumps(fields).encode())


@pytest.mark.parametrize("code", sorted(CLASSES))
def test_every_code_gives_its_own_class_back(code: str) -> None:
    error = error_of(problem(400, code=code, detail="expected a, got b"))
    assert type(error) is CLASSES[code]
    assert error.detail == "expected a, got b"


def test_a_code_of_a_newer_platform_is_an_error_all_the_same() -> None:
    assert type(error_of(problem(418, code="teapot", detail="short and stout"))) is VersoError


def test_a_full_queue_says_when_to_come_back() -> None:
    reply = Reply(429, {"retry-after": "7"}, b'{"code": "queue_full", "detail": "full"}')
    error = error_of(reply)
    assert isinstance(error, QueueFull)
    assert error.retry_after_s == 7.0


@pytest.mark.parametrize(
    ("status", "cls"), [(502, Unavailable), (503, Unavailable), (404, VersoError)]
)
def test_an_answer_of_someone_on_the_way_is_an_error_too(
    status: int, cls: type[VersoError]
) -> None:
    assert type(error_of(Reply(status, {}, b"<html>bad gateway</html>"))) is cls
    assert type(error_of(Reply(status, {}, b"[1, 2]"))) is cls


def test_milliseconds_go_before_seconds() -> None:
    assert retry_after_s(Reply(429, {"retry-after": "2", "retry-after-ms": "150"}, b"")) == 0.15


@pytest.mark.parametrize("value", ["", "-1", "nan", "inf", "Wed, 21 Oct 2015 07:28:00 GMT"])
def test_a_wait_that_cannot_be_read_is_no_wait(value: str) -> None:
    assert retry_after_s(Reply(429, {"retry-after": value}, b"")) is None


def test_a_page_where_json_should_be_is_unavailable() -> None:
    with pytest.raises(Unavailable, match="text/html"):
        Reply(200, {"content-type": "text/html"}, b"<html>").json()

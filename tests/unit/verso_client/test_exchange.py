"""Errors and waits out of HTTP answers."""

from __future__ import annotations

import json

import httpx2
import pytest

from verso_client.exchange import Reply, error_of, headers_of, path_of, retry_after_s
from verso_core.errors import CLASSES, QueueFull, RequestInvalid, Unavailable, VersoError


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
    ("status", "cls"),
    [(502, Unavailable), (503, Unavailable), (404, VersoError), (431, RequestInvalid)],
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


def test_where_an_address_leads_is_in_the_error() -> None:
    error = error_of(Reply(301, {"location": "https://verso.test/"}, b""))
    assert type(error) is VersoError
    assert "https://verso.test/" in error.detail


def test_a_key_from_a_file_may_have_its_line_end() -> None:
    assert headers_of("vk_a\n")["Authorization"] == "Bearer vk_a"
    with pytest.raises(RequestInvalid) as caught:
        headers_of("vk_secret\nb")
    assert "secret" not in caught.value.detail


@pytest.mark.parametrize("name", [".", ".."])
def test_an_id_of_dots_is_no_place_in_the_path(name: str) -> None:
    path = httpx2.URL(f"http://verso.test{path_of('documents', name)}").path
    assert path == f"/v1/documents/{name}"

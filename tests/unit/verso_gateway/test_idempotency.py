"""Facts about idempotency keys and fingerprints."""

from __future__ import annotations

import pytest
from starlette.requests import Request

from verso_core.errors import RequestInvalid
from verso_gateway.headers import Fingerprint, key_of


def _request(key: str | None = None, *, path: str = "/v1/embed", query: str = "") -> Request:
    headers = [(b"host", b"localhost")]
    if key is not None:
        headers.append((b"idempotency-key", key.encode("latin-1")))
    return Request(
        {
            "type": "http",
            "method": "POST",
            "path": path,
            "query_string": query.encode(),
            "headers": headers,
        }
    )


@pytest.mark.parametrize(
    ("given", "key"),
    [
        (None, None),
        ('"8e03978e"', "8e03978e"),
        ("8e03978e", "8e03978e"),
        (r'"a \"b\" \\"', r'a "b" \\'.replace(r"\\", "\\")),
        ('"abc";p=1', "abc"),
        ("two words", "two words"),
    ],
)
def test_quoted_and_bare_keys_are_read(given: str | None, key: str | None) -> None:
    assert key_of(_request(given)) == key


@pytest.mark.parametrize("given", ["", '""', '"open', "\xff", "x" * 256])
def test_unusable_keys_are_refused(given: str) -> None:
    with pytest.raises(RequestInvalid):
        key_of(_request(given))


def test_a_fingerprint_tells_requests_apart() -> None:
    def of(request: Request, *parts: bytes) -> str:
        fingerprint = Fingerprint(request)
        for part in parts:
            fingerprint.update(part)
        return fingerprint.hex()

    assert of(_request(), b"a", b"b") == of(_request(), b"ab")
    assert of(_request(), b"ab") != of(_request(), b"ac")
    assert of(_request(), b"ab") != of(_request(path="/v1/search"), b"ab")
    assert of(_request(), b"ab") != of(_request(query="collection=x"), b"ab")

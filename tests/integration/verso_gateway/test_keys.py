"""What keys may do and see: scopes, owners of collections, sessions, other origins, the audit."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.integration.verso_gateway.conftest import FakeWorker, Gateway, post

from verso_core import api_keys
from verso_core.api_keys import Scope, mint
from verso_gateway.access import OPEN, SCOPES
from verso_gateway.auth import COOKIE, LOOK_S

ORIGIN = "https://console.example"


class Keys:
    """A file of keys, and a client for each that was made."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.secrets: dict[str, str] = {}
        self.made: dict[str, api_keys.Key] = {}

    def make(self, label: str, *scopes: Scope, name: str | None = None, **about: Any) -> None:
        """Make a key: ``label`` is the test's word for it, ``name`` its tenant."""
        self.secrets[label], key = mint(name or label, scopes=scopes, **about)
        self.made[label] = key
        api_keys.add(self.path, key)

    def __getitem__(self, label: str) -> dict[str, str]:
        return {"X-API-Key": self.secrets[label]}


@pytest.fixture
def keys(tmp_path: Path) -> Keys:
    found = Keys(tmp_path / "keys")
    found.make("ingest", Scope.INGEST, name="ann")
    found.make("read", Scope.READ, name="ann")
    found.make("both", Scope.INGEST, Scope.READ, name="ann")
    found.make("bob", Scope.INGEST, Scope.READ)
    found.make("listed", Scope.INGEST, Scope.READ, collections=["hers", "web-*"])
    found.make("admin", Scope.ADMIN)
    return found


@pytest.fixture
def client(
    valkey_url: str, worker: FakeWorker, start_gateway: Callable[..., Gateway], keys: Keys
) -> httpx2.Client:
    """A client of a gateway with these keys, and a worker behind it."""
    served = start_gateway(valkey_url, api_keys_file=keys.path, cors_origins=ORIGIN)
    return served.client


def test_every_operation_says_which_scope_it_needs(client: httpx2.Client) -> None:
    """And asks for it: a key without it gets 403, which names the scope that is missing."""
    for path, methods in client.get("/openapi.json").json()["paths"].items():
        for operation in methods.values():
            if "security" not in operation:
                continue
            assert "403" in operation["responses"], path
            [needed] = {tuple(roles) for one in operation["security"] for roles in one.values()}
            assert set(needed) <= set(Scope)
            assert "an API key" in operation["description"]


def test_the_table_names_every_route_and_no_other() -> None:
    assert not OPEN & SCOPES.keys()


FORBIDDEN = [
    ("ingest", "POST", "/v1/search", "read"),
    ("ingest", "GET", "/v1/collections", "read"),
    ("ingest", "GET", "/v1/documents/a", "read"),
    ("ingest", "GET", "/metrics", "read"),
    ("ingest", "GET", "/v1/status", "read"),
    ("ingest", "GET", "/v1/records/a", "read"),
    ("ingest", "POST", "/v1/project", "read"),
    ("read", "POST", "/v1/ingest", "ingest"),
    ("read", "POST", "/v1/collections", "ingest"),
    ("read", "DELETE", "/v1/documents/a", "ingest"),
    ("both", "DELETE", "/v1/collections/default", "admin"),
    ("both", "POST", "/v1/collections/default/migrate", "admin"),
    ("both", "POST", "/v1/collections/default/move", "admin"),
    ("both", "POST", "/v1/scrub", "admin"),
    ("both", "POST", "/v1/registry/promote", "admin"),
    ("both", "POST", "/v1/train", "admin"),
]


def test_what_a_key_may_not_do_names_the_scope_that_is_missing(
    client: httpx2.Client, keys: Keys
) -> None:
    for key, method, path, missing in FORBIDDEN:
        answer = client.request(method, path, headers=keys[key])
        assert (answer.status_code, answer.json()["code"]) == (403, "forbidden"), path
        assert f"the scope {missing}" in answer.json()["detail"]


def test_a_job_needs_the_scope_of_its_kind(client: httpx2.Client, keys: Keys) -> None:
    found = post(client, "/v1/embed", {"texts": ["mine"]}, **keys["read"]).json()["id"]
    answer = client.get(f"/v1/jobs/{found}", headers=keys["ingest"])
    assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")
    assert client.get(f"/v1/jobs/{found}/events", headers=keys["ingest"]).status_code == 403
    assert client.post(f"/v1/jobs/{found}/replay", headers=keys["ingest"]).status_code == 403
    assert client.delete(f"/v1/jobs/{found}", headers=keys["ingest"]).status_code == 403
    assert client.get(f"/v1/jobs/{found}", headers=keys["read"]).status_code == 200


def _make(client: httpx2.Client, name: str, **headers: str) -> httpx2.Response:
    return post(client, "/v1/collections", {"name": name}, **headers)


def test_a_collection_belongs_to_the_tenant_that_made_it(client: httpx2.Client, keys: Keys) -> None:
    assert _make(client, "hers", **keys["both"]).json()["owner"] == "ann"
    seen = {}
    for label in ("both", "read", "bob", "listed", "admin"):
        answer = client.get("/v1/collections", headers=keys[label]).json()
        seen[label] = {one["name"] for one in answer["collections"]}
    assert seen == {
        "both": {"default", "hers"},
        "read": {"default", "hers"},
        "bob": {"default"},
        "listed": {"hers"},
        "admin": {"default", "hers"},
    }
    assert _make(client, "hers", **keys["both"]).status_code == 201
    assert _make(client, "hers", **keys["admin"]).json()["owner"] == "ann"
    taken = _make(client, "hers", **keys["bob"])
    assert (taken.status_code, taken.json()["code"]) == (409, "collection_exists")
    assert "float16" not in taken.text
    assert _make(client, "web-1", **keys["listed"]).json()["owner"] == "listed"
    for name in ("hers2", "default"):
        assert _make(client, name, **keys["listed"]).json()["code"] == "forbidden"


ROUTES: list[tuple[str, str, dict[str, Any] | None]] = [
    ("POST", "/v1/search", {"query": "a", "collection": "NAME"}),
    ("POST", "/v1/answer", {"question": "a?", "collection": "NAME"}),
    ("POST", "/v1/classify", {"head": "kinds", "ids": ["a"], "collection": "NAME"}),
    ("POST", "/v1/cluster", {"collection": "NAME"}),
    ("POST", "/v1/project", {"collection": "NAME"}),
    ("GET", "/v1/records/a?collection=NAME", None),
    ("POST", "/v1/logs/query", {"collection": "NAME"}),
    *(
        ("GET", f"/v1/logs/{one}?collection=NAME", None)
        for one in ("volume", "labels", "statements")
    ),
    ("POST", "/v1/reconstruct", {"ids": ["a"], "collection": "NAME"}),
    ("POST", "/v1/ingest", {"documents": [{"text": "a"}], "collection": "NAME"}),
    ("GET", "/v1/documents/a?collection=NAME", None),
    ("DELETE", "/v1/documents/a?collection=NAME", None),
    ("GET", "/v1/collections/NAME", None),
    ("GET", "/v1/collections/NAME/documents", None),
    ("POST", "/v1/collections/NAME/documents/query", {}),
    ("POST", "/v1/collections/NAME/documents/count", {}),
    ("POST", "/v1/collections/NAME/facets", {"fields": ["host"]}),
    ("PATCH", "/v1/documents/a?collection=NAME", {"metadata": {"a": 1}}),
    ("GET", "/v1/collections/NAME/migrate", None),
    ("GET", "/v1/collections/NAME/move", None),
    ("GET", "/v1/logs/tail?collection=NAME", None),
]


def test_a_collection_of_another_is_as_if_it_did_not_exist(
    client: httpx2.Client, keys: Keys
) -> None:
    _make(client, "hers", **keys["both"])

    def ask(route: tuple[str, str, Any], name: str, label: str) -> httpx2.Response:
        method, path, body = route
        filled = body
        if body is not None and "NAME" not in path:
            filled = body | {"collection": name}
        return client.request(method, path.replace("NAME", name), json=filled, headers=keys[label])

    for route in ROUTES:
        hidden, unknown = ask(route, "hers", "bob"), ask(route, "nowhere", "bob")
        for answer in (hidden, unknown):
            assert (answer.status_code, answer.json()["code"]) == (404, "collection_unknown")
        assert hidden.json()["detail"] == unknown.json()["detail"].replace("nowhere", "hers")
        assert ask(route, "default", "listed").json()["code"] == "collection_unknown"
        assert ask(route, "hers", "both").json().get("code") != "collection_unknown"


def test_every_route_that_names_a_collection_is_among_those(client: httpx2.Client) -> None:
    """Of the rest, migrations, trainings and deletes need ``admin``, which sees everything."""
    schema = client.get("/openapi.json").json()
    models = {
        name
        for name, model in schema["components"]["schemas"].items()
        if "collection" in model.get("properties", {}) and name.endswith("Request")
    }
    named = set()
    for path, methods in schema["paths"].items():
        for method, operation in methods.items():
            content = operation.get("requestBody", {}).get("content", {})
            refs = {one["schema"].get("$ref", "").rpartition("/")[2] for one in content.values()}
            parameters = {one["name"] for one in operation.get("parameters", ())}
            admin = operation.get("security", [{}])[0].get("bearer") == ["admin"]
            names = refs & models or "collection" in parameters or "/collections/{name}" in path
            if names and not admin:
                named.add((method.upper(), path))
    asked = {
        (
            m,
            p.partition("?")[0]
            .replace("NAME", "{name}")
            .replace("documents/a", "documents/{document}")
            .replace("records/a", "records/{record}"),
        )
        for m, p, _ in ROUTES
    }
    assert named == asked


def test_a_session_does_what_its_key_may_until_it_is_ended(
    client: httpx2.Client, keys: Keys
) -> None:
    assert client.post("/v1/session").status_code == 401
    made = client.post("/v1/session", headers=keys["read"] | {"Origin": "https://testserver"})
    assert made.status_code == 201
    assert (made.json()["name"], made.json()["scopes"]) == ("ann", ["read"])
    cookie = made.headers["set-cookie"].lower()
    for part in ("httponly", "samesite=strict", "secure", "path=/", "max-age=43200"):
        assert part in cookie
    token = made.cookies[COOKIE]
    same = {"Cookie": f"{COOKIE}={token}", "Sec-Fetch-Site": "same-origin"}
    client.cookies.clear()
    assert client.get("/v1/session").status_code == 401
    who = {"name": "ann", "scopes": ["read"], "keys": True}
    assert client.get("/v1/session", headers=same).json() == who
    assert client.get("/v1/collections", headers=same).status_code == 200
    assert client.post("/v1/embed", json={"texts": ["a"]}, headers=same).status_code == 200
    forged = same | {"Sec-Fetch-Site": "cross-site"}
    answer = client.post("/v1/embed", json={"texts": ["a"]}, headers=forged)
    assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")
    assert client.post("/v1/ingest", json={"documents": []}, headers=same).status_code == 403
    assert client.post("/v1/session", headers=same).status_code == 401
    assert client.delete("/v1/session", headers=same).status_code == 204
    assert client.get("/v1/collections", headers=same).status_code == 401


def test_a_session_ends_with_its_key(client: httpx2.Client, keys: Keys) -> None:
    plain = client.post("/v1/session", headers=keys["bob"])
    assert "secure" not in plain.headers["set-cookie"].lower()
    cookie = {"Cookie": f"{COOKIE}={plain.cookies[COOKIE]}"}
    client.cookies.clear()
    assert client.get("/v1/collections", headers=cookie).status_code == 200
    api_keys.revoke(keys.path, "bob")
    time.sleep(LOOK_S + 0.1)
    assert client.get("/v1/collections", headers=cookie).status_code == 401
    assert client.get("/v1/collections", headers=keys["bob"]).status_code == 401


def test_an_open_stream_of_events_ends_with_its_key(
    client: httpx2.Client, keys: Keys, worker: FakeWorker
) -> None:
    """And with its session: a job that runs for hours must not be told of all the while."""
    worker.pause()
    asked = {"Prefer": "respond-async"} | keys["bob"]
    job = post(client, "/v1/embed", {"texts": ["a"]}, **asked).json()["id"]
    session = client.post("/v1/session", headers=keys["bob"])
    cookie = {"Cookie": f"{COOKIE}={session.cookies[COOKIE]}"}
    client.cookies.clear()
    with (
        client.stream("GET", f"/v1/jobs/{job}/events", headers=keys["bob"]) as by_key,
        client.stream("GET", f"/v1/jobs/{job}/events", headers=cookie) as by_session,
    ):
        assert (by_key.status_code, by_session.status_code) == (200, 200)
        api_keys.revoke(keys.path, "bob")
        until = time.monotonic() + 120
        for answer in (by_key, by_session):
            for line in answer.iter_lines():
                assert line != "event: end"
                assert time.monotonic() < until  # a stream that stays open has comments


def test_a_session_lasts_no_longer_than_its_key(client: httpx2.Client, keys: Keys) -> None:
    end = (datetime.now(UTC) + timedelta(hours=1)).replace(microsecond=0)
    keys.make("brief", Scope.READ, expires=end)
    time.sleep(LOOK_S + 0.1)
    made = client.post("/v1/session", headers=keys["brief"]).json()
    assert datetime.fromisoformat(made["expires"]) == end


def test_without_keys_there_is_no_session(
    valkey_url: str, worker: FakeWorker, start_gateway: Callable[..., Gateway]
) -> None:
    client = start_gateway(valkey_url).client
    who = {"name": "default", "scopes": ["admin", "ingest", "read"], "keys": False}
    assert client.get("/v1/session").json() == who
    answer = client.post("/v1/session")
    assert (answer.status_code, answer.json()["code"]) == (422, "request_invalid")


def test_pages_of_the_origins_that_are_set_may_call_and_read_the_headers(
    client: httpx2.Client, keys: Keys
) -> None:
    asked = {
        "Origin": ORIGIN,
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization,verso-deadline",
    }
    preflight = client.options("/v1/embed", headers=asked)
    assert preflight.status_code == 200
    assert preflight.headers["access-control-allow-origin"] == ORIGIN
    assert "verso-deadline" in preflight.headers["access-control-allow-headers"]
    answer = post(client, "/v1/embed", {"texts": ["a"]}, Origin=ORIGIN, **keys["read"])
    assert answer.headers["access-control-allow-origin"] == ORIGIN
    assert "Verso-Job-Id" in answer.headers["access-control-expose-headers"]
    assert "access-control-allow-credentials" not in answer.headers
    refused = client.get("/v1/collections", headers={"Origin": ORIGIN})
    assert refused.status_code == 401
    assert refused.headers["access-control-allow-origin"] == ORIGIN
    other = client.get("/v1/collections", headers={"Origin": "https://evil.example"} | keys["read"])
    assert "access-control-allow-origin" not in other.headers


def test_acts_of_administrators_are_noted_with_who_did_what_to_what(
    client: httpx2.Client, keys: Keys, caplog: pytest.LogCaptureFixture
) -> None:
    _make(client, "hers", **keys["both"])
    with caplog.at_level(logging.INFO, logger="verso.audit"):
        client.delete("/v1/collections/hers", headers=keys["both"])
        client.delete("/v1/collections/hers", headers=keys["admin"] | {"X-Request-Id": "r-1"})
        client.get("/v1/scrub", headers=keys["admin"])
        client.post("/v1/scrub")
        client.get("/v1/collections", headers=keys["read"])
    noted = [r.__dict__ for r in caplog.records if r.name == "verso.audit"]
    told = [(r["act"], r["tenant"], r["target"], r["status"], r["code"]) for r in noted]
    assert told == [
        ("collection_delete", "ann", "hers", 403, "forbidden"),
        ("collection_delete", "admin", "hers", 200, None),
        ("scrub_request", None, None, 401, "unauthorized"),
    ]
    assert noted[1]["request_id"] == "r-1"
    assert noted[1]["key"] == keys.made["admin"].id


def test_metrics_need_a_key_where_there_are_keys(client: httpx2.Client, keys: Keys) -> None:
    assert client.get("/metrics").status_code == 401
    assert "verso_requests_total" in client.get("/metrics", headers=keys["read"]).text

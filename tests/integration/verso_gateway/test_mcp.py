"""The real client of the Model Context Protocol against a gateway: who may ask, and errors."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolResult, TextContent
from tests.integration.verso_gateway.conftest import FakeWorker, Gateway

from verso_client.mcp.server import ERROR_KEY
from verso_core import api_keys
from verso_core.api_keys import Scope, mint
from verso_core.jobs.logs.lines import MAX_CURSOR

PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
ACCEPT = {"Accept": "application/json, text/event-stream"}


@asynccontextmanager
async def agent(url: str, *, mode: str = "auto", **headers: str) -> AsyncIterator[Client]:
    """Connect as an agent would."""
    async with (
        httpx2.AsyncClient(headers=headers, timeout=60) as http,
        Client(streamable_http_client(f"{url}/mcp", http_client=http), mode=mode) as client,
    ):
        yield client


def said(result: CallToolResult) -> str:
    """Return the text of an answer."""
    [content] = result.content
    assert isinstance(content, TextContent)
    return content.text


def code_of(result: CallToolResult) -> str:
    """Return the code of an error, which the text begins with."""
    assert result.is_error
    error = (result.meta or {})[ERROR_KEY]
    assert said(result).startswith(f"{error['code']}: {error['detail']}")
    return str(error["code"])


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_the_tools_are_listed_as_read_only_with_schemas(gateway: Gateway, mode: str) -> None:
    """By both ways of the protocol: with a handshake, and with all of it in each request."""
    async with agent(gateway.url, mode=mode) as client:
        listed = (await client.list_tools()).tools
        assert client.protocol_version == ("2025-11-25" if mode == "legacy" else "2026-07-28")
    assert [tool.name for tool in listed] == [
        *("search", "fetch", "answer", "classify", "logs_query", "log_statements")
    ]
    for tool in listed:
        assert tool.annotations is not None
        assert tool.annotations.read_only_hint
        assert tool.output_schema is not None
        for schema in (tool.input_schema, tool.output_schema):
            assert schema["type"] == "object"
            assert not schema.keys() & {"oneOf", "anyOf", "allOf", "if"}


async def test_an_answer_is_structured_and_said_as_text(
    gateway: Gateway, worker: FakeWorker
) -> None:
    texts = ["héllo \U0001f469\u200d\u2028\u0000 é", base := "//79"]
    documents = [{"id": "a", "text": texts[0]}, {"id": "b/#x", "text_base64": base}]
    body = {"documents": documents}
    gateway.client.post("/v1/ingest", json=body, headers={"Prefer": "wait=30"}).raise_for_status()
    async with agent(gateway.url) as client:
        found = await client.call_tool("search", {"query": "anything", "limit": 1})
        whole = await client.call_tool("fetch", {"id": "a"})
        raw = await client.call_tool("fetch", {"id": "b/#x"})
    assert found.structured_content is not None
    assert json.loads(said(found)) == found.structured_content
    assert [hit["document"] for hit in found.structured_content["hits"]] == ["a"]
    assert (whole.structured_content or {})["text"] == texts[0]
    assert (raw.structured_content or {})["text_base64"] == base


async def test_an_unknown_tool_is_an_error_of_the_protocol(gateway: Gateway) -> None:
    async with agent(gateway.url) as client:
        with pytest.raises(MCPError, match="Unknown tool: delete") as caught:
            await client.call_tool("delete", {"id": "a"})
    assert caught.value.code == -32602


@pytest.mark.parametrize(
    ("tool", "arguments", "said_of"),
    [
        ("search", {}, "/query"),
        ("search", {"query": "a", "limit": 10**9}, "/limit"),
        ("search", {"query": "a", "limits": 1}, "/limits"),
        ("search", {"query": "a", "filter": {"field": "x"}}, "/filter"),
        ("search", {"query": "a", "filter": {"or": [{"field": "x", "eq": 1}] * 10_000}}, "/filter"),
        ("classify", {"head": "kinds"}, "texts"),
        ("log_statements", {"from": "yesterday"}, "/from"),
        ("logs_query", {"cursor": "x" * (MAX_CURSOR + 1)}, "/cursor"),
    ],
)
async def test_wrong_arguments_are_an_answer_that_says_what_was_expected(
    gateway: Gateway, tool: str, arguments: dict[str, Any], said_of: str
) -> None:
    async with agent(gateway.url) as client:
        result = await client.call_tool(tool, arguments)
    assert code_of(result) == "request_invalid"
    assert said_of in said(result)


async def test_what_is_not_there_is_named_with_what_is(gateway: Gateway) -> None:
    async with agent(gateway.url) as client:
        collection = await client.call_tool("search", {"query": "a", "collection": "nope"})
        head = await client.call_tool("classify", {"head": "nothing", "texts": ["a"]})
        document = await client.call_tool("fetch", {"id": "nope"})
        kind = await client.call_tool("logs_query", {"collection": "default"})
    assert code_of(collection) == "collection_unknown"
    assert "Collections: default." in said(collection)
    assert (head.structured_content or {})["results"][0]["error"]["code"] == "head_unknown"
    assert code_of(document) == "document_unknown"
    assert code_of(kind) == "kind_unsupported"


async def test_a_full_queue_is_an_answer_that_says_to_try_again(
    valkey_url: str, worker: FakeWorker, start_gateway: Callable[..., Gateway]
) -> None:
    worker.pause()
    gateway = start_gateway(valkey_url, queue_limit_slices=3)
    for _ in range(3):
        body, later = {"texts": ["a"]}, {"Prefer": "respond-async"}
        assert gateway.client.post("/v1/embed", json=body, headers=later).status_code == 202
    async with agent(gateway.url) as client:
        result = await client.call_tool("search", {"query": "a"})
    assert code_of(result) == "queue_full"
    assert "Try again in" in said(result)
    worker.gate.set()


async def test_over_standard_input_and_output_errors_are_the_same(
    keyed: tuple[Gateway, dict[str, str]], worker: FakeWorker
) -> None:
    gateway, secrets = keyed
    command = ["-m", "verso_client", "--url", gateway.url, "--patience", "0", "mcp"]
    found = {}
    for name, key in {"known": secrets["read"], "unknown": "vk_no"}.items():
        env = {**os.environ, "VERSO_API_KEY": key}
        started = StdioServerParameters(command=sys.executable, args=command, env=env)
        async with Client(started) as client:
            found[name] = await client.call_tool("search", {"query": "a"})
            with pytest.raises(MCPError, match="Unknown tool: delete"):
                await client.call_tool("delete", {"id": "a"})
            if name == "known":
                worker.pause()
                body, headers = {"texts": ["a"]}, {"X-API-Key": key, "Prefer": "respond-async"}
                while gateway.client.post("/v1/embed", json=body, headers=headers).is_success:
                    pass
                found["full"] = await client.call_tool("search", {"query": "a"})
                worker.gate.set()
    assert not found["known"].is_error
    assert code_of(found["unknown"]) == "unauthorized"
    assert code_of(found["full"]) == "queue_full"


async def test_a_platform_that_is_too_slow_is_an_answer_that_says_to_try_again(
    valkey_url: str, worker: FakeWorker, start_gateway: Callable[..., Gateway]
) -> None:
    worker.pause()
    gateway = start_gateway(valkey_url, wait_default_s=0.2, wait_max_s=0.5)
    async with agent(gateway.url) as client:
        result = await client.call_tool("search", {"query": "a"})
    assert code_of(result) == "not_ready"
    assert "Try again later" in said(result)
    worker.gate.set()


@pytest.fixture
def keyed(
    valkey_url: str, worker: FakeWorker, start_gateway: Callable[..., Gateway], tmp_path: Path
) -> tuple[Gateway, dict[str, str]]:
    """A gateway with keys, which two other names lead to, and its keys by scope."""
    secrets = {}
    for scope in (Scope.READ, Scope.INGEST):
        secrets[str(scope)], key = mint(str(scope), scopes=(scope,))
        api_keys.add(tmp_path / "keys", key)
    served = start_gateway(
        valkey_url,
        api_keys_file=tmp_path / "keys",
        mcp_hosts="Verso.example, ::2",
        queue_limit_slices=20,
        cors_origins="https://console.example",
    )
    return served, secrets


async def test_a_key_with_the_scope_read_may_use_all_tools(
    keyed: tuple[Gateway, dict[str, str]],
) -> None:
    gateway, secrets = keyed
    async with agent(gateway.url, Authorization=f"Bearer {secrets['read']}") as client:
        result = await client.call_tool("search", {"query": "a"})
    assert not result.is_error


async def test_a_wrong_key_is_401_and_a_weak_one_403_in_the_protocols_way(
    keyed: tuple[Gateway, dict[str, str]],
) -> None:
    gateway, secrets = keyed
    for header, status, challenge in (
        ({}, 401, 'Bearer realm="verso"'),
        ({"Authorization": "Bearer vk_no"}, 401, 'Bearer realm="verso", error="invalid_token"'),
        ({"X-API-Key": "vk_no"}, 401, 'Bearer realm="verso", error="invalid_token"'),
        ({"Authorization": f"Bearer {secrets['ingest']}"}, 403, None),
    ):
        answer = gateway.client.post("/mcp", json=PING, headers=ACCEPT | header)
        assert (answer.status_code, answer.headers.get("www-authenticate")) == (status, challenge)
        body = answer.json()
        assert (body["jsonrpc"], body["id"], body["error"]["code"]) == ("2.0", None, -32600)
    refused = pytest.RaisesExc(MCPError, match="not known here")
    with pytest.RaisesGroup(refused, flatten_subgroups=True):
        async with agent(gateway.url, Authorization="Bearer vk_no"):
            pass


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "rebound.example"}, 403),
        ({"Host": "verso.example.evil"}, 403),
        ({"Host": "verso.example:8080"}, 200),
        ({"Host": "VERSO.example"}, 200),
        ({"Host": "[::2]:8080"}, 200),
        ({"Host": "localhost:1"}, 200),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://localhost:6274"}, 200),
        ({"Origin": "https://verso.example"}, 200),
        ({"Origin": "https://console.example"}, 200),
    ],
)
def test_foreign_names_in_host_and_origin_are_403(
    keyed: tuple[Gateway, dict[str, str]], headers: dict[str, str], status: int
) -> None:
    gateway, secrets = keyed
    key = {"Authorization": f"Bearer {secrets['read']}"}
    answer = gateway.client.post("/mcp", json=PING, headers=ACCEPT | key | headers)
    assert answer.status_code == status, answer.text
    if status == 403:
        assert answer.json()["error"]["data"]["code"] == "forbidden"


@pytest.mark.parametrize("headers", [{"Host": "rebound.example"}, {"Origin": "https://a.example"}])
def test_a_rebound_name_is_403_without_keys_too(gateway: Gateway, headers: dict[str, str]) -> None:
    answer = gateway.client.post("/mcp", json=PING, headers=ACCEPT | headers)
    assert answer.status_code == 403


def test_there_is_no_stream_to_listen_to_and_no_session_to_end(client: httpx2.Client) -> None:
    for method in ("GET", "DELETE"):
        answer = client.request(method, "/mcp", headers=ACCEPT)
        assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
    assert "mcp-session-id" not in client.post("/mcp", json=PING, headers=ACCEPT).headers


def test_a_tool_is_counted_as_itself_and_as_the_request_that_it_makes(
    client: httpx2.Client,
) -> None:
    params = {"name": "search", "arguments": {"query": "a"}}
    call = PING | {"method": "tools/call", "params": params}
    answer = client.post("/mcp", json=call, headers=ACCEPT | {"X-Request-Id": "one"})
    assert answer.headers["x-request-id"] == "one"
    page = client.get("/metrics").text
    for task in ("mcp", "search"):
        assert f'verso_requests_total{{status="2xx",task="{task}"}} 1.0' in page

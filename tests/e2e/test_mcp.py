"""Agents at a real platform: every tool, over HTTP and over standard input and output."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters
from mcp_types import TextContent
from tests.e2e.conftest import Platform

from verso_client import Document
from verso_client.mcp.tools import LINES_BYTES, TOOLS
from verso_core.jobs import CollectionKind

NODE = Path(__file__).parents[1] / "support" / "node"
CONFORMANCE = NODE / "node_modules" / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
TEXTS = {
    "boot/1": b"kernel: eth0: link is up",
    "odd#x": b"\xff\xfe not UTF-8\x00",
    "every plane": "\u00e9\u2028\U0001f469\u200d\U0001f52c \U000e0041 <script>&\r\n\t".encode(),
}
LINES = b"".join(
    b"2026-01-01T00:00:%02dZ disk: cannot write block %d\n" % (n, n * 7) for n in range(40)
)
MANY = b"".join(b"job %d of the build is %s\n" % (n, b"late " * 20) for n in range(300))

Connect = Callable[[], AbstractAsyncContextManager[Client]]


def stdio(*target: str) -> StdioServerParameters:
    """Return the command that an agent starts."""
    command = ["-m", "verso_client", *target, "mcp"]
    return StdioServerParameters(command=sys.executable, args=command, env=dict(os.environ))


@pytest.fixture(scope="module")
def stored(headed: Platform) -> Iterator[Platform]:
    """The shared platform with heads, documents and log lines."""
    with headed.client() as verso:
        verso.create_collection("agents")
        for name in ("agents-logs", "agents-many"):
            verso.create_collection(name, kind=CollectionKind.LOGS)
        documents = [Document(text, id=name, metadata={"n": 1}) for name, text in TEXTS.items()]
        assert verso.ingest(documents, collection="agents").failed == ()
        verso.ingest_lines([LINES], collection="agents-logs", labels={"host": "a"})
        verso.ingest_lines([MANY], collection="agents-many")
        yield headed
        verso.delete_collection("agents")
        verso.delete_collection("agents-logs")
        verso.delete_collection("agents-many")


@pytest.fixture(params=["http", "stdio"])
def connect(stored: Platform, request: pytest.FixtureRequest) -> Connect:
    """Connect to the tools, by one transport or the other."""
    over_http = request.param == "http"
    server: Any = f"{stored.url}/mcp" if over_http else stdio("--url", stored.url)

    @asynccontextmanager
    async def connected() -> AsyncIterator[Client]:
        async with Client(server) as client:
            yield client

    return connected


async def call(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    """Call a tool; the client checks what it answers against the tool's schema."""
    result = await client.call_tool(tool, arguments)
    [content] = result.content
    assert isinstance(content, TextContent)
    assert not result.is_error, content.text
    assert result.structured_content is not None
    assert json.loads(content.text) == result.structured_content
    found: dict[str, Any] = result.structured_content
    return found


async def test_every_tool_answers(connect: Connect) -> None:
    async with connect() as client:
        assert {tool.name for tool in (await client.list_tools()).tools} == TOOLS.keys()
        where = {"filter": {"field": "n", "eq": 1}, "collection": "agents"}
        found = await call(client, "search", query="network link", limit=2, **where)
        assert found["hits"][0]["document"] == "boot/1"
        reranked = await call(client, "search", query="network link", rerank="pairs", **where)
        assert "rerank_score" in reranked["hits"][0]
        answered = await call(client, "answer", question="what is up", **where)
        assert answered["answers"][0]["document"] in TEXTS
        by_text = await call(client, "classify", head="kinds", texts=["retry in 4 s"])
        by_id = await call(client, "classify", head="kinds", ids=["boot/1"], collection="agents")
        for labelled in (by_text, by_id):
            assert labelled["results"][0]["heads"][0]["scores"]
        logs = {"collection": "agents-logs"}
        page = await call(client, "logs_query", limit=30, order="oldest", **logs)
        rest = await call(client, "logs_query", order="oldest", cursor=page["next_cursor"], **logs)
        lines = [line["text"].encode() for line in (*page["lines"], *rest["lines"])]
        assert lines == LINES.splitlines()
        assert "next_cursor" not in rest
        newest = await call(
            client, "logs_query", contains="block 273", before=1, **{"from": 0, "to": 4e9}, **logs
        )
        assert [line["text"][-3:] for line in newest["lines"]] == ["273"]
        assert [line["text"][-3:] for line in newest["lines"][0]["before"]] == ["266"]
        listed = await call(client, "log_statements", **logs)
        assert sum(one["count"] for one in listed["statements"]) == len(lines)
        one = await call(
            client, "logs_query", statement=listed["statements"][0]["id"], limit=1, **logs
        )
        assert len(one["lines"]) == 1


async def test_lines_that_are_much_together_come_in_several_answers(connect: Connect) -> None:
    """A gateway has an answer in memory several times, and reads nothing else meanwhile."""
    asked = {"collection": "agents-many", "order": "oldest", "limit": 1000}
    async with connect() as client:
        whole = await call(client, "logs_query", **asked)
        ids: list[str] = []
        cursor: dict[str, str] = {}
        while True:
            found = await call(client, "logs_query", before=100, after=100, **cursor, **asked)
            assert len(json.dumps(found)) < 3 * LINES_BYTES
            ids += [line["id"] for line in found["lines"]]
            if "next_cursor" not in found:
                break
            cursor = {"cursor": found["next_cursor"]}
    assert ids == [line["id"] for line in whole["lines"]]
    assert len(ids) == 300 > len(found["lines"])


async def test_fetch_rebuilds_every_byte(connect: Connect) -> None:
    async with connect() as client:
        for name, text in TEXTS.items():
            found = await call(client, "fetch", id=name, collection="agents")
            assert found["exact"]
            read = (
                base64.b64decode(found["text_base64"])
                if "text_base64" in found
                else found["text"].encode()
            )
            assert read == text


async def test_a_platform_that_is_not_there_is_the_error_of_a_tool() -> None:
    """Agents start their servers when they start themselves, with or without a platform."""
    nowhere = ["--url", "http://127.0.0.1:9", "--patience", "0"]
    async with Client(stdio(*nowhere)) as client:
        result = await client.call_tool("fetch", {"id": "a"})
    [content] = result.content
    assert result.is_error
    assert isinstance(content, TextContent)
    assert content.text.startswith("unavailable: no answer from http://127.0.0.1:9")


def test_the_conformance_runner_finds_no_new_failure(stored: Platform, tmp_path: Path) -> None:
    """The protocol's own runner; the file says why scenarios for a test server cannot pass."""
    node = shutil.which("node")
    if node is None or not CONFORMANCE.exists():
        if os.environ.get("CI"):
            pytest.fail("expected `npm install` in tests/support/node")
        pytest.skip("needs node, and `npm install` in tests/support/node")
    done = subprocess.run(
        [
            *(node, str(CONFORMANCE), "server", "--url", f"{stored.url}/mcp"),
            *("--expected-failures", str(NODE / "mcp-expected-failures.yml")),
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]

"""A server of the Model Context Protocol that has the tools, and its transport over stdio.

An error of the platform is an answer of the tool (``isError``), so that the agent reads what went
wrong and whether trying again helps; its code is in ``_meta`` as well. Wrong arguments are such an
error, too. Only what is no tool is an error of the protocol (2025-11-25, "Tools", section "Error
Handling").
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from importlib.metadata import version
from typing import Any

import mcp_types as types
from mcp.server.lowlevel.server import Server
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError
from pydantic import BaseModel, ValidationError

from verso_client.async_client import AsyncClient
from verso_client.mcp.tools import TOOLS, Tool
from verso_core import DISTRIBUTION
from verso_core.errors import (
    CollectionUnknown,
    HeadUnknown,
    NotReady,
    RequestInvalid,
    VersoError,
    error_body,
)
from verso_core.jobs.filters.bounds import oversize

Platform = Callable[[Any], AbstractAsyncContextManager[AsyncClient]]
"""Makes the client that a tool calls, of the HTTP request that asks for it; None over stdio."""
TIMEOUT_S = 120.0
"""Longest that a tool over stdio waits for the platform."""
ERROR_KEY = "verso/error"
"""Key of ``_meta`` under which a failed call has its error: code, detail, retryable."""
_INSTRUCTIONS = (
    "Verso keeps texts and log lines, and returns them byte for byte. Search or answer first, then "
    "fetch a document for its whole text. Quote texts exactly and name their ids. The collection "
    "is `default` for documents and `logs` for lines of agents, unless the user names another."
)


def create_server(platform: Platform, *, timeout_s: float = TIMEOUT_S) -> Server[Any]:
    """Return a server of the tools.

    Args:
        platform: makes the client that a tool calls.
        timeout_s: a call that takes longer fails, with an error that says to try again.
    """
    listed = types.ListToolsResult(tools=[_described(tool) for tool in TOOLS.values()])
    schemas = {tool.name: tool.input_schema for tool in listed.tools}

    async def list_tools(_context: Any, _params: Any) -> types.ListToolsResult:
        return listed

    async def call_tool(context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        tool = TOOLS.get(params.name)
        if tool is None:
            raise MCPError(code=types.INVALID_PARAMS, message=f"Unknown tool: {params.name}")
        async with platform(context.request) as client:
            try:
                asked = _checked(tool, params.arguments or {})
                async with asyncio.timeout(timeout_s):
                    return _answered(await tool.call(client, asked))
            except TimeoutError:
                return _failed(NotReady(f"no answer within {timeout_s:g} s"))
            except VersoError as error:
                return _failed(error, known=await _known(client, error))

    # The SDK logs requests at INFO: the platform logs its own.
    logging.getLogger("mcp").setLevel(logging.WARNING)
    return Server(
        "verso",
        title="Verso",
        version=version(DISTRIBUTION),
        instructions=_INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        get_tool_input_schema=schemas.get,
    )


async def serve_stdio(client: AsyncClient) -> None:
    """Serve the tools over standard input and output, until the input ends."""
    async with client, stdio_server() as (read, write):
        server = create_server(lambda _: nullcontext(client))
        await server.run(read, write, server.create_initialization_options())


def _described(tool: Tool) -> types.Tool:
    return types.Tool(
        name=tool.name,
        title=tool.title,
        description=tool.description,
        input_schema=_schema(tool.arguments, mode="validation"),
        output_schema=_schema(tool.answer, mode="serialization"),
        annotations=types.ToolAnnotations(
            title=tool.title,
            read_only_hint=True,
            destructive_hint=False,
            idempotent_hint=True,
            open_world_hint=False,
        ),
    )


def _schema(model: type[BaseModel], *, mode: Any) -> dict[str, Any]:
    return model.model_json_schema(by_alias=True, mode=mode)


def _checked(tool: Tool, arguments: dict[str, Any]) -> BaseModel:
    """Return the arguments of a call as the tool's model.

    Raises:
        RequestInvalid: they do not fit it.
    """
    beyond = oversize(arguments.get("filter"))
    if beyond is not None:
        raise RequestInvalid(f"/filter{beyond[0]}: {beyond[1]}")
    try:
        return tool.arguments.model_validate(arguments)
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False, include_context=False)[0]
        where = "".join(f"/{part}" for part in fault["loc"])
        raise RequestInvalid(f"{where or 'arguments'}: {fault['msg']}") from error


async def _known(client: AsyncClient, error: VersoError) -> str:
    """Return which collections or heads there are, where a call named one that is not."""
    try:
        match error:
            case CollectionUnknown():
                names = [collection.name for collection in await client.collections()]
                return f" Collections: {', '.join(names)}."
            case HeadUnknown():
                return f" Heads: {', '.join(head.name for head in await client.heads())}."
    except VersoError:  # the first one counts
        return ""
    return ""


def _answered(answer: Any) -> types.CallToolResult:
    found = answer.public()
    # Also as text, for hosts that know no structured content ("Structured Content").
    text = json.dumps(found, ensure_ascii=False)
    return types.CallToolResult(content=[types.TextContent(text=text)], structured_content=found)


def _failed(error: VersoError, *, known: str = "") -> types.CallToolResult:
    again = " Try again later." if error.retryable else ""
    wait_s = getattr(error, "retry_after_s", None)
    if wait_s is not None:
        again = f" Try again in {wait_s:g} s."
    text = f"{error.code}: {error.detail}.{known}{again}"
    return types.CallToolResult(
        content=[types.TextContent(text=text)],
        is_error=True,
        _meta={ERROR_KEY: error_body(error)},
    )

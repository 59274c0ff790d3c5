"""``/es/_bulk``: Elasticsearch's bulk API."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from typing import Any

import orjson
from fastapi import Request
from starlette.responses import Response

from verso_core.errors import VersoError, error_body
from verso_gateway import problems
from verso_gateway.access import guarded
from verso_gateway.bodies import reading
from verso_gateway.bodies.ids import new_ids
from verso_gateway.feed import bulk
from verso_gateway.feed.bulk import Action
from verso_gateway.feed.records import Decoded, LogRecord
from verso_gateway.protocols import BULK_PATH, Protocol
from verso_gateway.protocols.bulk import HEADERS, JSON, error_of
from verso_gateway.routes.feed import accepting

router = guarded("feed")
HOLD_S = 5.0
"""Longest that a request is held for room."""
_REPEATED = {
    "type": "version_conflict_engine_exception",
    "reason": "version conflict, document already exists",
}
_METHODS = ["POST", "PUT"]


@router.api_route(f"{BULK_PATH}/_bulk", methods=_METHODS, name="bulk", include_in_schema=False)
async def of_any_index(request: Request) -> Response:
    """Take documents in; each action names its index."""
    return await _bulk(request, "")


@router.api_route(
    f"{BULK_PATH}/{{index}}/_bulk", methods=_METHODS, name="bulk_index", include_in_schema=False
)
async def of_index(request: Request, index: str) -> Response:
    """Take documents in; an action may name another index."""
    return await _bulk(request, index)


async def _bulk(request: Request, index: str) -> Response:
    started = time.perf_counter()
    fields = accepting.feed_of(request).fields
    actions: list[Action] = []

    def decode(body: bytes) -> list[Decoded]:
        actions.extend(bulk.decode(body, fields, index=index))
        return [_identified(action) for action in actions]

    with accepting.counted(request, Protocol.BULK):
        decoded = await accepting.read(request, Protocol.BULK, decode)
        taken = await accepting.accept(request, decoded, Protocol.BULK, hold_s=HOLD_S)
    content = await reading.off_loop(
        sum(len(action.index) + 100 for action in actions), partial(_items, actions, taken)
    )
    took = round((time.perf_counter() - started) * 1000)
    head = b'{"took":%d,"errors":%b,"items":' % (took, b"true" if content[0] else b"false")
    return Response(head + content[1] + b"}", media_type=JSON, headers=HEADERS)


def _identified(action: Action) -> Decoded:
    """Return an action's record with its identity, which is one of its index."""
    if action.identity is None or not isinstance(action.decoded, LogRecord):
        return action.decoded
    return replace(action.decoded, identity=f"{action.index}\0{action.identity}")


def _items(actions: list[Action], taken: accepting.Taken) -> tuple[bool, bytes]:
    """Return whether an item has an error, and the items as JSON, in the order of the actions."""
    ids = new_ids()
    has_errors = False
    items: list[dict[str, Any]] = []
    for position, action in enumerate(actions):
        item: dict[str, Any] = {"_index": action.index, "_id": action.identity or next(ids)}
        is_known = action.identity is not None and position in taken.repeated
        if (error := taken.rejected.get(position)) is not None:
            item |= _refused(error)
        elif is_known and action.name == "create":
            item |= {"status": 409, "error": _REPEATED}
        else:
            result = "updated" if is_known else "created"
            item |= {
                "_version": 1,
                "result": result,
                "_shards": {"total": 1, "successful": 1, "failed": 0},
                "_seq_no": 0,
                "_primary_term": 1,
                "status": 200 if result == "updated" else 201,
            }
        has_errors = has_errors or "error" in item
        items.append({action.name: item})
    return has_errors, orjson.dumps(items)


def _refused(error: VersoError) -> dict[str, Any]:
    body = error_body(error)
    status = problems.STATUSES[body["code"]]
    status = 400 if status == 422 else status
    return {"status": status, "error": error_of(body, status)}

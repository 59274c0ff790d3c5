"""``/es/…``: what clients and agents of Elasticsearch ask before they send.

Filebeat and Logstash look at the version, the licence, the health, the nodes, and at templates,
lifecycle policies and pipelines, which they make if they are missing. Here all of these exist and
none of them does anything, so that nothing is set up that would be without effect.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson
from fastapi import Request
from starlette.responses import Response

from verso_core.errors import NotFound
from verso_gateway.access import guarded
from verso_gateway.protocols import BULK_PATH
from verso_gateway.protocols.bulk import HEADERS, JSON

router = guarded("feed")
VERSION = "8.15.0"
"""Version of Elasticsearch whose protocol this speaks; clients of 7 to 9 take it."""
_CLUSTER = "verso"
_UID = "00000000-0000-0000-0000-000000000000"
_LICENSE = {"status": "active", "uid": _UID, "type": "basic", "mode": "basic"}
_HEALTH = {"cluster_name": _CLUSTER, "status": "green", "timed_out": False, "number_of_nodes": 1}
_INFO = {
    "name": _CLUSTER,
    "cluster_name": _CLUSTER,
    "cluster_uuid": _UID,
    "version": {
        "number": VERSION,
        "build_flavor": "default",
        "build_type": "docker",
        "build_hash": "0" * 40,
        "build_date": "2024-08-05T10:05:34.233336849Z",
        "build_snapshot": False,
        "lucene_version": "9.11.1",
        "minimum_wire_compatibility_version": "7.17.0",
        "minimum_index_compatibility_version": "7.0.0",
    },
    "tagline": "You Know, for Search",
}
_NODES = {
    "_nodes": {"total": 1, "successful": 1, "failed": 0},
    "cluster_name": _CLUSTER,
    "nodes": {_CLUSTER: {"name": _CLUSTER, "version": VERSION, "roles": ["ingest", "data"]}},
}
_FEATURES = {"ilm": {"available": True, "enabled": True}}
_ANSWERS: Mapping[str, Mapping[str, Any]] = {
    "": _INFO,
    "_license": {"license": _LICENSE},
    "_xpack": {"license": _LICENSE, "features": _FEATURES, "tagline": _INFO["tagline"]},
    "_xpack/license": {"license": _LICENSE},
    "_cluster/health": _HEALTH,
    "_nodes": _NODES,
    "_ilm/status": {"operation_mode": "RUNNING"},
}
_SETTINGS = (
    *("_index_template", "_component_template", "_template", "_ilm", "_ingest", "_alias"),
    *("_data_stream", "_security", "_cluster"),
)
"""Kinds of settings, all of which exist and can be changed without effect."""
_CHANGED = {"acknowledged": True}


@router.api_route(BULK_PATH, methods=["GET", "HEAD"], name="bulk_root", include_in_schema=False)
async def root(request: Request) -> Response:
    """Say what this is."""
    return _answer(request, _INFO)


@router.api_route(
    f"{BULK_PATH}/{{path:path}}",
    methods=["GET", "HEAD", "PUT", "POST", "DELETE"],
    name="bulk_handshake",
    include_in_schema=False,
)
async def handshake(request: Request, path: str) -> Response:
    """Answer a question of a client, or acknowledge a setting."""
    asked = path.strip("/")
    kind = asked.partition("/")[0]
    is_question = request.method in ("GET", "HEAD")
    if is_question:
        if asked in _ANSWERS:
            return _answer(request, _ANSWERS[asked])
        if kind == "_nodes":
            return _answer(request, _NODES)
        if asked == "_cat/health":
            text = f"0 00:00:00 {_CLUSTER} green 1 1 0 0 0 0 0 0 - 100.0%\n"
            return Response(text, media_type="text/plain", headers=HEADERS)
        if kind in _SETTINGS:
            return _answer(request, _setting(kind, asked))
        if kind and not kind.startswith("_") and request.method == "HEAD":
            return _answer(request, {})  # an index or an alias exists
    elif kind in _SETTINGS:
        return _answer(request, _CHANGED)
    elif asked and not asked.startswith("_") and request.method == "PUT":
        return _answer(request, {**_CHANGED, "shards_acknowledged": True, "index": kind})
    raise NotFound(f"nothing at {request.url.path!a}: {BULK_PATH} takes documents in")


def _setting(kind: str, asked: str) -> dict[str, Any]:
    """Return a template, policy or pipeline of the name that is asked for, without content."""
    name = asked.rpartition("/")[2]
    match kind:
        case "_index_template":
            return {"index_templates": [{"name": name, "index_template": {}}]}
        case "_component_template":
            return {"component_templates": [{"name": name, "component_template": {}}]}
        case "_data_stream":
            return {"data_streams": []}
        case "_ilm":
            return {name: {"version": 1, "policy": {"phases": {}}}}
    return {name: {}}


def _answer(request: Request, content: Mapping[str, Any]) -> Response:
    body = b"" if request.method == "HEAD" else orjson.dumps(content)
    return Response(body, media_type=JSON, headers=HEADERS)

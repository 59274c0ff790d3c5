"""The OpenAPI document: bodies are read by hand, so their schemas are added by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from verso_gateway import problems
from verso_gateway.bodies.limits import NDJSON

_REF = "#/components/schemas/{model}"
_SCHEMES = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "header": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
}
_GUARDED = "/v1/"
_BODIES: dict[str, type[BaseModel]] = {}


def body(model: type[BaseModel], *, ndjson: bool = False) -> dict[str, Any]:
    """Describe a JSON request body; ``ndjson`` if it may come as lines as well."""
    _BODIES[model.__name__] = model
    content: dict[str, Any] = {
        "application/json": {"schema": {"$ref": _REF.format(model=model.__name__)}}
    }
    if ndjson:
        content[NDJSON] = {"schema": {"type": "string", "description": "one document a line"}}
    return {"requestBody": {"required": True, "content": content}}


def responses(
    model: type[BaseModel], *, status: int = 200, also: Sequence[str] = ()
) -> dict[int | str, dict[str, Any]]:
    """Describe an answer, and problem+json for everything else."""
    content = {
        media_type: {"schema": {"type": "string", "format": "binary"}} for media_type in also
    }
    return {
        status: {"model": model, "content": content},
        "default": {
            "description": "Problem",
            "content": {
                "application/problem+json": {"schema": {"$ref": _REF.format(model="Problem")}}
            },
        },
    }


def job_responses(model: type[BaseModel], *, status: int = 200) -> dict[int | str, dict[str, Any]]:
    """Describe an answer that may also be 202: accepted, look at ``Location``."""
    schema = {"$ref": _REF.format(model="JobView")}
    accepted = {
        "description": "Accepted; the result will be at Location",
        "content": {"application/json": {"schema": schema}},
    }
    return {**responses(model, status=status), 202: accepted}


def document(app: FastAPI) -> dict[str, Any]:
    """Make the OpenAPI document, once."""
    if app.openapi_schema is None:
        schema = get_openapi(title=app.title, version=app.version, routes=app.routes)
        _, bodies = models_json_schema(
            [(model, "validation") for model in _BODIES.values()], ref_template=_REF
        )
        components = schema.setdefault("components", {})
        components["schemas"] |= bodies["$defs"] | {"Problem": problems.codes_in_openapi()}
        # The gate reads the headers by itself: as FastAPI's dependencies they would cost each call.
        components["securitySchemes"] = _SCHEMES
        for path, operations in schema["paths"].items():
            if path.startswith(_GUARDED):
                for operation in operations.values():
                    operation["security"] = [{name: []} for name in _SCHEMES]
        app.openapi_schema = schema
    return app.openapi_schema

"""The OpenAPI document of the gateway.

Routes name the models of their bodies and answers (:func:`body`, :func:`responses`,
:func:`job_responses`); what holds for many operations is added here: the problems that each can
answer with, the headers, the security schemes, and the examples of ``examples.json``, which a test
checks against the models. Bodies are read by hand, so FastAPI does not know their models.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.resources import files
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from verso_core.api_keys import Scope
from verso_core.jobs.job import JobView
from verso_gateway import problems
from verso_gateway.access import SCOPES
from verso_gateway.auth import COOKIE
from verso_gateway.bodies.reading import JSON
from verso_gateway.headers import DEADLINE_PATTERN, KEY_PATTERN, WEBHOOK_PATTERN
from verso_gateway.protocols import Protocol, cohere, openai, protocol_of, tei

PROBLEM = "application/problem+json"
_REF = "#/components/schemas/{model}"
_SCHEMES = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "header": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
    "basic": {"type": "http", "scheme": "basic", "description": "the key is the password"},
    "session": {"type": "apiKey", "in": "cookie", "name": COOKIE},
}
_ERRORS: dict[Protocol | None, tuple[Callable[[str, int], int], Mapping[str, Any]]] = {
    Protocol.OPENAI: (openai.status_of, openai.ERROR_SCHEMA),
    Protocol.COHERE: (cohere.status_of, cohere.ERROR_SCHEMA),
    Protocol.TEI: (tei.status_of, tei.ERROR_SCHEMA),
}
"""The status of an error by its code and own status, and the schema, of protocols that have their
own."""
_NATIVE: tuple[Callable[[str, int], int], Mapping[str, Any]] = (
    lambda _code, status: status,
    {"$ref": _REF.format(model="Problem")},
)
_AWAITED = frozenset(
    {
        *("createEmbedding", "getDocument", "getHeadReport", "getRegistry", "listDocuments"),
        *("getRecords", "promote", "queryLogs", "rollback", "rerank"),
        *("cohereEmbed", "cohereRerank"),
        *("teiAny", "teiEmbed", "teiPredict", "teiRerank", "teiSimilarity"),
    }
)
"""Operations whose job is always awaited: they never answer 202."""
_REPEATABLE = frozenset(
    {
        *("updateDocument", "deleteDocument", "changeCollection", "deleteCollection"),
        *("fitCollection", "endMigration", "moveCollection", "endMove", "changeLedger"),
    }
)
"""Operations that read an Idempotency-Key, and are no POST with a body that makes a job."""
_BODIES: dict[str, type[BaseModel]] = {}
_DESCRIBED: dict[str, type[BaseModel]] = {}
"""Models of 202 answers, of which FastAPI does not know."""

_ANY_REQUEST = (401, 403, 422, 500, 503)
_WITH_BODY = (413, 415, 429)
_JOB = (404, 409, 410, 429, 504)
_MORE: dict[str, tuple[int, ...]] = {
    "getMigration": (409,),
    "ingest": (501,),
    "getJob": (410,),
    "listJobFailures": (410,),
    "tailLogs": (404, 429),
}
_OPEN: dict[str, tuple[int, ...]] = {
    "readyz": (500, 503),
    "teiHealth": (500, 503),
    "explainError": (404, 422),
}
"""Problems of operations that need no key."""

_TEXT: dict[str, Any] = {"type": "string"}
_NATURAL: dict[str, Any] = {"type": "string", "pattern": "^[0-9]+$"}


def _parameter(name: str, description: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"name": name, "in": "header", "required": False, "description": description} | {
        "schema": schema
    }


_SCHEDULING = (
    _parameter(
        "Prefer",
        "RFC 7240: wait=N waits up to N seconds for the result, respond-async does not wait; "
        "handling=strict refuses what a missing partition would be left out of, handling=lenient "
        "leaves it out and names it; anything else is ignored",
        _TEXT | {"examples": ["wait=10"]},
    ),
    _parameter(
        "Priority",
        "RFC 9218: u=0 first, u=7 last, among the caller's jobs; anything else is ignored",
        _TEXT | {"examples": ["u=3"]},
    ),
    _parameter(
        "Verso-Deadline",
        "seconds from now after which work that has not started is dropped",
        _TEXT | {"pattern": DEADLINE_PATTERN, "examples": ["2.5"]},
    ),
    _parameter(
        "Verso-Webhook",
        "webhook that is notified when the job ends",
        _TEXT | {"pattern": WEBHOOK_PATTERN},
    ),
)
_IDEMPOTENCY = _parameter(
    "Idempotency-Key",
    "the same key and request find the same job; quoted or bare, 1..255 characters",
    _TEXT | {"pattern": KEY_PATTERN},
)


def _header(description: str, schema: Mapping[str, Any], *, required: bool = False) -> Any:
    return {"description": description, "schema": schema, "required": required}


_REQUEST_ID = {"X-Request-Id": _header("of the request, in logs and problems", _TEXT)}
_JOB_HEADERS = {
    "Verso-Job-Id": _header("the job of this request", _TEXT),
    "Preference-Applied": _header("RFC 7240: what of Prefer was applied", _TEXT),
    "Idempotency-Replayed": _header("the job existed before", {"type": "string", "const": "true"}),
    "RateLimit": _header("what is left of the queue's room", _TEXT),
    "RateLimit-Policy": _header("the quota that RateLimit is about", _TEXT),
}
_RESULT_HEADERS = {"Server-Timing": _header("milliseconds by phase", _TEXT)}
_WAITING_HEADERS = {
    "Verso-Waiting-Lines": _header("accepted lines that are not stored yet", _NATURAL),
    "Verso-Waiting-Oldest-S": _header("age of the oldest of them, seconds", _TEXT),
    "Verso-Missing-Partitions": _header("partitions of lines that were left out", _TEXT),
}
_ACCEPTED_HEADERS = {
    "Location": _header("path of the job", _TEXT, required=True),
    "Retry-After": _header("seconds until it is worth asking again", _NATURAL, required=True),
}
_RETRY_HEADERS = {
    "Retry-After": _header("seconds, if trying again can help", _NATURAL),
    "Retry-After-Ms": _header("the same in milliseconds", _NATURAL),
}
_CHALLENGE = {"WWW-Authenticate": _header("RFC 9110, section 11.6.1", _TEXT)}


_JUDGED_ALONE = {
    "anyOf": [{"$ref": _REF.format(model="Document")}, {}],
    "description": "each is judged alone: one that is no document gets an error of its own",
}


def body(model: type[BaseModel], *, also: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return the description of a JSON request body.

    Args:
        model: the model of the JSON body.
        also: descriptions of other forms of the body, by media type.
    """
    _BODIES[model.__name__] = model
    content: dict[str, Any] = {JSON: {"schema": {"$ref": _REF.format(model=model.__name__)}}}
    for media_type, description in (also or {}).items():
        content[media_type] = {"schema": {"type": "string", "description": description}}
    return {"requestBody": {"required": True, "content": content}}


def responses(
    model: type[BaseModel], *, status: int = 200, also: Sequence[str] = ()
) -> dict[int | str, dict[str, Any]]:
    """Return the description of a successful answer."""
    content = {
        media_type: {"schema": {"type": "string", "format": "binary"}} for media_type in also
    }
    return {status: {"model": model, "content": content}}


def job_responses(
    model: type[BaseModel], *, status: int = 200, accepted: type[BaseModel] = JobView
) -> dict[int | str, dict[str, Any]]:
    """Return the description of an answer that may also be 202: accepted, look at ``Location``."""
    _DESCRIBED[accepted.__name__] = accepted
    later = {
        "description": "Accepted; the result will be at Location",
        "content": {JSON: {"schema": {"$ref": _REF.format(model=accepted.__name__)}}},
        "headers": _JOB_HEADERS | _ACCEPTED_HEADERS,
    }
    return {**responses(model, status=status), 202: later}


def events(
    kinds: Mapping[str, type[BaseModel] | None], *, ids: bool = False
) -> dict[int | str, dict[str, Any]]:
    """Return the description of server-sent events (OpenAPI 3.2, section 4.14.4).

    Args:
        kinds: the model of the data of each kind of event, by its name; None: no data.
        ids: whether each event has an id.
    """
    described = []
    for name, model in kinds.items():
        data: dict[str, Any] = {"const": "{}"}
        if model is not None:
            _DESCRIBED[model.__name__] = model
            schema = {"$ref": _REF.format(model=model.__name__)}
            data = _TEXT | {"contentMediaType": JSON, "contentSchema": schema}
        described.append({"properties": {"event": {"const": name}, "data": data}})
    required = ["event", "data", *(["id"] if ids else [])]
    event = {"type": "object", "properties": {"id": _TEXT}, "required": required}
    return {200: {"content": {"text/event-stream": {"itemSchema": event | {"oneOf": described}}}}}


def or_events(
    found: dict[int | str, dict[str, Any]], kinds: Mapping[str, type[BaseModel] | None]
) -> dict[int | str, dict[str, Any]]:
    """Return the description of an answer that may come as server-sent events, too."""
    content = found[200].get("content", {}) | events(kinds)[200]["content"]
    return {**found, 200: found[200] | {"content": content}}


def document(app: FastAPI, routes: Mapping[str, str]) -> dict[str, Any]:
    """Return the OpenAPI document, made once; ``routes`` are names of routes by operation."""
    if app.openapi_schema is None:
        schema = get_openapi(
            title=app.title, version=app.version, summary=app.summary, routes=app.routes
        )
        _, models = models_json_schema(
            [
                *((model, "validation") for model in _BODIES.values()),
                *((model, "serialization") for model in _DESCRIBED.values()),
            ],
            ref_template=_REF,
        )
        components = schema.setdefault("components", {})
        components["schemas"] |= models["$defs"] | {"Problem": problems.codes_in_openapi()}
        components["schemas"]["IngestRequest"]["properties"]["documents"]["items"] = _JUDGED_ALONE
        for name in ("HTTPValidationError", "ValidationError"):  # FastAPI's own, never answered
            components["schemas"].pop(name, None)
        # The gate reads the headers by itself: as FastAPI's dependencies they would cost each call.
        components["securitySchemes"] = _SCHEMES
        examples = json.loads(files("verso_gateway").joinpath("examples.json").read_bytes())
        for path, method, operation in operations(schema):
            _complete(operation, route=routes[operation["operationId"]], path=path)
            posted = method == "post" and "requestBody" in operation
            if (_is_job(operation) and posted) or operation["operationId"] in _REPEATABLE:
                operation["parameters"].append(_IDEMPOTENCY)
            _add_examples(operation, examples.get(operation["operationId"], {}))
        app.openapi_schema = schema
    return app.openapi_schema


def operations(schema: Mapping[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield path, method and description of each operation of a document."""
    for path, described in schema["paths"].items():
        for method, operation in described.items():
            yield path, method, operation


def _is_job(operation: Mapping[str, Any]) -> bool:
    accepted = operation["responses"].get("202", {})
    return "Location" in accepted.get("headers", {}) or operation["operationId"] in _AWAITED


def _complete(operation: dict[str, Any], *, route: str, path: str) -> None:
    """Add the headers, the problems and the security of an operation."""
    name, found = operation["operationId"], operation["responses"]
    found.pop("422", None)  # FastAPI's own shape
    job = _is_job(operation)
    if job:
        operation["parameters"] = [*operation.get("parameters", ()), *_SCHEDULING]
    for status, response in found.items():
        extra = _JOB_HEADERS | _RESULT_HEADERS if job and status != "202" else {}
        extra |= _WAITING_HEADERS if name == "queryLogs" else {}
        response["headers"] = extra | response.get("headers", {}) | _REQUEST_ID
    statuses = set(_OPEN.get(name, ()))
    if route in SCOPES:
        scope = SCOPES[route]
        # OpenAPI 3.1, section 4.8.30: names of roles, where a scheme has no scopes of its own.
        needed = [] if scope is None else [str(scope)]
        operation["security"] = [{scheme: needed} for scheme in _SCHEMES]
        operation["description"] += f"\n\nNeeds {_named(scope)}."
        statuses |= {*_ANY_REQUEST, *_MORE.get(name, ())}
        statuses |= {*_JOB} if job else set()
        statuses |= {*_WITH_BODY} if "requestBody" in operation else set()
        statuses |= {404} if "{" in path else set()
    protocol = protocol_of(path)
    status_of, schema = _ERRORS.get(protocol, _NATIVE)
    codes: dict[int, list[str]] = {}
    for code, own in sorted(problems.STATUSES.items()):
        if own in statuses:
            codes.setdefault(status_of(code, own), []).append(code)
    for status, known in sorted(codes.items()):
        found[str(status)] = _problem(status, known, schema, native=protocol not in _ERRORS)


def _named(scope: Scope | None) -> str:
    return "an API key" if scope is None else f"an API key with the scope `{scope}`"


def _problem(
    status: int, codes: Sequence[str], schema: Mapping[str, Any], *, native: bool
) -> dict[str, Any]:
    extra = _CHALLENGE if status == 401 else _RETRY_HEADERS if status in (429, 503) else {}
    return {
        "description": ", ".join(codes),
        "headers": extra | _REQUEST_ID,
        "content": {PROBLEM if native else JSON: {"schema": schema}},
    }


def _add_examples(operation: dict[str, Any], examples: Mapping[str, Any]) -> None:
    """Add the examples of an operation: ``request`` and ``response``, its successful answer."""
    if "request" in examples:
        operation["requestBody"]["content"][JSON]["example"] = examples["request"]
    if "response" in examples:
        success = next(one for status, one in operation["responses"].items() if status[0] == "2")
        content = success["content"]
        content[next(iter(content))]["example"] = examples["response"]

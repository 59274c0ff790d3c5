"""Qdrant's REST interface over the client library's local mode: ``python qdrant_stand_in.py PORT``.

For tests on machines without a Qdrant server: it answers the calls that Verso makes and no others.
With QDRANT_URL set those tests use a real server instead.
"""

from __future__ import annotations

import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from qdrant_client import QdrantClient, models

_LOCK = threading.Lock()


class NoSuch(Exception):
    """Raised for a collection or a call that does not exist."""


class There(Exception):
    """Raised for a collection that another worker has just made."""


def collection_call(client: QdrantClient, method: str, name: str, body: dict[str, Any]) -> Any:
    """Answer a call about a collection as a whole."""
    if method == "PUT":
        if client.collection_exists(name):
            raise There(name)
        config = models.CreateCollection.model_validate(body)
        return client.create_collection(
            name,
            vectors_config=config.vectors,
            sparse_vectors_config=config.sparse_vectors,
            metadata=config.metadata,
        )
    if not client.collection_exists(name):
        raise NoSuch(name)
    if method == "DELETE":
        return client.delete_collection(name)
    return client.get_collection(name)


def points_call(client: QdrantClient, call: str, name: str, body: dict[str, Any]) -> Any:
    """Answer a call about points."""
    if not client.collection_exists(name):
        raise NoSuch(name)
    match call:
        case "PUT":
            points = [models.PointStruct.model_validate(point) for point in body["points"]]
            return client.upsert(name, points)
        case "POST":
            return client.retrieve(
                name,
                body["ids"],
                with_vectors=body.get("with_vector", False),
                with_payload=body.get("with_payload", True),
            )
        case "POST delete":
            return client.delete(name, models.PointIdsList(points=body["points"]))
        case "POST count":
            return client.count(name, _filter(body), exact=True)
        case "POST query":
            return client.query_batch_points(name, [_exact(body)])[0]
        case "POST query batch":
            return client.query_batch_points(name, [_exact(one) for one in body["searches"]])
        case "POST scroll":
            order = body.get("order_by")
            records, offset = client.scroll(
                name,
                scroll_filter=_filter(body),
                limit=body["limit"],
                offset=body.get("offset"),
                order_by=None if order is None else models.OrderBy.model_validate(order),
                with_vectors=body.get("with_vector", False),
                with_payload=body.get("with_payload", True),
            )
            return {"points": plain(records), "next_page_offset": offset}
        case "PUT index":
            return models.UpdateResult(operation_id=0, status=models.UpdateStatus.COMPLETED)
        case _:
            raise NoSuch(call)


def _filter(body: dict[str, Any]) -> models.Filter | None:
    where = body.get("filter")
    return None if where is None else models.Filter.model_validate(where)


def _exact(body: dict[str, Any]) -> models.QueryRequest:
    """Read a query; local mode has no index and warns of parameters of one."""
    return models.QueryRequest.model_validate({**body, "params": None})


def answer(client: QdrantClient, method: str, path: str, body: dict[str, Any]) -> Any:
    """Answer one call."""
    match path.strip("/").split("/"):
        case ["collections"]:
            return client.get_collections()
        case ["collections", name, "exists"]:
            return {"exists": client.collection_exists(name)}
        case ["collections", name]:
            return collection_call(client, method, name, body)
        case ["collections", name, "index"]:
            return points_call(client, f"{method} index", name, body)
        case ["collections", name, "points", *rest]:
            return points_call(client, " ".join([method, *rest]), name, body)
        case _:
            raise NoSuch(path)


def plain(value: Any) -> Any:
    """Turn the library's objects into JSON's. A server gives an unnamed vector without a name."""
    if isinstance(value, list):
        return [plain(one) for one in value]
    if isinstance(value, dict):
        return plain(value[""]) if set(value) == {""} else {k: plain(v) for k, v in value.items()}
    return plain(value.model_dump(mode="json")) if hasattr(value, "model_dump") else value


def send(request: BaseHTTPRequestHandler, status: int, data: bytes) -> None:
    """Answer a request with JSON."""
    request.send_response(status)
    request.send_header("Content-Type", "application/json")
    request.send_header("Content-Length", str(len(data)))
    request.end_headers()
    request.wfile.write(data)


def handler(client: QdrantClient) -> type[BaseHTTPRequestHandler]:
    """Make the class that answers requests; the local mode bears one call at a time."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _serve(self) -> None:
            size = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(size) or b"{}")
            path = self.path.partition("?")[0]
            try:
                with _LOCK:
                    result = plain(answer(client, self.command, path, body))
                status, content = 200, {"result": result, "status": "ok", "time": 0.0}
            except NoSuch as error:
                status, content = 404, {"status": {"error": str(error)}, "time": 0.0}
            except There as error:
                status, content = 409, {"status": {"error": str(error)}, "time": 0.0}
            data = json.dumps(content).encode()
            send(self, status, data)

        do_GET = do_PUT = do_POST = do_DELETE = _serve  # noqa: N815 - the library's names

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    return Handler


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), handler(QdrantClient(":memory:")))
    server.serve_forever()

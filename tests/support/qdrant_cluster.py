"""A stand-in for a Qdrant cluster: nodes over the client library's local mode, which can be away.

Each node has an address of its own and a copy of the points. Rules, statuses and error texts are
those of Qdrant 1.19 (``lib/collection/src/shards/replica_set``: ``update.rs``,
``execute_read_operation.rs``):

1. A write goes to all active replicas. If at least ``min(write_consistency_factor, replicas)`` took
   it, those that failed are dead from then on and the write is acknowledged. Else it is answered
   500 with the first failure; replicas that took it keep it, and none is dead.
2. A read asks as many replicas as its ``consistency`` says and returns the points that they agree
   on. ``majority`` and ``all`` need every replica, ``quorum`` more than half of them.
3. A dead replica whose node is back is filled from an active one.

It keeps every point in one replica set: the number of shards is noted and not acted upon. How a
collection is made while a node is away is not imitated, and neither is consensus.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from qdrant_client import QdrantClient, models
from tests.support.qdrant_stand_in import (
    NoSuch,
    There,
    answer,
    plain,
    points_call,
    send,
)

ACTIVE, DEAD = "Active", "Dead"
_PAGE = 1000
_FIRST_PORT = 6335  # of the cluster's own protocol, in what Qdrant says of an unreachable node


class Refused(Exception):
    """Raised for what a cluster answers with status 500."""


class _Away(Exception):
    """Raised by a node that cannot be reached."""


class _Collection:
    """What the cluster knows of a collection. ``replicas``: state of each node's copy."""

    def __init__(self, body: dict[str, Any], nodes: int) -> None:
        self.params = {
            "shard_number": body.get("shard_number") or nodes,
            "replication_factor": body.get("replication_factor") or 1,
            "write_consistency_factor": body.get("write_consistency_factor") or 1,
        }
        count = min(self.params["replication_factor"], nodes)
        self.replicas = dict.fromkeys(range(count), ACTIVE)


class Cluster:
    """Nodes that are served from threads of this process; close it in the end.

    Args:
        nodes: number of nodes.
    """

    def __init__(self, nodes: int = 3) -> None:
        self._lock = threading.RLock()
        self._stores = [QdrantClient(":memory:") for _ in range(nodes)]
        self._collections: dict[str, _Collection] = {}
        self.away: set[int] = set()
        self.refused: Counter[str] = Counter()
        self._servers = [
            ThreadingHTTPServer(("127.0.0.1", 0), self._handler(node)) for node in range(nodes)
        ]
        for server in self._servers:
            serve = partial(server.serve_forever, poll_interval=0.02)
            threading.Thread(target=serve, name="qdrant node", daemon=True).start()

    def url(self, node: int = 0) -> str:
        """Return the address of a node."""
        return f"http://127.0.0.1:{self._servers[node].server_port}"

    def close(self) -> None:
        """Stop serving."""
        for server in self._servers:
            server.shutdown()
            server.server_close()

    def lose(self, *nodes: int) -> None:
        """Let nodes go away: they answer nobody, and keep what they have."""
        with self._lock:
            self.away |= set(nodes)

    def restore(self, *nodes: int) -> None:
        """Let nodes come back; their dead replicas are filled from active ones."""
        with self._lock:
            self.away -= set(nodes)
            for name, collection in self._collections.items():
                for node in nodes:
                    if collection.replicas.get(node) == DEAD:
                        self._fill(name, node, collection)

    def replicas(self, name: str) -> dict[int, str]:
        """Return the state of a collection's replica on each node that has one."""
        with self._lock:
            return dict(self._collections[name].replicas)

    def ids(self, name: str, node: int) -> set[str]:
        """Return the ids of the points that a node has of a collection."""
        with self._lock:
            return {str(point.id) for point in self._points(name, node)}

    def _points(self, name: str, node: int) -> list[models.Record]:
        found: list[models.Record] = []
        offset: Any = None
        while True:
            page, offset = self._stores[node].scroll(
                name, limit=_PAGE, offset=offset, with_payload=True, with_vectors=True
            )
            found += page
            if offset is None:
                return found

    def _fill(self, name: str, node: int, collection: _Collection) -> None:
        source = next(n for n, state in collection.replicas.items() if state == ACTIVE)
        old = [point.id for point in self._points(name, node)]
        if old:
            self._stores[node].delete(name, models.PointIdsList(points=old))
        points: list[Any] = [
            models.PointStruct(id=one.id, vector=one.vector, payload=one.payload)
            for one in self._points(name, source)
        ]
        if points:
            self._stores[node].upsert(name, points)
        collection.replicas[node] = ACTIVE

    def call(self, node: int, method: str, target: str, body: dict[str, Any]) -> Any:
        """Answer a call that a node received."""
        parts = urlsplit(target)
        [consistency] = parse_qs(parts.query).get("consistency", ["1"])
        with self._lock:
            match parts.path.strip("/").split("/"):
                case ["collections", name, "cluster"]:
                    return self._described(name, node)
                case ["collections", name] if method in ("PUT", "DELETE"):
                    return self._remade(name, method, body)
                case ["collections", name] if name in self._collections:
                    found = plain(answer(self._stores[node], method, parts.path, body))
                    found["config"]["params"] |= self._collections[name].params
                    return found
                case ["collections", name, "points", *rest] if name in self._collections:
                    call = " ".join([method, *rest])
                    if call in ("PUT", "POST delete"):
                        return self._write(name, lambda n: points_call(n, call, name, body), node)
                    return self._read(
                        name, lambda n: points_call(n, call, name, body), node, consistency
                    )
                case _:
                    return answer(self._stores[node], method, parts.path, body)

    def _remade(self, name: str, method: str, body: dict[str, Any]) -> Any:
        assert not self.away, "a collection that is made while a node is away is not imitated"
        if method == "PUT":
            if name in self._collections:
                raise There(name)
            self._collections[name] = _Collection(body, len(self._stores))
        else:
            self._collections.pop(name, None)
        answers = [answer(store, method, f"/collections/{name}", body) for store in self._stores]
        return answers[0]

    def _described(self, name: str, node: int) -> dict[str, Any]:
        if name not in self._collections:
            raise NoSuch(name)
        replicas = self._collections[name].replicas
        own = [{"shard_id": 0, "points_count": 0, "state": replicas[node]}]
        return {
            "peer_id": node,
            "shard_count": 1,
            "local_shards": own if node in replicas else [],
            "remote_shards": [
                {"shard_id": 0, "peer_id": other, "state": state}
                for other, state in replicas.items()
                if other != node
            ],
            "shard_transfers": [],
        }

    def _write(self, name: str, call: Callable[[QdrantClient], Any], node: int) -> Any:
        collection = self._collections[name]
        done, failed = self._asked(self._active(name, node), call)
        least = min(collection.params["write_consistency_factor"], len(collection.replicas))
        if not failed:
            return done[0]
        if len(done) < least:
            raise Refused(failed[min(failed)])
        for other in failed:
            collection.replicas[other] = DEAD
        return done[0]

    def _read(
        self, name: str, call: Callable[[QdrantClient], Any], node: int, consistency: str
    ) -> Any:
        total = len(self._collections[name].replicas)
        active = self._active(name, node)
        needed = {"all": total, "majority": total, "quorum": total // 2 + 1}.get(consistency)
        if needed is None:
            needed = min(max(1, int(consistency)), total)
        if len(active) < needed:
            raise Refused(
                f"The replica set for shard 0 on peer {node} does not have enough active replicas"
            )
        done, failed = self._asked(active, call)
        if len(done) < needed:
            errors = "".join(f"\n  {error}" for error in failed.values())
            asked = len(done) + len(failed)
            raise Refused(f"{len(failed)} of {asked} read operations failed:{errors}")
        most = consistency == "majority"
        return _agreed(done[:needed], least=needed // 2 + 1 if most else needed)

    def _active(self, name: str, node: int) -> list[int]:
        """Return the nodes with an active replica, the one that was asked first."""
        replicas = self._collections[name].replicas
        found = [other for other, state in replicas.items() if state == ACTIVE]
        if not found:
            raise Refused(f"The replica set for shard 0 on peer {node} has no active replica")
        return sorted(found, key=lambda other: other != node)

    def _asked(
        self, nodes: Sequence[int], call: Callable[[QdrantClient], Any]
    ) -> tuple[list[Any], dict[int, str]]:
        done = [plain(call(self._stores[node])) for node in nodes if node not in self.away]
        port = _FIRST_PORT
        failed = {
            node: "Service internal error: Tonic status error: status: Unavailable, message: "
            f'"Failed to connect to http://node-{node}:{port}/, error: transport error"'
            for node in nodes
            if node in self.away
        }
        return done, failed

    def _answer(self, node: int, method: str, target: str, data: bytes) -> tuple[int, bytes]:
        if node in self.away:
            raise _Away
        try:
            result = plain(self.call(node, method, target, json.loads(data or b"{}")))
        except NoSuch as error:
            return 404, _fault(f"Not found: Collection `{error}` doesn't exist!")
        except There as error:
            return 409, _fault(f"Wrong input: Collection `{error}` already exists!")
        except Refused as error:
            self.refused[method] += 1
            return 500, _fault(f"Service internal error: {error}")
        return 200, json.dumps({"result": result, "status": "ok", "time": 0.0}).encode()

    def _handler(self, node: int) -> type[BaseHTTPRequestHandler]:
        cluster = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _serve(self) -> None:
                size = int(self.headers.get("Content-Length") or 0)
                try:
                    status, data = cluster._answer(
                        node, self.command, self.path, self.rfile.read(size)
                    )
                except _Away:
                    self.close_connection = True
                    return
                send(self, status, data)

            do_GET = do_PUT = do_POST = do_DELETE = _serve  # noqa: N815 - the library's names

            def log_message(self, *_: Any) -> None:
                """Say nothing."""

        return Handler


def _fault(text: str) -> bytes:
    return json.dumps({"status": {"error": text}, "time": 0.0}).encode()


def _agreed(answers: list[Any], *, least: int) -> Any:
    """Return the points that at least so many answers have, in the first one's order."""
    first, *others = answers
    if not others:
        return first
    if isinstance(first, list):
        if first and "points" in first[0]:  # one answer a query of a batch
            return [_agreed([one[at] for one in answers], least=least) for at in range(len(first))]
        seen = Counter(point["id"] for one in answers for point in one)
        points = {point["id"]: point for one in reversed(answers) for point in one}
        order = dict.fromkeys([point["id"] for one in answers for point in one])
        return [points[point] for point in order if seen[point] >= least]
    if "points" in first:
        return first | {"points": _agreed([one["points"] for one in answers], least=least)}
    return first

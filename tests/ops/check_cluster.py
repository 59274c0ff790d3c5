"""Does Verso work in this cluster? Applies an overlay, takes documents in, kills pods, reads back.

    python tests/ops/check_cluster.py --overlay k8s/overlays/local     (``make check-cluster``)

1. Namespace and secrets, where they are missing, and ``kubectl apply -k``.
2. Wait until every StatefulSet and Deployment is rolled out.
3. Through a port that kubectl forwards to the gateway: documents in, then one pod of each part is
   deleted without grace while more go in.
4. Wait again; every document is read back and compared. The last line says how many.

It needs ``kubectl`` with a context that may do all this, images that the cluster can pull, and ten
minutes. It leaves Verso running; ``kubectl delete namespace verso`` removes it and its data.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from verso_client import Client, Document, Retries
from verso_core import api_keys
from verso_core.api_keys import Scope
from verso_standalone.valkey import free_port

COLLECTION = "check-cluster"
PARTS = ("worker", "keeper", "gateway", "ledger", "qdrant")
"""Pods that are killed, one after another, by their label ``app.kubernetes.io/name``."""


class Cluster:
    """One namespace, as kubectl sees it."""

    def __init__(self, kubectl: Sequence[str], namespace: str) -> None:
        self._kubectl = list(kubectl)
        self._own = [*kubectl, "-n", namespace]
        self.namespace = namespace

    def run(self, *argv: str, check: bool = True) -> str:
        """Run kubectl in the namespace; return what it printed."""
        done = subprocess.run([*self._own, *argv], check=check, stdout=subprocess.PIPE, text=True)
        return done.stdout.strip()

    def prepare(self, folder: Path) -> str:
        """Make namespace and secrets where they are missing; return the API key, '' if unknown."""
        if not self.run("get", "namespace", self.namespace, "--ignore-not-found"):
            self.run("create", "namespace", self.namespace)
        if not self._has("verso-store-passwords"):
            words = [f"--from-literal={one}={secrets.token_hex(32)}" for one in _STORES]
            self.run("create", "secret", "generic", "verso-store-passwords", *words)
        if self._has("verso-api-keys"):
            return ""
        path = folder / "api-keys"
        key, line = api_keys.mint("check-cluster", scopes=[Scope.INGEST, Scope.READ, Scope.ADMIN])
        api_keys.add(path, line)
        self.run("create", "secret", "generic", "verso-api-keys", f"--from-file=api-keys={path}")
        return key

    def _has(self, secret: str) -> bool:
        return bool(self.run("get", "secret", secret, "--ignore-not-found"))

    def apply(self, overlay: Path) -> None:
        """Apply an overlay."""
        self.run("apply", "-k", str(overlay))

    def wait(self, timeout_s: int) -> None:
        """Wait until everything is rolled out."""
        for kind in ("statefulset", "deployment"):
            for name in self.run("get", kind, "-o", "name").split():
                self.run("rollout", "status", name, f"--timeout={timeout_s}s")

    def kill(self, part: str) -> None:
        """Delete one pod of a part without grace."""
        label = f"app.kubernetes.io/name={part}"
        pods = self.run("get", "pod", "-l", label, "-o", "name").split()
        if pods:
            self.run("delete", pods[0], "--grace-period=0", "--force", "--wait=false")

    @contextmanager
    def gateway(self) -> Iterator[str]:
        """Yield an address of the gateway; a forwarding that its pod has left is started again."""
        port = free_port()
        ours = " ".join(map(shlex.quote, [*self._own, "port-forward", "service/gateway"]))
        again = f"while :; do {ours} {port}:80; sleep 1; done"
        forwarding = subprocess.Popen(
            ["sh", "-c", again], stdout=subprocess.DEVNULL, start_new_session=True
        )
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            os.killpg(forwarding.pid, signal.SIGKILL)
            forwarding.wait()


def text_of(number: int) -> bytes:
    """Return the text of a document, which follows from its number."""
    return f"line {number}: session {number * 7919 % 100_000} opened on host-{number % 7}".encode()


def take_in(client: Client, numbers: range) -> None:
    """Take documents in and wait until they are stored."""
    documents = [Document(text_of(number), id=str(number)) for number in numbers]
    report = client.ingest(documents, collection=COLLECTION)
    if report.failed:
        raise SystemExit(f"{len(report.failed)} documents were refused: {report.failed[0]}")


def read_back(client: Client, count: int, *, collection: str = COLLECTION) -> dict[str, int]:
    """Read every document and compare it."""
    found = {"documents": count, "exact": 0, "lost": 0, "wrong": 0}
    for start in range(0, count, 64):
        numbers = range(start, min(start + 64, count))
        texts = client.reconstruct([str(number) for number in numbers], collection=collection)
        for number, text in zip(numbers, texts, strict=True):
            right = text.error is None and text.data == text_of(number)
            found["exact" if right else "lost" if text.error else "wrong"] += 1
    return found


def check(cluster: Cluster, given: argparse.Namespace) -> dict[str, float]:
    """Apply, wait, take in, kill, read back; return what was found."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        key = cluster.prepare(Path(folder)) or given.api_key
    cluster.apply(given.overlay)
    cluster.wait(given.timeout_s)
    part = given.documents // (len(PARTS) + 1)
    with cluster.gateway() as url:
        retries = Retries(patience_s=float(given.timeout_s))
        with Client(url, api_key=key or None, retries=retries) as client:
            client.create_collection(COLLECTION)
            take_in(client, range(part))
            for turn, name in enumerate(PARTS, 1):
                cluster.kill(name)
                take_in(client, range(turn * part, (turn + 1) * part))
            cluster.wait(given.timeout_s)
            found = read_back(client, part * (len(PARTS) + 1))
            client.delete_collection(COLLECTION)
    return {**found, "pods killed": len(PARTS), "seconds": round(time.monotonic() - started)}


def main() -> int:
    """Run the check; status 1 if a document is lost or wrong."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--overlay", type=Path, default=Path("k8s/overlays/local"))
    parser.add_argument("--namespace", default="verso", help="that of the overlay")
    parser.add_argument("--documents", type=int, default=600)
    parser.add_argument("--timeout-s", type=int, default=600, help="longest wait for a roll-out")
    parser.add_argument("--api-key", default="", help="where the secret verso-api-keys is there")
    parser.add_argument("--kubectl", default="kubectl", help="with a context, if you like")
    given = parser.parse_args()
    found = check(Cluster(shlex.split(given.kubectl), given.namespace), given)
    sys.stdout.write(json.dumps(found) + "\n")
    return int(found["exact"] != found["documents"])


_STORES = ("ledger", "broker", "qdrant")

if __name__ == "__main__":
    sys.exit(main())

"""Collections with cold storage move between ledgers of a running platform, and one is drained."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.conftest import ValkeyServer

from verso_client import Client, Document
from verso_core.jobs import CollectionKind
from verso_core.jobs.logs.lines import LinesRequest

if TYPE_CHECKING:
    from tests.e2e.conftest import Platform

TEXTS, LINES = "cold-texts", "cold-lines"
COUNT = 2048  # lines of a whole segment


def text(number: int) -> bytes:
    """Return a text that no codec makes small."""
    drawn = random.Random(number)
    return f"note {number}: {' '.join(f'{drawn.getrandbits(40):x}' for _ in range(10))}".encode()


def lines(number: int) -> bytes:
    drawn = random.Random(number)
    return b"".join(
        b"2026-01-01T00:00:00Z sshd: user u%d came by port %d in %d ms\n"
        % (drawn.randrange(90), drawn.randrange(90), drawn.randrange(90))
        for _ in range(COUNT)
    )


def cold(client: Client, name: str) -> int:
    """Return how many bytes of a collection are in cold storage."""
    kept = client.stats(name).kept
    return 0 if kept is None else kept.bytes_cold


def await_cold(client: Client) -> None:
    until = time.monotonic() + 120
    client.scrub(now=True)
    while not (cold(client, TEXTS) and cold(client, LINES)):
        assert time.monotonic() < until
        time.sleep(1.0)


def await_moved(client: Client) -> None:
    until = time.monotonic() + 120
    for name in (TEXTS, LINES):
        while (found := client.move_state(name)).ended is None:
            assert time.monotonic() < until, found
            time.sleep(0.2)


def objects(platform: Platform, ledger: str) -> int:
    folder = platform.data / "cold" / ledger
    return sum(path.is_file() for path in folder.rglob("*"))


def test_a_ledger_with_cold_storage_is_drained(
    new_platform: Callable[..., Platform], second_ledger: ValkeyServer
) -> None:
    platform = new_platform(
        VERSO_LEDGERS=f"b={second_ledger.url}",
        VERSO_COLD_AFTER_DAYS="0",
        VERSO_SCRUB_SHARE="1",
        VERSO_VERIFY_DELAY_S="0.1",
    )
    platform.start()
    texts = {f"n{number}": text(number) for number in range(200)}
    logged = b"".join(map(lines, range(3)))

    def check(client: Client) -> None:
        assert platform.read_all(TEXTS, list(texts)) == texts
        assert b"".join(client.lines(LinesRequest(collection=LINES, limit=0, raw=True))) == logged
        hit = client.search(texts["n7"].decode(), collection=TEXTS).hits[0]
        assert (hit.document, hit.data) == ("n7", texts["n7"])

    with platform.client(patience_s=120.0) as client:
        client.drain_ledger("b")
        client.create_collection(TEXTS)
        client.create_collection(LINES, kind=CollectionKind.LOGS)
        client.ingest([Document(one, id=name) for name, one in texts.items()], collection=TEXTS)
        for number in range(3):
            client.ingest_lines([lines(number)], collection=LINES)
        platform.await_verified(TEXTS, len(texts))
        await_cold(client)
        client.drain_ledger("b", draining=False)
        before = {name: cold(client, name) for name in (TEXTS, LINES)}
        for name in before:
            client.move(name, "b")
        time.sleep(0.5)
        platform.kill("worker")
        await_moved(client)
        assert {one.name: one.collections for one in client.ledgers()}["b"] == 2
        assert objects(platform, "b")
        assert all(cold(client, name) for name in before)
        check(client)
        texts["n3"] = b"another text"
        client.ingest([Document(texts["n3"], id="n3")], collection=TEXTS)
        client.drain_ledger("b", move=True)
        time.sleep(0.5)
        platform.kill("keeper")
        await_moved(client)
        found = {one.name: one for one in client.ledgers()}["b"]
        assert (found.collections, found.leaving, found.draining) == (0, 0, True)
        assert all(cold(client, name) for name in before)
        check(client)
    platform.stop()

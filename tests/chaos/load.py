"""Mixed load, and the truth about it: what was asked, what was acknowledged, what must be there.

The journal lives in the driver's memory, outside everything that is shot at. A text follows from
its id, so the journal holds ids only. Every call goes through the client, which repeats a request
whose answer was lost under the same idempotency key: one call must make one job.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from verso_client import Client, Document
from verso_core.errors import DocumentUnknown, VersoError
from verso_core.jobs import Status

COLLECTION = "chaos"
_WORDS = (
    "link",
    "up",
    "down",
    "kernel",
    "session",
    "opened",
    "closed",
    "timeout",
    "after",
    "retry",
)


def text_of(document: str) -> bytes:
    """Return the text of a document id: a few log lines, the same at every call."""
    dice = random.Random(document)
    lines = [
        f"{dice.randrange(10**9):09d} {' '.join(dice.choices(_WORDS, k=8))} {document}"
        for _ in range(dice.randint(1, 6))
    ]
    return "\n".join(lines).encode()


@dataclass
class Journal:
    """What was acknowledged. Guarded by its lock."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    stored: set[str] = field(default_factory=set)
    deleted: set[str] = field(default_factory=set)
    jobs: set[str] = field(default_factory=set)
    calls: Counter[str] = field(default_factory=Counter)
    unanswered: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)

    def wrong(self, what: str) -> None:
        """Note a broken promise."""
        with self.lock:
            self.faults.append(what)


class Load:
    """Callers at work until told to stop.

    Args:
        connect: makes a client that rides out restarts.
        journal: where the truth goes.
        callers: how many threads.
        seed: of what they ask for.
    """

    def __init__(
        self, connect: Callable[[], Client], journal: Journal, *, callers: int, seed: int
    ) -> None:
        self._connect = connect
        self._journal = journal
        self._over = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(f"{seed}-{n}",), name=f"caller-{n}")
            for n in range(callers)
        ]

    def start(self) -> None:
        """Start calling."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Let every open call come to its end."""
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _run(self, name: str) -> None:
        dice = random.Random(name)
        mine: list[str] = []
        number = 0
        with self._connect() as client:
            while not self._over.wait(dice.expovariate(4.0)):
                number += 1
                what = dice.choices(
                    [self._ingest, self._embed, self._search, self._read, self._delete],
                    [4, 3, 2, 3, 1],
                )[0]
                try:
                    what(client, f"{name}-{number}", mine, dice)
                except VersoError as error:
                    with self._journal.lock:
                        self._journal.unanswered[f"{what.__name__[1:]}: {error.code}"] += 1

    def _ingest(self, client: Client, name: str, mine: list[str], dice: random.Random) -> None:
        ids = [f"{name}/{n}" for n in range(dice.randint(1, 12))]
        documents = [Document(text_of(document), id=document) for document in ids]
        [job] = client.submit(documents, collection=COLLECTION)
        with self._journal.lock:
            self._journal.jobs.add(job.id)
            self._journal.calls["ingest"] += 1
        if dice.random() < 0.3:
            ended = client.wait(job.id, timeout_s=300.0)
            if ended.status is not Status.SUCCEEDED or ended.failed:
                self._journal.wrong(f"{job.id} ended as {ended.status}, {ended.failed} failed")
            mine += ids
        with self._journal.lock:
            self._journal.stored.update(ids)

    def _embed(self, client: Client, name: str, _mine: list[str], dice: random.Random) -> None:
        texts = [f"{name} {n}" for n in range(dice.choice([1, 1, 1, 40]))]
        found = client.embed(texts)
        with self._journal.lock:
            self._journal.calls["embed"] += 1
        if len(found) != len(texts):
            self._journal.wrong(f"{len(found)} vectors for {len(texts)} texts")

    def _search(self, client: Client, name: str, _mine: list[str], _dice: random.Random) -> None:
        for hit in client.search(f"session {name}", collection=COLLECTION, limit=3).hits:
            if hit.text is not None and hit.data not in text_of(hit.document):
                self._journal.wrong(f"a hit of {hit.document} has another text")
        with self._journal.lock:
            self._journal.calls["search"] += 1

    def _read(self, client: Client, _name: str, mine: list[str], dice: random.Random) -> None:
        if mine:
            document = dice.choice(mine)
            if client.get(document, collection=COLLECTION).data != text_of(document):
                self._journal.wrong(f"{document} read back as another text")

    def _delete(self, client: Client, _name: str, mine: list[str], dice: random.Random) -> None:
        if mine:
            document = mine.pop(dice.randrange(len(mine)))
            with self._journal.lock:  # from here on it may be gone
                self._journal.stored.discard(document)
                self._journal.deleted.add(document)
            try:
                client.delete(document, collection=COLLECTION)
            except DocumentUnknown:
                pass  # an attempt whose answer was lost deleted it
            except VersoError:
                with self._journal.lock:  # nobody can say whether it is gone
                    self._journal.deleted.discard(document)
                raise

"""Epochs of the ledger, the freeze for a backup, and the read-only state.

While the ledger is **frozen** no point is removed and no collection deleted, so every point that a
copy of the ledger names still exists when the vectors are copied after it. A freeze ends by itself
after a while: a backup that crashed must not keep garbage for ever.

An **epoch** is one life of a ledger. A ledger that was restored from a copy starts a new one, which
names the epoch it was copied from; sequence numbers are comparable within one epoch only.

A ledger that turns out to be older than what it has acknowledged becomes **read-only**: reads go
on, but no job that writes is accepted, nothing is committed and nothing removed, until a newer
ledger replaces it or an operator accepts this one as it is.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import cast

from verso_core.errors import CollectionBusy, LedgerMisnamed
from verso_ledger.codec import scalars
from verso_ledger.connection import connect, translated
from verso_ledger.keys import key
from verso_ledger.names import HOME
from verso_ledger.scripts import Scripts

_BEYOND = 1 << 20


@dataclass(frozen=True, slots=True)
class EpochState:
    """An epoch, the one it was copied from ('' for none), and the newest sequence number."""

    epoch: str
    before: str
    seq: int


@dataclass(frozen=True, slots=True)
class ReadOnly:
    """What a read-only ledger had reached and no longer holds; ``since``: Unix seconds."""

    epoch: str
    seq: int
    since: float


class Epoch:
    """Freezes a ledger while it is copied, and distinguishes its lives."""

    def __init__(self, scripts: Scripts) -> None:
        self._run = scripts.run
        self._redis = scripts.client

    @classmethod
    def from_url(cls, url: str) -> Epoch:
        """Connect to the ledger at ``redis://…``, ``unix://…`` or ``redis+sentinel://…``."""
        return cls(Scripts(connect(url)))

    def check_name(self, name: str) -> None:
        """Check that the ledger was named so before, or name it now.

        Only an empty ledger may become one beside the home ledger: collections that were made
        while it was alone have their names as own names, as those of the home ledger have.

        Raises:
            LedgerMisnamed: it has another name, as when two addresses were exchanged; or it was a
                platform's only ledger.
        """
        with translated():
            known = self._redis.get(key("named"))
            if known is None and name != HOME and self._redis.hlen(key("collections")):
                raise LedgerMisnamed(
                    f"expected an empty ledger as {name}, got one with collections"
                )
            self._redis.setnx(key("named"), name)
            found = scalars.text(cast("bytes", self._redis.get(key("named"))))
        if found != name:
            raise LedgerMisnamed(f"expected the ledger {name} at its address, got {found}")

    def close(self) -> None:
        """Close the connections."""
        self._redis.close()

    def freeze(self, owner: str, *, seconds: float) -> None:
        """Keep points from being removed from now on.

        Raises:
            CollectionBusy: another backup holds the freeze.
        """
        if not self._run("freeze", [owner, round(seconds * 1000), 0]):
            raise CollectionBusy("another backup is being taken of this ledger")

    def extend_freeze(self, owner: str, *, seconds: float) -> bool:
        """Extend a freeze; False where it has lapsed or was never this owner's."""
        return bool(self._run("freeze", [owner, round(seconds * 1000), 1]))

    def thaw(self, owner: str) -> None:
        """End this owner's freeze, if there is one."""
        self._run("freeze", [owner, 0, 0])

    def current(self) -> EpochState:
        """Return the ledger's epoch, started now if it had none, and its newest sequence number.

        With replicas, both are with them: a number that a failover may take back is not returned.

        Raises:
            LedgerUnavailable: too few replicas confirm.
        """
        return self._epoch(start=False)

    def start_new(self) -> EpochState:
        """Start a new epoch: this ledger is a copy that diverges from here."""
        return self._epoch(start=True)

    def make_read_only(self, reached: EpochState) -> None:
        """Stop all writes: this ledger had reached more than it holds."""
        self._run("make_read_only", [reached.epoch, reached.seq])

    def read_only(self) -> ReadOnly | None:
        """Return what the ledger had reached once, if it is read-only."""
        with translated():
            found = self._redis.hgetall(key("halted"))
        row = {scalars.text(name): scalars.text(value) for name, value in found.items()}
        return ReadOnly(row["epoch"], int(row["seq"]), int(row["since"]) / 1000) if row else None

    def accept_as_is(self) -> bool:
        """Let a read-only ledger take writes as it is, in a new epoch.

        Sequence numbers continue far beyond the last known one: more may have been used and lost.

        Returns:
            False where the ledger was not read-only.
        """
        return bool(self._run("accept_as_is", [secrets.token_hex(8), _BEYOND]))

    def _epoch(self, *, start: bool) -> EpochState:
        epoch, before, seq = self._run("epoch", [secrets.token_hex(8), int(start)])
        return EpochState(scalars.text(epoch), scalars.text(before), int(seq))

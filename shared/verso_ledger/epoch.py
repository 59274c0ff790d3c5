"""What keeps a copy of the stores whole: the freeze, and the ledger's epoch.

While the ledger is **frozen** no point is removed and no collection deleted, so every point that a
copy of the ledger names is still there when the vectors are copied after it. A freeze lapses by
itself: a backup that died must not keep garbage for ever.

An **epoch** is one life of a ledger. A ledger that was restored from a copy begins a new one, which
names the epoch it was copied from; sequence numbers are comparable within one epoch only.

A ledger that turns out to be older than what it has acknowledged is **halted**: reads go on, but
nothing is accepted that writes, nothing committed and nothing removed, until a newer ledger takes
its place or an operator trusts this one.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass

from verso_core.errors import CollectionBusy
from verso_ledger import codec
from verso_ledger.connection import translated
from verso_ledger.keys import key
from verso_ledger.steps import Steps
from verso_ledger.sync_client import connect

_BEYOND = 1 << 20


@dataclass(frozen=True, slots=True)
class Epoch:
    """An epoch, the one it was copied from ('' for none), and the newest sequence number."""

    epoch: str
    before: str
    seq: int


@dataclass(frozen=True, slots=True)
class Halt:
    """What a ledger had reached once and does not hold any more; ``since``: Unix seconds."""

    epoch: str
    seq: int
    since: float


class Guard(Steps):
    """Holds a ledger still while it is copied, and tells its lives apart.

    Every method raises LedgerUnavailable when Redis does not answer or refuses.
    """

    @classmethod
    def from_url(cls, url: str) -> Guard:
        """Connect to the ledger at ``redis://…`` or ``unix://…``."""
        return cls(connect(url))

    def close(self) -> None:
        """Close the connections."""
        self._redis.close()

    def freeze(self, owner: str, *, seconds: float) -> None:
        """Let no point be removed from now on.

        Raises:
            CollectionBusy: another backup holds the freeze.
        """
        if not self._run("freeze", [owner, round(seconds * 1000), 0]):
            raise CollectionBusy("another backup is being taken of this ledger")

    def hold(self, owner: str, *, seconds: float) -> bool:
        """Go on with a freeze; False where it has lapsed or was never this owner's."""
        return bool(self._run("freeze", [owner, round(seconds * 1000), 1]))

    def thaw(self, owner: str) -> None:
        """End this owner's freeze, if there is one."""
        self._run("freeze", [owner, 0, 0])

    def life(self) -> Epoch:
        """Return the ledger's epoch, begun now if it had none, and its newest sequence number."""
        return self._life(anew=False)

    def begin_epoch(self) -> Epoch:
        """Begin a new epoch: this ledger is a copy that goes its own way from here."""
        return self._life(anew=True)

    def halt(self, reached: Epoch) -> None:
        """Stop all writes: this ledger had reached more than it holds."""
        self._run("halt", [reached.epoch, reached.seq])

    def halted(self) -> Halt | None:
        """Return what the ledger had reached once, if it is halted."""
        with translated():
            found = self._redis.hgetall(key("halted"))
        row = {codec.text(name): codec.text(value) for name, value in found.items()}
        return Halt(row["epoch"], int(row["seq"]), int(row["since"]) / 1000) if row else None

    def trust(self) -> bool:
        """Go on with a halted ledger as it is, in a new epoch; False where it was not halted.

        Sequence numbers begin far beyond those that were lost, of which some may have been given
        out after the last one that is known.
        """
        return bool(self._run("trust", [secrets.token_hex(8), _BEYOND]))

    def _life(self, *, anew: bool) -> Epoch:
        epoch, before, seq = self._run("epoch", [secrets.token_hex(8), int(anew)])
        return Epoch(codec.text(epoch), codec.text(before), int(seq))

"""What keeps a copy of the stores whole: the freeze, and the ledger's epoch.

While the ledger is **frozen** no point is removed and no collection deleted, so every point that a
copy of the ledger names is still there when the vectors are copied after it. A freeze lapses by
itself: a backup that died must not keep garbage for ever.

An **epoch** is one life of a ledger. A ledger that was restored from a copy begins a new one, which
names the epoch it was copied from; sequence numbers are comparable within one epoch only.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass

from verso_core.errors import CollectionBusy
from verso_core.ledger import forms
from verso_core.ledger.steps import Steps
from verso_core.ledger.work import connect


@dataclass(frozen=True, slots=True)
class Life:
    """An epoch, the one it was copied from ('' for none), and the newest sequence number."""

    epoch: str
    before: str
    seq: int


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

    def life(self) -> Life:
        """Give the ledger's epoch, begun now if it had none, and its newest sequence number."""
        return self._life(anew=False)

    def begin_epoch(self) -> Life:
        """Begin a new epoch: this ledger is a copy that goes its own way from here."""
        return self._life(anew=True)

    def _life(self, *, anew: bool) -> Life:
        epoch, before, seq = self._run("epoch", [secrets.token_hex(8), int(anew)])
        return Life(forms.text(epoch), forms.text(before), int(seq))

"""What each of several ledgers has, for the parts of a platform that make blocking calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from verso_core.errors import CollectionBusy, CollectionUnknown, LedgerUnavailable
from verso_ledger.names import ledger_of
from verso_ledger.sync_client import Ledger


class LedgerIndex:
    """Finds jobs by their ids, and the ledger of a collection.

    Args:
        ledgers: by their names, the home ledger first.
    """

    def __init__(self, ledgers: Mapping[str, Ledger]) -> None:
        self._ledgers = ledgers

    def known(self, job_ids: Sequence[str]) -> set[str]:
        """Return those of some jobs that have not expired, or whose ledger is not configured here.

        Raises:
            LedgerUnavailable: a ledger does not answer.
        """
        by_ledger: dict[str, list[str]] = {}
        for job_id in job_ids:
            by_ledger.setdefault(ledger_of(job_id), []).append(job_id)
        found: set[str] = set()
        for name, own in by_ledger.items():
            ledger = self._ledgers.get(name)
            found |= set(own) if ledger is None else ledger.jobs.known(own)
        return found

    def ledger_of_collection(self, name: str) -> Ledger:
        """Return the ledger that has a collection.

        Raises:
            CollectionBusy: it is between two ledgers at this moment.
            CollectionUnknown: none has it.
            LedgerUnavailable: none that answers has it, and one does not answer.
        """
        for _ in range(2):  # it may come to one that was asked, and leave another that was not yet
            error: LedgerUnavailable | None = None
            moves = has_left = False
            for ledger in self._ledgers.values():
                try:
                    left = ledger.moves.has_left(name)
                    listed = ledger.documents.named(name) is not None
                except LedgerUnavailable as exc:
                    error = exc
                    continue
                if listed and not left:
                    return ledger
                moves = moves or listed
                has_left = has_left or left
            if error is not None:
                raise error
            if moves:
                raise CollectionBusy(f"{name!r} is being moved to another ledger")
            if not has_left:
                break
        raise CollectionUnknown(f"no collection {name!r}")

"""How far the ledger had come, remembered beside the vectors: a ledger that goes back is noticed.

A ledger can come back older than it was: an old volume, a replica that lagged, a file without its
tail. It would then give sequence numbers out again and know nothing of documents it has
acknowledged, and nothing in it would say so. So every worker keeps a **mark** in its data folder,
the epoch and the newest sequence number it has seen, written once a second where it has changed:

    DIR/ledger-mark.json   {"epoch", "seq", "open", "past"}, replaced whole, synced

A ledger below the mark, or of an epoch that neither is the mark's nor follows on it, is **halted**
(:mod:`verso_ledger.epoch`). What a mark cannot see is a loss of less than its last second.

The mark also tells how the last run ended: a worker that stops in good order closes it. One that
finds an open mark has had an unclean end, and has what was written in the hour before it read
again before anything else: ``past`` tells what the sequence number was then.

``python -m verso_worker.jobs.ledger_watch [--trust]`` tells how a ledger stands, and goes on with
a halted one;
on one machine ``verso ledger`` does the same.
"""

from __future__ import annotations

import contextlib
import json
import logging
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from verso_core import files, telemetry
from verso_core.errors import LedgerUnavailable, VersoError
from verso_ledger.epoch import Epoch, Guard
from verso_worker.settings import WorkerSettings

MARK_NAME = "ledger-mark.json"
RECENT_S = 3600.0
"""How far back an unclean end is looked into, seconds."""

_EVERY_S = 1.0
_PAST_S = 300.0
_log = logging.getLogger(__name__)


class Watched(Protocol):
    """What the mark needs of the ledger."""

    def life(self) -> Epoch:
        """Return its epoch and newest sequence number."""

    def halt(self, reached: Epoch) -> None:
        """Stop all writes: it had reached more than it holds."""


@dataclass(frozen=True, slots=True)
class Marked:
    """What a mark says: how far the ledger had come, and whether a worker has not closed it.

    ``past``: Unix seconds and the sequence number at that time, oldest first; the first is the
    newest of those that are older than :data:`RECENT_S`.
    """

    life: Epoch
    open: bool = True
    past: tuple[tuple[float, int], ...] = ()

    def later(self, life: Epoch, now: float) -> Marked:
        """Return the mark of a later time."""
        past = self.past
        if not past or now - past[-1][0] >= _PAST_S:
            past = (*past, (now, life.seq))
        while len(past) > 1 and now - past[1][0] >= RECENT_S:
            past = past[1:]
        return Marked(life, True, past)


class HighWaterMark:
    """Keeps a folder's mark, and halts a ledger that is below it.

    Args:
        folder: the worker's data folder.
        ledger: the ledger's guard.
        unclean: told the sequence number of an hour before the last run's unclean end.
        clock: Unix seconds.
    """

    def __init__(
        self,
        folder: Path,
        ledger: Watched,
        *,
        unclean: Callable[[int], None] = lambda _: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._path = folder / MARK_NAME
        self._ledger = ledger
        self._unclean = unclean
        self._clock = clock
        self._mark: Marked | None = None
        self._said = False
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="mark", daemon=True)

    def look(self) -> bool:
        """Compare the ledger with the mark, and move the mark on; False where it was halted.

        Raises:
            LedgerUnavailable: it does not answer.
        """
        now, marked = self._ledger.life(), self.read()
        known = None if marked is None else marked.life
        if marked is None or known is None or follows(now, known):
            if marked is not None and marked.open and self._mark is None and marked.past:
                _log.warning("the last run ended uncleanly: what it wrote last is read again")
                self._unclean(marked.past[0][1])
            later = (marked or Marked(now)).later(now, self._clock())
            if later != marked:
                self._write(later)
            self._mark = later
            self._said = False
            return True
        self._ledger.halt(known)
        if not self._said:
            _log.error(
                "the ledger is older than what it has acknowledged: nothing is written",
                extra={"code": "ledger_behind", "seq": now.seq, "reached": known.seq},
            )
        self._said = True
        return False

    def read(self) -> Marked | None:
        """Return the mark; None where there is none, or none that can be read."""
        try:
            row = json.loads(self._path.read_bytes())
            past = tuple((float(when), int(seq)) for when, seq in row["past"])
            return Marked(Epoch(str(row["epoch"]), "", int(row["seq"])), bool(row["open"]), past)
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError, OSError) as error:
            _log.warning("the mark cannot be read: %s", type(error).__name__)
            return None

    def start(self) -> None:
        """Look once a second from now on."""
        self._thread.start()

    def stop(self) -> None:
        """Stop looking, and close the mark."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()
        if self._mark is not None:
            with contextlib.suppress(OSError):
                self._write(replace(self._mark, open=False))

    def _run(self) -> None:
        while not self._over.wait(_EVERY_S):
            try:
                self.look()
            except LedgerUnavailable as error:
                _log.debug("no look at the ledger: %s", error.detail)
            except OSError as error:  # the mark stays where it was, and is moved on later
                _log.warning("the mark is not written: %s", error.strerror)

    def _write(self, mark: Marked) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        row = {"epoch": mark.life.epoch, "seq": mark.life.seq, "open": mark.open, "past": mark.past}
        files.replace(self._path, (json.dumps(row) + "\n").encode())


def follows(now: Epoch, known: Epoch) -> bool:
    """Whether a ledger may stand where it does, after it was seen at ``known``.

    Within an epoch numbers only grow. A new epoch that names the known one was begun on purpose.
    """
    return now.seq >= known.seq if now.epoch == known.epoch else now.before == known.epoch


def describe(guard: Guard, *, trust: bool) -> str:
    """Tell in a line how a ledger stands; with ``trust`` go on with a halted one first."""
    trusted = trust and guard.trust()
    life, halt = guard.life(), guard.halted()
    if halt is not None:
        return (
            f"halted: it is at {life.seq:,} of epoch {life.epoch}, but had reached {halt.seq:,} of "
            f"epoch {halt.epoch}; nothing is written"
        )
    how = "goes on in a new epoch" if trusted else "takes writes"
    return f"{how}: at {life.seq:,} of epoch {life.epoch}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Return how the ledger of this worker's settings stands; status 1 where it is halted."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    if given not in ([], ["--trust"]):
        print("usage: python -m verso_worker.jobs.ledger_watch [--trust]", file=sys.stderr)  # noqa: T201
        return 2
    settings = WorkerSettings()
    telemetry.configure("mark", level=settings.log_level)
    try:
        with closing(Guard.from_url(settings.redis_url)) as guard:
            _log.info(describe(guard, trust=bool(given)))
            return int(guard.halted() is not None)
    except VersoError as error:
        _log.error("cannot tell: %s", error.detail, extra={"code": error.code})
        return 1


if __name__ == "__main__":
    sys.exit(main())

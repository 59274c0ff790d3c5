"""The high-water mark: how far the ledger had come, kept beside the vectors.

A ledger can be older after a restart than before: an old volume, a replica that lagged, a file
without its end. It would then assign sequence numbers a second time and lack documents that it has
acknowledged, without any sign of it. So every worker keeps a **mark** in its data folder: the epoch
and the newest sequence number it has seen, written once a second if they have changed.

    DIR/ledger-mark.json   {"epoch", "seq", "open", "past"}, replaced whole, synced

A ledger below the mark, or of an epoch that neither is the mark's nor follows it, is made
**read-only** (:mod:`verso_ledger.epoch`). A loss of less than the last second goes unnoticed.

The mark also says how the last run ended: a worker that stops in good order closes it. A worker
that finds an open mark has had an unclean end, and requests a scrub of what was written in the hour
before; ``past`` holds the sequence number of that time.

``python -m verso_worker.jobs.ledger_watch [--trust]`` reports the state of a ledger, and with
``--trust`` accepts a read-only ledger as it is. On one machine ``verso ledger`` does the same.
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

from verso_core import files, telemetry
from verso_core.errors import LedgerUnavailable, VersoError
from verso_core.settings import HOME_LEDGER
from verso_ledger.epoch import Epoch, EpochState
from verso_worker.settings import WorkerSettings

MARK_NAME = "ledger-mark.json"
RECENT_S = 3600.0
"""How much of the time before an unclean end is scrubbed, seconds."""


def mark_name(ledger: str) -> str:
    """Return the name of the file that holds the mark of a ledger."""
    return MARK_NAME if ledger == HOME_LEDGER else f"ledger-mark-{ledger}.json"


_EVERY_S = 1.0
_PAST_S = 300.0
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Mark:
    """How far the ledger had come, and whether the worker that wrote this has not closed it.

    ``past``: Unix seconds and the sequence number at that time, oldest first; the first is the
    newest of those that are older than :data:`RECENT_S`.
    """

    state: EpochState
    open: bool = True
    past: tuple[tuple[float, int], ...] = ()

    def later(self, state: EpochState, now: float) -> Mark:
        """Return the mark of a later time."""
        past = self.past
        if not past or now - past[-1][0] >= _PAST_S:
            past = (*past, (now, state.seq))
        while len(past) > 1 and now - past[1][0] >= RECENT_S:
            past = past[1:]
        return Mark(state, True, past)


class HighWaterMark:
    """Keeps a folder's mark, and makes a ledger read-only that is below it.

    Args:
        folder: the worker's data folder.
        ledger: the ledger's epoch.
        name: of the ledger; that of the home ledger is in no file name.
        on_unclean_end: called with the sequence number of an hour before the last run's unclean
            end.
        clock: Unix seconds.
    """

    def __init__(
        self,
        folder: Path,
        ledger: Epoch,
        *,
        name: str = HOME_LEDGER,
        on_unclean_end: Callable[[int], None] = lambda _: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._path = folder / mark_name(name)
        self._ledger = ledger
        self._on_unclean_end = on_unclean_end
        self._clock = clock
        self._mark: Mark | None = None
        self._logged = False
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="mark", daemon=True)

    def check(self) -> bool:
        """Compare the ledger with the mark and advance the mark.

        Returns:
            False if the ledger was made read-only.

        Raises:
            LedgerUnavailable: it does not answer.
            OSError: the mark cannot be read or written.
        """
        now, mark = self._ledger.current(), self.read()
        if mark is not None and not follows(now, mark.state):
            self._make_read_only(now, mark.state)
            return False
        if mark is not None and mark.open and self._mark is None and mark.past:
            _log.warning("unclean end of the last run: its last writes are scrubbed first")
            self._on_unclean_end(mark.past[0][1])
        later = (mark or Mark(now)).later(now, self._clock())
        if later != mark:
            self._write(later)
        self._mark = later
        self._logged = False
        return True

    def read(self) -> Mark | None:
        """Return the mark; None if there is none, or what is written is none.

        Raises:
            OSError: it cannot be read, so nobody knows whether the ledger has gone back.
        """
        try:
            row = json.loads(self._path.read_bytes())
            past = tuple((float(when), int(seq)) for when, seq in row["past"])
            return Mark(EpochState(str(row["epoch"]), "", int(row["seq"])), bool(row["open"]), past)
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as error:
            _log.warning("high-water mark unreadable: %s", type(error).__name__)
            return None

    def start(self) -> None:
        """Check once a second from now on."""
        self._thread.start()

    def stop(self) -> None:
        """Stop checking, and close the mark."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        if self._mark is not None:
            with contextlib.suppress(OSError):
                self._write(replace(self._mark, open=False))

    def _make_read_only(self, now: EpochState, reached: EpochState) -> None:
        self._ledger.make_read_only(reached)
        if not self._logged:
            _log.error(
                "the ledger is older than what it has acknowledged: nothing is written",
                extra={"code": "ledger_behind", "seq": now.seq, "reached": reached.seq},
            )
        self._logged = True

    def _run(self) -> None:
        while not self._stop.wait(_EVERY_S):
            try:
                self.check()
            except LedgerUnavailable as error:
                _log.debug("high-water mark not checked: %s", error.detail)
            except OSError as error:  # the mark stays as it is, and is advanced later
                _log.warning("high-water mark not kept: %s", error.strerror)

    def _write(self, mark: Mark) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        state = mark.state
        row = {"epoch": state.epoch, "seq": state.seq, "open": mark.open, "past": mark.past}
        files.replace(self._path, (json.dumps(row) + "\n").encode())


def follows(now: EpochState, known: EpochState) -> bool:
    """Whether a ledger's state is legitimate after it was seen at ``known``.

    Within an epoch numbers only grow. A new epoch that names the known one was started on purpose.
    """
    return now.seq >= known.seq if now.epoch == known.epoch else now.before == known.epoch


def describe(epoch: Epoch, *, accept: bool) -> str:
    """Return a line on the state of a ledger; with ``accept`` accept a read-only one first."""
    accepted = accept and epoch.accept_as_is()
    now, reached = epoch.current(), epoch.read_only()
    if reached is not None:
        return (
            f"read-only: it is at {now.seq:,} of epoch {now.epoch}, but had reached "
            f"{reached.seq:,} of epoch {reached.epoch}; nothing is written"
        )
    how = "continues in a new epoch" if accepted else "takes writes"
    return f"{how}: at {now.seq:,} of epoch {now.epoch}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Log the state of each ledger of this worker's settings; return 1 if one is read-only."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    if given not in ([], ["--trust"]):
        print("usage: python -m verso_worker.jobs.ledger_watch [--trust]", file=sys.stderr)  # noqa: T201
        return 2
    settings = WorkerSettings()
    telemetry.configure("mark", level=settings.log_level)
    try:
        behind = 0
        for address in settings.ledger_addresses:
            with closing(Epoch.from_url(address.url)) as epoch:
                about = {"ledger": address.name}
                _log.info(describe(epoch, accept=bool(given)), extra=about)
                behind |= int(epoch.read_only() is not None)
        return behind
    except VersoError as error:
        _log.error("ledger unavailable: %s", error.detail, extra={"code": error.code})
        return 1


if __name__ == "__main__":
    sys.exit(main())

"""What Redis may answer instead of the truth, said in the words of the error tree."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from redis import exceptions

from verso_core.errors import LedgerUnavailable


@contextmanager
def translated() -> Iterator[None]:
    """Turn every refusal of Redis into LedgerUnavailable.

    A refused write (disk full, out of memory, read-only replica) and a lost connection are the same
    to the caller: nothing was acknowledged, and trying again later may help. A fault inside a
    script is ours, helps nobody who tries again, and passes as it is.

    Raises:
        LedgerUnavailable: Redis did not answer, or would not do what was asked.
    """
    try:
        yield
    except exceptions.RedisError as exc:
        if str(exc).startswith("user_script"):
            raise
        raise LedgerUnavailable(f"the ledger did not answer: {type(exc).__name__}") from exc
    except RuntimeError as exc:
        # uvloop, not asyncio, says so of a connection that the server closed a moment ago.
        if "closed" not in str(exc):
            raise
        raise LedgerUnavailable("the ledger did not answer: the connection is closed") from exc

"""Read plain values of Redis: strings, counters, times and errors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from verso_core.errors import CLASSES, ErrorBody, VersoError

Arg = bytes | str | int | float


def text(value: Any) -> str:
    """Read a string of Redis."""
    return value.decode() if isinstance(value, bytes) else str(value)


def has_moved(state: bytes | None) -> bool:
    """Whether a collection has left a ledger, by what the ledger keeps of it under ``shut``."""
    return state is not None and state[1:2] != b" "


def is_fenced(state: bytes | None, *, now_s: int) -> bool:
    """Whether writes of a collection wait, as it is about to leave, by the same value."""
    return state is not None and not has_moved(state) and int(state[2:]) > now_s * 1000


def counters(rows: Mapping[bytes, bytes]) -> dict[str, int]:
    """Read the whole numbers of a hash; other values are left out."""
    return {text(k): int(v) for k, v in rows.items() if v.lstrip(b"-").isdigit()}


def pairs(reply: Iterable[Any]) -> dict[str, int]:
    """Read a flat reply of names and numbers."""
    flat = list(reply)
    return {text(k): int(v) for k, v in zip(flat[::2], flat[1::2], strict=True)}


def server_seconds(reply: Sequence[Any]) -> float:
    """Read the reply of TIME as Unix seconds."""
    return int(reply[0]) + int(reply[1]) / 1e6


def seconds(ms: str | None) -> float | None:
    """Read stored milliseconds as Unix seconds; None where there are none."""
    value = int(ms or 0)
    return value / 1000 if value else None


def error(code: str, detail: str) -> ErrorBody:
    """Return an error as it was stored."""
    known = CLASSES.get(code, VersoError)
    return {"code": code, "detail": detail, "retryable": known.retryable}

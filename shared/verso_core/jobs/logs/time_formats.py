"""How the times of plain lines are written: a sender may say it where it is not found.

``auto`` looks for the usual ones, ``none`` for nothing: lines then have the time of their arrival.
A name stands for the patterns of :data:`NAMED`; anything else is a pattern itself, with the
directives of :mod:`verso_codecs.logs.times`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from verso_core.errors import RequestInvalid

AUTO, NONE = "auto", "none"

NAMED: Mapping[str, tuple[str, ...]] = {
    "iso": ("%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S", "%Y/%m/%d %H:%M:%S"),
    "syslog": ("%b %d %H:%M:%S",),
    "apache": ("%d/%b/%Y:%H:%M:%S",),
    "epoch": ("%s",),
}

MAX_BYTES = 64
"""Longest pattern."""

_DIRECTIVES = frozenset("YymbdaHMSfzs%")
_DIRECTIVE = re.compile("%(.?)", re.DOTALL)


def patterns(time_format: str) -> tuple[str, ...]:
    """Return the patterns that a format means; none for ``auto`` and ``none``."""
    if time_format in (AUTO, NONE):
        return ()
    return NAMED.get(time_format, (time_format,))


def check(time_format: str) -> None:
    """Check a format that a sender names.

    Raises:
        RequestInvalid: it is neither a name nor a pattern that names a moment.
    """
    if time_format in (AUTO, NONE, *NAMED):
        return
    found = _DIRECTIVE.findall(time_format)
    unknown = next((one for one in found if one not in _DIRECTIVES or not one), None)
    if not found:
        names = ", ".join((AUTO, NONE, *NAMED))
        raise RequestInvalid(f"/time_format: expected {names}, or a pattern such as %d.%m.%Y %H:%M")
    if unknown is not None:
        raise RequestInvalid(f"/time_format: unknown directive %{unknown!a}"[:80])
    dated = {"d", "H", "M"} <= set(found) and not {"m", "b"}.isdisjoint(found)
    if not (dated or "s" in found):
        raise RequestInvalid("/time_format: expected month, day, hour and minute, or %s")
    if len(time_format.encode()) > MAX_BYTES:
        raise RequestInvalid(f"/time_format: expected <= {MAX_BYTES} bytes")

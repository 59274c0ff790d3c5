r"""Times in log lines.

    iso      2026-11-22T20:15:00.123Z, 2026-11-22 20:15:00,123, 2026/11/22 20:15:00+01:00
    syslog   Nov 22 20:15:00 (RFC 3164); the latest year in which it is not later than the file's
             last change, or than now for a pipe
    apache   [22/Nov/2026:20:15:00 +0100]
    epoch    1795262400, 1795262400.123 or 1795262400123 at the start of a line
    %d.%m.%Y %H:%M:%S   a pattern of ``strptime`` with the directives of ``_DIRECTIVES``

1. A time is looked for in the first bytes of a line.
2. Of a stream's formats one is chosen once: that of the first line that has a time.
3. A line without a time, such as the second of a stack trace, has that of the line before it.

A time without an offset is UTC.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta

from verso_core.errors import RequestInvalid

_HEAD_BYTES = 192
_MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
_MONTH = "|".join(_MONTHS)
_CLOCK = r"(?P<H>\d\d):(?P<M>\d\d):(?P<S>\d\d)(?:[.,](?P<f>\d{1,9}))?"
_PATTERNS = {
    "iso": re.compile(
        r"(?<!\d)(?P<Y>\d{4})[-/](?P<m>\d\d)[-/](?P<d>\d\d)[T ]"
        + _CLOCK
        + r" ?(?P<z>Z|[+-]\d\d:?\d\d)?",
        re.ASCII,
    ),
    "apache": re.compile(
        rf"\[(?P<d>\d\d)/(?P<b>{_MONTH})/(?P<Y>\d{{4}}):{_CLOCK} (?P<z>[+-]\d{{4}})\]", re.ASCII
    ),
    "syslog": re.compile(rf"\b(?P<b>{_MONTH}) +(?P<d>\d{{1,2}}) {_CLOCK}(?!\d)", re.ASCII),
    "epoch": re.compile(
        r"^\W{0,2}(?:(?P<ms>[12]\d{12})|(?P<s>[12]\d{9}(?:\.\d{1,9})?))(?!\d)", re.ASCII
    ),
}
_DIRECTIVES = {
    "Y": r"\d{4}", "m": r"\d{1,2}", "d": r"\d{1,2}", "H": r"\d{1,2}", "M": r"\d{1,2}",
    "S": r"\d{1,2}", "f": r"\d{1,6}", "y": r"\d{2}", "j": r"\d{1,3}", "b": r"[A-Za-z]{3}",
    "B": r"[A-Za-z]{3,9}", "I": r"\d{1,2}", "p": r"[AaPp][Mm]", "z": r"(?:Z|[+-]\d\d:?\d\d)",
    "%": "%",
}  # fmt: skip

_LEAP_YEAR = 2000

FORMATS = ("auto", *_PATTERNS)
_Find = Callable[[str], float | None]


class LineTimes:
    """Finds the times of one stream's lines, in order."""

    def __init__(self, how: str = "auto", *, until: Callable[[], datetime]) -> None:
        """Prepare for a stream.

        Args:
            how: one of ``FORMATS``, or a pattern of ``strptime``.
            until: returns when the line at hand was written at the latest, for formats without a
                year: a pipe may stay open for months.

        Raises:
            RequestInvalid: there is no such format.
        """
        self._until = until
        self._find: _Find | None = None
        self._last: float | None = None
        if how != "auto":
            self._find = self._by_pattern(how) if "%" in how else self._by_name(how)

    def of(self, line: bytes) -> float | None:
        """Return a line's time, Unix seconds; None before the first line that has one."""
        head = line[:_HEAD_BYTES].decode("ascii", "replace")
        found = self._choose(head) if self._find is None else self._find(head)
        if found is not None:
            self._last = found
        return self._last

    def _choose(self, head: str) -> float | None:
        """Return the time that stands first in a line, and keep to its format from now on."""
        places = {
            name: match.start() for name in _PATTERNS if (match := _PATTERNS[name].search(head))
        }
        for name in sorted(places, key=places.__getitem__):
            find = self._by_name(name)
            if (found := find(head)) is not None:
                self._find = find
                return found
        return None

    def _by_name(self, name: str) -> _Find:
        if name not in _PATTERNS:
            known = ", ".join(FORMATS)
            raise RequestInvalid(f"expected a time format of {known} or a pattern, got {name!a}")
        pattern = _PATTERNS[name]

        def find(head: str) -> float | None:
            match = pattern.search(head)
            return None if match is None else self._seconds(match.groupdict())

        return find

    def _seconds(self, parts: Mapping[str, str | None]) -> float | None:
        if parts.get("ms"):
            return int(parts["ms"] or "") / 1000
        if parts.get("s"):
            return float(parts["s"] or "")
        month = _MONTHS.index(name) + 1 if (name := parts.get("b")) else int(parts.get("m") or 0)
        year = int(parts.get("Y") or 0)
        try:
            zone = datetime.strptime((parts.get("z") or "Z").replace(":", ""), "%z").tzinfo
            time = datetime(
                year or _LEAP_YEAR,
                month,
                int(parts["d"] or 0),
                int(parts["H"] or 0),
                int(parts["M"] or 0),
                int(parts["S"] or 0),
                int((parts.get("f") or "").ljust(6, "0")[:6]),
                tzinfo=zone,
            )
        except ValueError:  # the 31st of June, or 25 o'clock
            return None
        return (time if year else self._in_latest_year(time)).timestamp()

    def _in_latest_year(self, time: datetime) -> datetime:
        """Return a time in the latest year in which it is not after the line was written."""
        latest = self._until() + timedelta(days=1)  # clocks differ, and zones
        for year in range(latest.year, latest.year - 9, -1):  # the 29th of February
            try:
                moved = time.replace(year=year)
            except ValueError:
                continue
            if moved <= latest:
                break
        return moved

    def _by_pattern(self, pattern: str) -> _Find:
        searched = re.compile(_expression(pattern), re.ASCII)
        dated = "%Y" in pattern or "%y" in pattern
        ending = ("", "") if dated else (f" {_LEAP_YEAR}", " %Y")  # the 29th of February is read

        def find(head: str) -> float | None:
            match = searched.search(head)
            if match is None:
                return None
            try:
                time = datetime.strptime(  # noqa: DTZ007 - the zone is added below
                    match[0] + ending[0], pattern + ending[1]
                )
            except ValueError:
                return None
            time = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
            return (time if dated else self._in_latest_year(time)).timestamp()

        return find


def _expression(pattern: str) -> str:
    """Return the regular expression of what a pattern of strptime reads.

    Raises:
        RequestInvalid: the pattern has a directive that is not known.
    """
    parts = re.split(r"%(.)", pattern)
    literals, directives = parts[::2], parts[1::2]
    if any("%" in literal for literal in literals):
        raise RequestInvalid(f"expected a directive after each %, got {pattern!a}")
    for directive in directives:
        if directive not in _DIRECTIVES:
            known = " ".join(f"%{name}" for name in _DIRECTIVES)
            raise RequestInvalid(f"expected the directives {known}, got %{directive}")
    known_parts = [_DIRECTIVES[directive] for directive in directives] + [""]
    return "".join(
        re.escape(literal) + part for literal, part in zip(literals, known_parts, strict=True)
    )

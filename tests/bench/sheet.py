"""The report of a bench: a table for people, then one JSON line for machines.

The JSON line names the machine, the versions, the command and the date, so that a figure in a
document can be traced to the run it came from.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import platform
import shlex
import sys
from collections.abc import Iterable, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from verso_core import DISTRIBUTION

_VERSIONS = (
    *(
        DISTRIBUTION,
        "onnxruntime",
        "numpy",
        "numba",
        "tokenizers",
        "qdrant-edge-py",
        "tantivy",
        "celery",
    ),
)


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Print a table; the first column is text, the others are numbers."""
    shown = Table(title=title, title_justify="left")
    for number, column in enumerate(columns):
        shown.add_column(column, justify="left" if number == 0 else "right", no_wrap=True)
    for row in rows:
        shown.add_row(*(_cell(value) for value in row))
    Console(width=200, highlight=False).print(shown)


class Sheet:
    """One run of a bench, from before its first step.

    The load average is taken then: above zero it says that something else was running, and that the
    figures are too low.
    """

    def __init__(self, bench: str) -> None:
        self._bench = bench
        self._load = os.getloadavg()[0]

    def finish(self, result: dict[str, Any]) -> None:
        """Print the closing JSON line."""
        line = {
            "bench": self._bench,
            **_rounded(result),
            "machine": machine() | {"load_before": round(self._load, 2)},
            "versions": {name: _version(name) for name in _VERSIONS}
            | {"python": sys.version.split()[0]},
            "command": shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]]),
            "date": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        }
        print(json.dumps(line))


def _rounded(value: Any) -> Any:
    """Keep five significant digits: more would only be noise."""
    match value:
        case float():
            return float(f"{value:.5g}")
        case dict():
            return {key: _rounded(one) for key, one in value.items()}
        case list():
            return [_rounded(one) for one in value]
        case _:
            return value


def machine() -> dict[str, Any]:
    """Describe where this runs."""
    return {
        "cpu": _cpu(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "system": platform.platform(terse=True),
    }


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.1f}" if abs(value) >= 10 else f"{value:.2f}"
    return f"{value:,}" if isinstance(value, int) else str(value)

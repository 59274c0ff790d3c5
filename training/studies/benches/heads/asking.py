"""What the benches of heads share: replies that are kept, figures with intervals, a threshold."""

from __future__ import annotations

import argparse
import json
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from verso_training.heads import signals
from verso_training.heads.signals import Interval

T = TypeVar("T")
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Rows = NDArray[np.int64]
_AT_ONCE = 4
"""Requests at a time: enough that the engine has work while the gateway reads the next one."""


class Replies:
    """Replies by name, in a file of JSON lines: an interrupted run goes on where it was.

    Args:
        path: the file; made if it does not exist. None keeps nothing.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._known: dict[str, Any] = {}
        if path is not None and path.exists():
            for line in path.read_text(encoding="utf-8").splitlines():
                self._known.update(json.loads(line))

    def all(self, asked: Sequence[T], *, name: Callable[[T], str], ask: Callable[[T], Any]) -> Any:
        """Return the reply to each request, in their order; a known one is not asked for."""

        def one(request: T) -> Any:
            key = name(request)
            if key not in self._known:
                reply = ask(request)
                with self._lock:
                    self._known[key] = reply
                    if self._path is not None:
                        with self._path.open("a", encoding="utf-8") as file:
                            file.write(json.dumps({key: reply}) + "\n")
            return self._known[key]

        with ThreadPoolExecutor(_AT_ONCE) as pool:
            return list(pool.map(one, asked))


def interval(measure: Callable[[Rows], float], groups: Sequence[object]) -> Interval:
    """Return a figure with its 95 % bootstrap interval, drawn by groups of rows.

    Args:
        measure: returns the figure of these rows.
        groups: what each row belongs to, such as its paragraph: rows of one group are drawn
            together, as they are right or wrong together.
    """
    number = {group: at for at, group in enumerate(dict.fromkeys(groups))}
    own: list[list[int]] = [[] for _ in number]
    for row, group in enumerate(groups):
        own[number[group]].append(row)
    rows = [np.array(one, np.int64) for one in own]
    return signals.bootstrap(
        lambda drawn: measure(np.concatenate([rows[at] for at in drawn])), len(rows)
    )


def shown(found: Interval) -> str:
    """Show a figure with its interval."""
    return f"{found.value:.1f} [{found.low:.1f}, {found.high:.1f}]"


def listed(found: Interval) -> list[float]:
    """Return a figure and the ends of its interval, for machines."""
    return [found.value, found.low, found.high]


def least_threshold(values: Floats, right: Flags, *, precision: float) -> float | None:
    """Return the least value so that of those at or above it this share is right.

    None where no value does.
    """
    order = np.argsort(-values, kind="stable")
    shares = np.cumsum(right[order]) / np.arange(1, len(order) + 1)
    ranked = values[order]
    # a threshold takes all rows of one value or none of them
    last = np.append(ranked[1:] < ranked[:-1], True)
    good = np.flatnonzero((shares >= precision) & last)
    return float(ranked[good[-1]]) if len(good) else None


def best_cut(values: Floats, right: Flags) -> float:
    """Return the value from which on "yes" is right most often."""
    order = np.argsort(-values, kind="stable")
    ranked, truth = values[order], right[order]
    correct = np.cumsum(truth) + (~truth).sum() - np.cumsum(~truth)
    last = np.append(ranked[1:] < ranked[:-1], True)
    at = int(np.where(last, correct, -1).argmax())
    return float(ranked[at])


def parser_of(description: str | None) -> argparse.ArgumentParser:
    """Return a parser of the options that all benches of heads have."""
    parser = argparse.ArgumentParser(description=description)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--data", type=Path, required=True, help="folder of the public data")
    parser.add_argument("--url", default="http://127.0.0.1:8080", help="of the platform")
    parser.add_argument("--replies", type=Path, help="file that keeps replies")
    return parser

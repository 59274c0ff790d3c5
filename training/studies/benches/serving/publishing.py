"""What the benches of publication share: artifacts of one space, their fates, the command line."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import sheet
from variants import ARTIFACT, make_variant


class Fate(NamedTuple):
    """Whether a published artifact is corrupt or rolled back; otherwise it takes over."""

    corrupt: bool
    rolled_back: bool


def fate(number: int) -> Fate:
    """Return the fate of an artifact: of ten, one is corrupt and one is rolled back."""
    return Fate(number % 10 == 4, number % 10 == 7)


def variant(source: Path, models: Path, number: int, *, spoil: bool = False) -> str:
    """Publish an artifact of the same space whose codec has an id of its own, or a spoilt one."""
    folder = make_variant(models / f"v{number}", number, source=source)
    if spoil:
        with (folder / "decoder.onnx").open("r+b") as graph:
            graph.seek(5000)
            graph.write(b"\xff" * 64)
    return folder.name


def run_and_print(
    bench: str,
    run: Callable[[Path, argparse.Namespace], dict[str, Any]],
    *,
    title: str,
    publishes: int,
    callers: int,
) -> None:
    """Read the command line, run a bench in a folder of its own and print its results.

    Args:
        bench: Name of the bench.
        run: The measurement.
        title: Of the table.
        publishes: Default of the option.
        callers: Default of the option.
    """
    question = (sys.modules["__main__"].__doc__ or "").partition("\n")[0]
    parser = argparse.ArgumentParser(description=question)
    parser.add_argument("--artifact", type=Path, default=ARTIFACT)
    parser.add_argument("--publishes", type=int, default=publishes)
    parser.add_argument("--callers", type=int, default=callers)
    arguments = parser.parse_args()
    paper = sheet.Sheet(bench)
    with tempfile.TemporaryDirectory(prefix="verso-bench-", ignore_cleanup_errors=True) as name:
        result = run(Path(name), arguments)
    shown = [[key, value] for key, value in result.items() if not isinstance(value, dict)]
    sheet.table(title, ["", "value"], shown)
    paper.finish(result)

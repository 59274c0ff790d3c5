"""Every `verso` command that a page shows is one that there is, with options that it has."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from verso_client.cli.app import add_plugins, app

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
_BLOCK = re.compile(r"^```(?:sh|console)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_NEXT = re.compile(r"\s\|\s|;|&&|\|\|")


def commands(page: Path) -> Iterator[str]:
    """Yield what stands behind `verso` in the page's blocks, a command each."""
    for block in _BLOCK.findall(page.read_text(encoding="utf-8")):
        for line in block.replace("\\\n", " ").splitlines():
            for part in _NEXT.split(line):
                if part.strip().startswith("verso "):
                    yield part.strip().removeprefix("verso ")


@pytest.fixture(scope="module")
def verso() -> Any:
    """The command line with what every installed package adds to it."""
    add_plugins(app)
    return typer.main.get_command(app)


def parsed(command: Any, words: list[str]) -> None:
    """Parse as the command line does, down to the innermost command, and run nothing."""
    context = command.make_context("verso", words)
    while hasattr(command, "resolve_command"):
        rest = [*getattr(context, "_protected_args", ()), *context.args]
        name, command, rest = command.resolve_command(context, rest)
        context = command.make_context(name, rest, parent=context)


def test_the_commands_of_the_pages_are_those_there_are(verso: Any) -> None:
    told = [(page, one) for page in PAGES for one in commands(page)]
    assert len(told) > 60
    wrong = []
    for page, one in told:
        try:
            parsed(verso, shlex.split(one, comments=True))
        except Exception as error:  # noqa: BLE001 - the library's own, which it keeps to itself
            wrong.append(f"{page.relative_to(ROOT)}: verso {one}: {error}")
    assert wrong == []


@pytest.mark.parametrize("line", ["nothing", "classify --haed a b", "train head x --tsk answer"])
def test_a_command_that_there_is_not_is_found(verso: Any, line: str) -> None:
    with pytest.raises(Exception, match="No such"):
        parsed(verso, line.split())

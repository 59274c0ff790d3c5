"""The page that walks the path of one text names what there is, and few modules."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/explanation/a-request.md").read_text(encoding="utf-8")
PARENTS = ("shared", "services/gateway", "services/worker", "services/keeper")
NAMES = sorted(set(re.findall(r"`(verso_\w+(?:\.\w+)*)`", PAGE)))
SCRIPTS = sorted(set(re.findall(r"`(\w+\.lua)`", PAGE)))
ROOMS = 40  # what a newcomer opens in an afternoon


def module_of(name: str) -> tuple[Path, list[str]]:
    """Return the file of the longest part of a dotted name that is a module, and the rest."""
    parts = name.split(".")
    for size in range(len(parts), 0, -1):
        for parent in PARENTS:
            base = ROOT.joinpath(parent, *parts[:size])
            for path in (base.with_suffix(".py"), base / "__init__.py"):
                if path.is_file():
                    return path, parts[size:]
    raise AssertionError(f"{name} is no module")


def defines(body: list[ast.stmt], names: list[str]) -> bool:
    """Whether a module or class defines or imports a name, and what it defines the next one."""
    if not names:
        return True
    return any(
        (
            isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            and node.name == names[0]
            and defines(node.body, names[1:])
        )
        or (
            isinstance(node, ast.ImportFrom)
            and names[1:] == []
            and any((alias.asname or alias.name) == names[0] for alias in node.names)
        )
        for node in body
    )


@pytest.mark.parametrize("name", NAMES)
def test_what_the_page_names_exists(name: str) -> None:
    path, names = module_of(name)
    assert defines(ast.parse(path.read_text(encoding="utf-8")).body, names), name


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_scripts_that_the_page_names_exist(name: str) -> None:
    assert (ROOT / "shared/verso_ledger/lua" / name).is_file()


def test_the_path_leads_through_few_modules() -> None:
    assert len({module_of(name)[0] for name in NAMES} | set(SCRIPTS)) <= ROOMS

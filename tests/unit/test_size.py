"""The tree stays one that a person can hold in mind: folders, modules, functions, and all of it.

A ceiling may be raised: by the change that needs the room, which says what the lines are for. How
large the parts are, and why: ``docs/adr/0044-the-tree-is-as-large-as-what-it-does.md``.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from tests.unit.test_house import ROOT

PRODUCTION = {  # most lines of each, blank lines, comments and docstrings included
    "shared/verso_core": 10_960,  # contracts of logs and of statistics apart, artifacts, settings
    # with several ledgers: router, lists over all, placements, moves; large keys, identities and
    # positions are copied in pages; jobs of several ledgers as one; partitions by time; large jobs
    # that are sent again; numbers of many streams in one exchange; segments and counters of one
    # moment; reads of the collection that was seen
    "shared/verso_ledger": 9_300,
    # with two rules that blocks of lines are coded by, and times behind keys and levels
    "shared/verso_codecs": 9_450,
    # with answers of other servers, forked processes, addresses and keys that are none,
    # and scores that say the order of a head,
    # and arguments, inputs and outputs of commands that are of no use, answers of lines in parts,
    # ids that no document can have, and texts that would control a terminal
    "shared/verso_client": 9_890,
    # with moves, partitions of both kinds, protobuf that is counted before it is read, and changes
    # of documents that are found again by their key
    # and lists by time of partitions by time, each with a place of its own; large pushes in parts,
    # and reads without a job of collections that the caller may see,
    # and changes and deletes of collections that are found again by their key
    "services/gateway/verso_gateway": 18_100,
    # with cold storage that moves, ledgers that go back, and numbers that engines change,
    # errors that name settings as requests do, beginnings of texts that are cut as stored, and
    # records that say whose they are, and lists of lines that read those streams alone whose
    # lines come next, and canaries that keep what they have read,
    # and long texts that are grouped by bits,
    # and vectors of which files are lost, and texts in a frame, which share a
    # statement, and lists of many streams that read parts of segments, and objects that are
    # told from one another, and vectors that stay without their graph
    "services/worker/verso_worker": 34_130,
    "services/keeper/verso_keeper": 2_820,  # with moves and their metrics, and rollovers
    "services/standalone/verso_standalone": 2_500,
    # with thresholds of answers that hold where documents are drawn
    "training/verso_training": 11_700,
}
MODULES = 610  # with moves, cold storage of documents, texts told by shapes, and partitions
MODULES_OF_A_FOLDER = 20
LINES_OF_A_MODULE = 500
LINES_OF_A_FUNCTION = 60
"""Without its signature and its docstring, which routes and commands need for their options."""

CLIENTS = {  # a method for every operation; the second is generated from the first
    "shared/verso_client/async_client.py",
    "shared/verso_client/client.py",
}
SCANNERS = {  # one loop over the bytes of a line, whose steps share its position
    "shared/verso_codecs/logs/parsing.py: _parse_line",
}


@cache
def modules(package: str) -> list[Path]:
    """Return the modules of a package."""
    return sorted((ROOT / package).rglob("*.py"))


def every_module() -> Iterator[tuple[str, Path]]:
    """Yield the production modules, each with its name in the tree."""
    for package in PRODUCTION:
        for path in modules(package):
            yield str(path.relative_to(ROOT)), path


def lines(path: Path) -> int:
    """Return the number of a module's lines."""
    return len(path.read_text(encoding="utf-8").splitlines())


def functions(path: Path) -> Iterator[tuple[str, int]]:
    """Yield the functions of a module with the lines of their bodies, docstrings left out."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            documented = ast.get_docstring(node) is not None and len(node.body) > 1
            first = node.body[1 if documented else 0]
            yield node.name, (node.end_lineno or 0) - first.lineno + 1


@pytest.mark.parametrize("package", PRODUCTION)
def test_a_package_stays_below_its_ceiling(package: str) -> None:
    assert sum(map(lines, modules(package))) <= PRODUCTION[package]


def test_there_are_no_more_modules_than_the_ceiling() -> None:
    assert len(list(every_module())) <= MODULES


def test_no_folder_has_more_than_twenty_modules_side_by_side() -> None:
    beside = Counter(path.parent for _, path in every_module() if path.name != "__init__.py")
    assert {str(folder): n for folder, n in beside.items() if n > MODULES_OF_A_FOLDER} == {}


def test_no_module_is_longer_than_five_hundred_lines() -> None:
    long = {name: lines(path) for name, path in every_module() if name not in CLIENTS}
    assert {name: n for name, n in long.items() if n > LINES_OF_A_MODULE} == {}


def test_no_function_is_longer_than_sixty_lines() -> None:
    long = {
        f"{name}: {function}"
        for name, path in every_module()
        for function, length in functions(path)
        if length > LINES_OF_A_FUNCTION
    }
    assert long == SCANNERS

"""What the package of the contracts names is what type checkers take it for."""

from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path

import pytest

from verso_core import jobs

NAMES = [
    (node.module, one.name)
    for node in ast.walk(ast.parse(Path(jobs.__file__).read_text(encoding="utf-8")))
    if isinstance(node, ast.ImportFrom) and str(node.module).startswith("verso_core.jobs.")
    for one in node.names
]


@pytest.mark.parametrize(("module", "name"), NAMES)
def test_a_name_is_loaded_from_its_module(module: str, name: str) -> None:
    assert getattr(jobs, name) is getattr(import_module(module), name)


def test_another_name_is_an_error() -> None:
    assert len(NAMES) > 40
    unknown = "Nothing"
    with pytest.raises(AttributeError, match=f"no attribute '{unknown}'"):
        getattr(jobs, unknown)

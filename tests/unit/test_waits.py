"""No library's short limit of time and no borrowed port decides a test on a busy machine."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parents[1]
PARTS = ("chaos", "e2e", "integration", "support", "unit")
REQUESTS = {"delete", "get", "patch", "post", "put", "request", "stream", "Client", "AsyncClient"}


def sources() -> Iterator[tuple[str, ast.Module]]:
    """Yield the name and the tree of each module that `make test` runs."""
    for part in PARTS:
        for path in sorted((TESTS / part).rglob("*.py")):
            yield str(path.relative_to(TESTS)), ast.parse(path.read_text(encoding="utf-8"))


def requests(tree: ast.Module) -> Iterator[ast.Call]:
    """Yield the calls of httpx2 that send something, or make what does."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            module, name = node.func.value, node.func.attr
            if isinstance(module, ast.Name) and module.id == "httpx2" and name in REQUESTS:
                yield node


def test_every_request_says_how_long_it_waits() -> None:
    """By default it has five seconds, which a busy machine takes now and then."""
    silent = [
        f"{name}:{call.lineno}"
        for name, tree in sources()
        for call in requests(tree)
        if not {"timeout", "transport"} & {one.arg for one in call.keywords}
    ]
    assert silent == []


def test_no_port_is_one_that_the_system_has_for_connections() -> None:
    """Such a one may be another test's connection before it is listened on."""
    borrowed = [
        f"{name}:{node.lineno}"
        for name, tree in sources()
        for node in ast.walk(tree)
        if isinstance(node, ast.arg) and node.arg.startswith("unused_tcp_port")
    ]
    assert borrowed == []

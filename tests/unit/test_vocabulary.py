"""Words of the first versions that were retired do not come back.

A name in the code, a metric, a setting or a log line says the field's word (``docs/glossary.md``
holds the few words of our own). Words are compared whole: ``heartbeat`` is not ``heart``,
``handle`` is not ``hand``, ``pipeline`` is not ``line``. What is stored keeps its bytes, so the
names of ledger keys and stored fields, which are string literals, are not looked at.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = (
    "shared/verso_core",
    "shared/verso_ledger",
    "shared/verso_codecs",
    "shared/verso_client",
    "services/gateway/verso_gateway",
    "services/worker/verso_worker",
    "services/keeper/verso_keeper",
    "services/standalone/verso_standalone",
    "training/verso_training",
    *(str(path.relative_to(ROOT)) for path in sorted(ROOT.glob("shared/integrations/*/verso_*"))),
)
RETIRED = {
    "anew": "again",
    "bell": "wake-up",
    "bells": "wake-ups",
    "desk": "dispatcher, job service, trainer",
    "doorbell": "wake-up",
    "ear": "subscriber",
    "ears": "subscribers",
    "follower": "registry watcher",
    "halt": "make read-only",
    "halted": "read-only",
    "hand": "slot",
    "hands": "slots",
    "headshelf": "head store",
    "headstart": "removed with the speculative start",
    "heart": "lease renewal, heartbeat",
    "herald": "webhook sender",
    "hooks": "webhooks",
    "life": "epoch",
    "linger": "idle listen",
    "news": "job events",
    "nobody": "no progress; no one",
    "rang": "notified",
    "rung": "woken, notified",
    "settle": "verify delay",
    "shelf": "store",
    "shelves": "stores",
    "upkeep": "maintenance",
    "voice": "connection",
    "whoever": "who, the caller",
    "workplace": "context",
    "workshop": "executor",
}
"""Retired word and what is said in its place."""
ENGLISH = {"hand", "hands", "life", "linger", "nobody", "settle", "whoever"}
"""Retired as names of the product, and usual words in the sentence that names a test."""
LOGGERS = {"critical", "debug", "error", "exception", "info", "log", "warning"}
_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_LUA_TEXT = re.compile(r"\bK\.\w+|--\[\[.*?\]\]|--[^\n]*|\"[^\"\n]*\"|'[^'\n]*'", re.DOTALL)


def words(text: str) -> set[str]:
    """Return the words of a name or a sentence: ``verify_delay``, ``VerifyDelay``."""
    return {part.lower() for part in _PARTS.findall(text)}


def retired(text: str) -> list[str]:
    """Return what to say instead of the retired words in a text."""
    return [f"{word}: {RETIRED[word]}" for word in sorted(words(text) & RETIRED.keys())]


def modules() -> Iterator[Path]:
    """Yield the production modules."""
    for package in PACKAGES:
        yield from sorted((ROOT / package).rglob("*.py"))


def names(source: str) -> Iterator[tuple[int, str]]:
    """Yield the identifiers of Python code, with their lines."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.NAME:
            yield token.start[0], token.string


def logged(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the string literals in calls of loggers, and those that name metrics and settings."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr in LOGGERS:
                for inner in ast.walk(node):
                    if isinstance(inner, ast.Constant) and isinstance(inner.value, str):
                        yield inner.lineno, inner.value
        elif (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and node.value.startswith(("verso_", "VERSO_"))
        ):
            yield node.lineno, node.value


def test_no_retired_word_names_a_module() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {instead}"
        for path in modules()
        for instead in retired("/".join(path.relative_to(ROOT).parts[2:]))
    ]
    assert found == []


def test_no_retired_word_is_a_name_in_the_code() -> None:
    found = {
        f"{path.relative_to(ROOT)}:{line}: {name}: {instead}"
        for path in modules()
        for line, name in names(path.read_text(encoding="utf-8"))
        for instead in retired(name)
    }
    assert sorted(found) == []


def test_no_retired_word_is_a_name_in_tests_and_studies() -> None:
    """Words that are English there too are left to the writer: no one is nobody."""
    found = {
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for folder in ("tests", "training/studies")
        for path in sorted((ROOT / folder).rglob("*.py"))
        if path != Path(__file__) and "node_modules" not in path.parts
        for line, name in [(0, path.stem), *names(path.read_text(encoding="utf-8"))]
        if words(name) & RETIRED.keys() - ENGLISH
    }
    assert sorted(found) == []


def test_no_retired_word_is_logged_or_names_a_metric_or_a_setting() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {text!r}: {instead}"
        for path in modules()
        for line, text in logged(ast.parse(path.read_text(encoding="utf-8")))
        for instead in retired(text)
    ]
    assert found == []


def test_no_retired_word_is_a_name_in_the_scripts() -> None:
    found = []
    for path in sorted((ROOT / "shared").rglob("*.lua")):
        code = _LUA_TEXT.sub(" ", path.read_text(encoding="utf-8"))
        found += [f"{path.name}: {instead}" for instead in retired(f"{path.stem} {code}")]
    assert found == []


def test_no_retired_word_is_on_a_dashboard_or_in_an_alert() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {instead}"
        for kind in ("*.json", "*.yml", "*.yaml")
        for path in sorted((ROOT / "services/monitoring").rglob(kind))
        for instead in retired(path.read_text(encoding="utf-8"))
    ]
    assert found == []


@pytest.mark.parametrize(
    "name",
    ["heartbeat", "RequestHandler", "shell", "early", "string", "bookkeeping", "linear", "ring"],
)
def test_words_that_only_contain_a_retired_one_are_free(name: str) -> None:
    assert retired(name) == []


@pytest.mark.parametrize("name", ["ring_bell", "HeadShelf", "hands_busy", "no bell for the queue"])
def test_a_retired_word_is_found_in_any_spelling(name: str) -> None:
    assert retired(name)

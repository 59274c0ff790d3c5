"""What the pages tell people to type exists: settings, commands with their options, programs."""

from __future__ import annotations

import importlib.util
import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer
from tests.unit.test_house import PAGES, ROOT, settings_fields
from typer.core import TyperCommand, TyperGroup

from verso_client.cli.app import add_plugins, app
from verso_core import DISTRIBUTION

BENCHES = (ROOT / "tests/bench", ROOT / "training/studies/benches")
SOURCES = ("shared", "services", "training", "tests")
_CODE = re.compile(r"^```[^\n]*\n(.*?)^```|`([^`\n]+)`", re.MULTILINE | re.DOTALL)
_LITERAL = re.compile(r'"(VERSO_[A-Z0-9_]+)"')


def typed(page: Path) -> Iterator[list[str]]:
    """Yield the words of every command line of a page, without prompt, pipes and comments."""
    for block, inline in _CODE.findall(page.read_text()):
        for line in (block or inline).replace("\\\n", " ").splitlines():
            try:
                words = shlex.split(line.removeprefix("$ "), comments=True)
            except ValueError:  # an output, or prose
                continue
            starts = [n for n, word in enumerate(words) if word in {"|", "&&", ";"}]
            for start, end in zip([-1, *starts], [*starts, len(words)], strict=True):
                yield words[start + 1 : end]


def command_of(words: list[str]) -> tuple[TyperCommand, list[str]]:
    """Follow ``verso`` and its subcommands; returns the last one and the words behind it."""
    found: Any = root_command()
    options = True
    while isinstance(found, TyperGroup) and words:
        if options and words[0].startswith("-"):  # of verso itself, with a value
            words = words[2:]
            continue
        options = False
        assert words[0] in found.commands, f"verso has no {words[0]!r}"
        found, words = found.commands[words[0]], words[1:]
    return found, words


@cache
def root_command() -> TyperGroup:
    """Return the whole command line, with what other packages add to it."""
    add_plugins(app)
    command = typer.main.get_command(app)
    assert isinstance(command, TyperGroup)
    return command


def flags_of(command: TyperCommand) -> set[str]:
    """Return the options that a command takes."""
    own = {name for one in command.params for name in (*one.opts, *one.secondary_opts)}
    return own | {"--help"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_on_a_page_exists_with_its_options(page: Path) -> None:
    for words in typed(page):
        if words[:1] != ["verso"] or not re.fullmatch(r"[a-z-]+", " ".join(words[1:2])):
            continue
        command, rest = command_of(words[1:])
        named = {word.partition("=")[0] for word in rest if re.match(r"--[a-z]", word)}
        assert named <= flags_of(command), " ".join(words)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_program_on_a_page_exists_with_its_options(page: Path) -> None:
    for words in typed(page):
        source = program(words)
        if source is None:
            continue
        named = {word.partition("=")[0] for word in words if re.match(r"--[a-z]", word)}
        known = options_of(source)
        assert named <= known, f"{source.name} has no {named - known}"


def options_of(source: Path) -> set[str]:
    """Return the options that a bench, or a module of the benches that it imports, adds."""
    text = source.read_text()
    imports = "\n".join(re.findall(r"^(?:from|import) .*", text, re.MULTILINE))
    imported = set(re.findall(r"\w+", imports))
    for folder in BENCHES:
        text += "".join(p.read_text() for p in folder.rglob("*.py") if p.stem in imported)
    return set(re.findall(r'add_argument\(\s*"(--[a-z-]+)"', text))


def bench(name: str) -> Path:
    """Return the bench of this file name, anywhere in the folders of benches."""
    [found] = [path for folder in BENCHES for path in folder.rglob(name)]
    return found


def program(words: list[str]) -> Path | None:
    """Find the file that a command line runs: a bench by its name, or ``python -m`` a module."""
    for place, word in enumerate(words):
        if re.fullmatch(r"(?:[a-z/]+/)?(?:bench|fuzz)_\w+\.py", word):
            return bench(Path(word).name)
        if word == "-m" and place and words[place - 1].endswith("python"):
            name = words[place + 1]
            if name.startswith("studies.benches."):
                return bench(name.rpartition(".")[2] + ".py")
            if not name.startswith(("verso_", "tests.", "studies")):
                return None
            found = ROOT / (name.replace(".", "/") + ".py")
            spec = None if found.exists() else importlib.util.find_spec(name)
            assert found.exists() or spec is not None, name
            return None
    return None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_page_installs_is_no_other_project_of_that_name(page: Path) -> None:
    for words in typed(page):
        if "install" not in words or not {"pip", "uv", "pipx"} & {Path(w).name for w in words}:
            continue
        ours = [word for word in words if word.startswith("verso")]
        assert all(word.startswith(DISTRIBUTION) for word in ours), " ".join(words)


def test_every_setting_that_a_page_names_is_read_somewhere() -> None:
    known = {name for name, _ in settings_fields()}
    for part in SOURCES:
        for path in (ROOT / part).rglob("*.py"):
            known |= set(_LITERAL.findall(path.read_text()))
    for page in PAGES:
        named = set(re.findall(r"\bVERSO_[A-Z0-9_]*[A-Z0-9]\b", page.read_text()))
        assert named <= known, f"{page.name}: {named - known}"

"""The house in order: what the documents say exists, and what exists is documented."""

from __future__ import annotations

import ast
import importlib
import re
import sys
import tomllib
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pictures
import pytest
from packaging.requirements import Requirement
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings
from tests.support.api_document import DOCUMENT

from verso_core import DISTRIBUTION
from verso_core.errors import CLASSES

ROOT = Path(__file__).parents[2]
TOP_LEVEL = {
    ".ci",
    ".dockerignore",
    ".env.example",
    ".gitignore",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "LICENSE",
    "Makefile",
    "README.md",
    "constraints.txt",
    "docker-compose.yml",
    "docs",
    "k8s",
    "models",
    "pyproject.toml",
    "services",
    "shared",
    "tests",
    "training",
}
SETTINGS = (
    "verso_gateway.settings",
    "verso_gateway.syslog.settings",
    "verso_keeper.settings",
    "verso_training.service.settings",
    "verso_worker.settings",
)
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])
_APART = {"adr", "research"}
_LINK = re.compile(r"(?<!!)\[[^\]]+\]\(([^)\s]+)\)")
_GENERATED = re.compile(r"<!-- begin: .*?<!-- end -->", re.DOTALL)
_FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def tracked_top_level() -> set[str]:
    """Return the top level as git would see it: what is there, less what is ignored."""
    ignored = {
        line.strip().strip("/")
        for line in (ROOT / ".gitignore").read_text().splitlines()
        if line.strip() and not line.startswith(("#", "*"))
    }
    return {path.name for path in ROOT.iterdir()} - ignored - {".git"}


def settings_fields() -> Iterator[tuple[str, FieldInfo]]:
    """Yield every environment variable a service reads, with its field."""
    for module_name in SETTINGS:
        module = importlib.import_module(module_name)
        for value in vars(module).values():
            if (
                isinstance(value, type)
                and issubclass(value, BaseSettings)
                and value.__module__ == module_name
            ):
                prefix = value.model_config["env_prefix"]
                for name, field in value.model_fields.items():
                    yield f"{prefix}{name}".upper(), field


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings as GitHub makes them."""
    found = set()
    for line in _FENCE.sub("", page.read_text()).splitlines():
        if line.startswith("#"):
            title = line.lstrip("#").strip().lower()
            found.add(re.sub(r"[^\w\- ]", "", title).replace(" ", "-"))
    return found


def test_the_top_level_is_the_fixed_list() -> None:
    assert tracked_top_level() == TOP_LEVEL


def test_every_make_command_of_the_pages_is_a_target() -> None:
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for page in PAGES:
        named = re.findall(
            r"^(?:\$ )?make ((?:[a-z][a-z0-9-]* ?)+)", page.read_text(), re.MULTILINE
        )
        assert {name for line in named for name in line.split()} <= targets, page


def test_the_readme_names_the_two_commands() -> None:
    text = (ROOT / "README.md").read_text()
    assert "make demo" in text
    assert "make test" in text


def test_every_setting_is_documented_with_its_default() -> None:
    rows = {}
    for line in (ROOT / "docs/reference/settings.md").read_text().splitlines():
        if line.startswith("| `"):
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            rows[cells[0].strip("`")] = cells[1].strip("`")
    for name, field in settings_fields():
        assert name in rows, f"{name} is not documented"
        if field.default_factory is not None:  # follows from the machine
            continue
        shown = "unset" if field.default is None else str(field.default)
        assert shown in (rows[name], rows[name].replace(",", "")), name


def test_every_error_code_is_documented_with_its_retryability() -> None:
    rows = {}
    for line in (ROOT / "docs/reference/errors.md").read_text().splitlines():
        if line.startswith("| `"):
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            rows[cells[0].strip("`")] = cells[2]
    for code, error in CLASSES.items():
        assert rows.get(code) == ("yes" if error.retryable else "no"), code
    assert rows.keys() <= CLASSES.keys()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_between_pages_resolve(page: Path) -> None:
    for link in _LINK.findall(_FENCE.sub("", page.read_text())):
        if "://" in link or link.startswith("mailto:"):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        assert target.exists(), link
        if anchor and target.suffix == ".md":
            assert anchor in anchors(target), link


def test_the_index_links_every_page_once() -> None:
    index = ROOT / "docs/README.md"
    linked = [link.partition("#")[0] for link in _LINK.findall(index.read_text())]
    pages = {
        str(page.relative_to(index.parent))
        for page in (*index.parent.rglob("*.md"), *index.parent.rglob("*.ipynb"))
        if page != index and page.parent.name != "adr"
    }
    assert sorted(linked) == sorted({*pages, "adr"})


def test_pictures_of_lab_reports_say_what_their_tables_say() -> None:
    """Where one does not: python tests/bench/pictures.py."""
    for picture in pictures.PICTURES:
        path = pictures.RESEARCH / picture.name
        assert path.read_text(encoding="utf-8") == picture.draw(), picture.name


def test_the_readme_fits_on_a_screen_or_two() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 80


def test_the_pages_of_a_user_are_readable_in_an_afternoon() -> None:
    """Lab reports and decisions are kept apart, so that what a user needs stays short.

    Tables that are generated from the code are looked up, not read.
    """
    user = [page for page in (ROOT / "docs").rglob("*.md") if page.parent.name not in _APART]
    read = [_GENERATED.sub("", page.read_text()) for page in user]
    assert sum(len(text.split()) for text in read) <= 40_000


def test_every_decision_has_a_number_of_its_own_and_the_three_parts() -> None:
    pages = sorted((ROOT / "docs/adr").glob("*.md"))
    numbers = [page.name[:4] for page in pages]
    assert len(set(numbers)) == len(numbers)
    assert all(number.isdigit() for number in numbers)
    for page in pages:
        text = page.read_text()
        for part in ("## Context", "## Decision", "## Consequences"):
            assert part in text, f"{page.name} lacks {part}"


PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
MODELS = tomllib.loads((ROOT / "models/pyproject.toml").read_text())["project"]
OURS = {PROJECT["name"], MODELS["name"]}
PYTHONS = re.findall(r":: Python :: (3\.\d+)$", "\n".join(PROJECT["classifiers"]), re.MULTILINE)
CONSTRAINTS = [
    line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")
]


def pins(python: str) -> list[str]:
    """Return the distributions that constraints.txt pins for a Python, as often as it does."""
    environment = {"python_version": python, "python_full_version": f"{python}.0"}
    requirements = map(Requirement, CONSTRAINTS)
    return [
        normal(requirement.name)
        for requirement in requirements
        if requirement.marker is None or requirement.marker.evaluate(environment)
    ]


@pytest.mark.parametrize("python", PYTHONS)
def test_every_direct_dependency_is_pinned_once_for_every_python(python: str) -> None:
    pinned = pins(python)
    assert len(set(pinned)) == len(pinned)
    wanted = {*PROJECT["dependencies"]}.union(*PROJECT["optional-dependencies"].values())
    assert {normal(requirement) for requirement in wanted} - OURS <= set(pinned)


def test_constraints_hold_names_versions_and_pythons_only() -> None:
    pin = r"[\w.-]+==[\w.!+]+( ; python_(full_)?version (<|>=) \"3(\.\d+)+\")?"
    for line in CONSTRAINTS:
        assert re.fullmatch(pin, line), line


EXTRAS = {
    "shared/verso_core": "gateway",  # the ledger needs redis; every service that uses it has it
    "shared/verso_codecs": "worker",
    "shared/verso_client": "client",
    "services/gateway/verso_gateway": "gateway",
    "services/keeper/verso_keeper": "keeper",
    "services/worker/verso_worker": "worker",
    "services/standalone/verso_standalone": "standalone",
    "training/verso_training": "training",
}
OPTIONAL = {  # imported only when they are used
    "shared/verso_core": ("tracing",),
    "shared/verso_client": ("eval", "mcp"),
    "services/gateway/verso_gateway": ("files",),
}


def imported_roots(package: Path) -> set[str]:
    """Return the top-level names that a package's modules import, wherever in the module."""
    found = set()
    for path in package.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                found |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                found.add(node.module.partition(".")[0])
    return found


def names_of_extra(extra: str) -> set[str]:
    """Return the distributions that an extra names, other extras of ours resolved."""
    names = {normal(requirement) for requirement in PROJECT["dependencies"]}
    for requirement in PROJECT["optional-dependencies"][extra]:
        if requirement.startswith(f"{DISTRIBUTION}["):
            for other in re.split(r", *", requirement[len(f"{DISTRIBUTION}[") : -1]):
                names |= names_of_extra(other)
        else:
            names.add(normal(requirement))
    return names


def normal(requirement: str) -> str:
    """Return a requirement's distribution name in its normal form (PEP 503)."""
    name = re.split(r"[\[<>=!~ ;]", requirement, maxsplit=1)[0]
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.mark.parametrize("package", EXTRAS)
def test_every_library_a_part_imports_is_named_by_its_extra(package: str) -> None:
    """A library that only comes along with another may be gone with that other's next release."""
    providers = metadata.packages_distributions()
    named = names_of_extra(EXTRAS[package])
    for extra in OPTIONAL.get(package, ()):
        named |= names_of_extra(extra)
    for root in imported_roots(ROOT / package) - sys.stdlib_module_names:
        if not root.startswith("verso_"):
            assert {normal(name) for name in providers.get(root, [root])} & named, root


def test_every_route_is_documented() -> None:
    page = (ROOT / "docs/reference/api.md").read_text()
    documented = set(
        re.findall(r"`(?:(?:GET|POST|DELETE|PATCH)(?:/(?:GET|POST|DELETE|PATCH))* )(/[^`?]*)", page)
    )
    shapes = {re.sub(r"\{[^}]*\}", "{}", path) for path in documented}
    for path in DOCUMENT["paths"]:
        assert re.sub(r"\{[^}]*\}", "{}", path) in shapes, path

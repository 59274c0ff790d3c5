"""The shipped models: tutorials, notebooks, and what the heads promise of stored documents.

Tutorials are done command by command as they stand on their pages.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest
from tests.e2e.conftest import ARTIFACT

from verso_client import Client, Document
from verso_standalone import sample

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.e2e.conftest import Platform

    from verso_core.jobs.heads.classify import Classification

ROOT = Path(__file__).parents[2]
TUTORIALS = ROOT / "docs" / "tutorial"
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
_BLOCK = re.compile(r"^```sh\n(?P<commands>.*?)^```$", re.MULTILINE | re.DOTALL)
_PYTHON = re.compile(r"^```python\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)
VERSION = r"[0-9a-f]{16}"
SAID = {
    "ask-your-documents": (
        "room B 214 of the town hall  (handbook.pdf, page 3;",
        "Who wrote the opera Carmen?\n  no answer",
        "Each pump needs new oil after 600 hours of work.",
    ),
    "bring-your-own-encoder": (
        "serves beside the stable one",
        "96 dimensions",
        "docs/prometheus/client_python:docs/content/exporting/http/asgi.md",
        "420 of 420 texts are exact",
    ),
    "a-day-of-logs": (
        "1,272 lines",
        "  60  payment of order <*> was refused: card expired",
        "new since 18:00:\n  sd<*>: medium error at sector <*>",
        "sd<*>: medium error at sector <*>, the disk may fail soon\n12 lines",
    ),
}

KINDS = {"crash": "kernel", "trace": "java-test", "install": "r-install", "check": "r-check"}
"""Kinds of texts in the corpus, and the source of their labels. All are of test parts."""
EACH = 12


def run_page(page: Path, platform: Platform, folder: Path) -> str:
    """Run every block of a page in one folder, but those that start a platform; what they said."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    settings = {"PATH": path, "VERSO_URL": platform.url, "COLUMNS": "180"}
    printed = []
    for found in _BLOCK.finditer(page.read_text(encoding="utf-8")):
        if found["commands"].startswith("make "):
            continue
        done = subprocess.run(
            ["bash", "-e", "-o", "pipefail", "-c", found["commands"]],
            cwd=folder,
            env={**os.environ, **settings},
            capture_output=True,
            timeout=600,
            check=False,
        )
        assert done.returncode == 0, f"{found['commands']}\n{done.stderr.decode()}"
        printed.append(done.stdout.decode())
    return "\n".join(printed)


@pytest.fixture
def own(new_platform: Callable[..., Platform]) -> Iterator[Platform]:
    """Yield a platform that has what a new one has, as the page expects."""
    platform = new_platform()
    platform.start()
    yield platform
    platform.stop()


@pytest.fixture(scope="module")
def shipped(new_platform: Callable[..., Platform]) -> Platform:
    """A new platform with the shipped model and heads, which pages and notebooks show."""
    platform = new_platform()
    platform.artifact = ROOT / "models" / "default"
    platform.start()
    return platform


@pytest.fixture
def told(own: Platform, tmp_path: Path) -> str:
    """What the commands of the page on heads print."""
    return run_page(TUTORIALS / "train-heads.md", own, tmp_path)


def test_the_first_run_ends_with_a_question_answered_and_a_statement_found(
    shipped: Platform, tmp_path: Path
) -> None:
    page = TUTORIALS / "first-run.md"
    told = run_page(page, shipped, tmp_path)
    [code] = _PYTHON.findall(page.read_text(encoding="utf-8"))
    exec(code.replace("Client()", f"Client({shipped.url!r})"))  # noqa: S102 - the page's own
    assert "The certificate of the mail server expires" in told
    assert re.search(r"│ documents +│ +5 │", told)
    answers, statements = told.rsplit("┏", 2)[1:]
    assert "3 May 2027" in answers
    assert re.search(r"│ 2 +│.*eth<\*>: link is up, <\*> Mbps", statements)


def test_the_tutorial_does_what_it_says(told: str, own: Platform) -> None:
    """Logs to a head that abstains, questions to one that answers; each a canary first."""
    [troubles] = re.findall(rf"head troubles ({VERSION}) is the canary", told)
    [causes] = re.findall(rf"head causes ({VERSION}) is the canary", told)
    # Both were canaries before they were promoted, and their reports were read then.
    assert re.search(rf"│ troubles +│ - +│ {troubles} │ 0\.1", told)
    assert "errors, %, among the surest" in told
    assert "| part | threshold | EM | F1 |" in told
    for label, line in (("disk", "kernel: sdb7"), ("login", "sshd[4711]")):
        assert re.search(rf"│ {label} +│ 0\.\d+ +│ troubles │ {re.escape(line)}", told)
    assert re.search(r"│ \(withheld: \w+\?\) +│ 0\.\d+ +│ troubles │ qwerty", told)
    assert len(re.findall(r"┩\n│ \+\d+\.\d+ +│ ran out of memory +│", told)) == 2
    assert told.count("no answer; the best parts are") == 1
    with own.client() as verso:
        state = verso.registry().heads
    assert (state["troubles"].stable, state["troubles"].canary) == (troubles, None)
    assert state["causes"].stable == causes


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_says_what_it_is_about(
    notebook: Path,
    shipped: Platform,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Cell by cell in one namespace, as a kernel does."""
    monkeypatch.setenv("VERSO_URL", shipped.url)
    monkeypatch.setenv("PLATFORM_DATA", str(shipped.data))
    monkeypatch.setenv("BASE", str(ARTIFACT))  # a small decoder; the shipped one takes minutes
    monkeypatch.setenv("MINUTES", "0.03")
    monkeypatch.chdir(notebook.parent)
    names: dict[str, object] = {}
    for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), cell["id"], "exec"), names)  # noqa: S102
    told = capsys.readouterr().out
    for said in SAID[notebook.stem]:
        assert said in told
    if "picture" in names:
        assert ET.fromstring(str(names["picture"])).tag.endswith("svg")  # noqa: S314


def test_notebooks_are_kept_without_what_they_printed() -> None:
    for notebook in NOTEBOOKS:
        for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
            assert not cell.get("outputs"), f"{notebook}: {cell['id']}"
            assert cell.get("execution_count") is None


def classified(client: Client, **what: object) -> list[Classification]:
    found = client.classify("log-failures", top_k=1000, **what)  # type: ignore[arg-type]
    return [one.heads[0] for one in found]


def test_a_stored_document_of_each_log_set_is_classified_as_its_text(shipped: Platform) -> None:
    """By default, in a collection of the default kind: its vectors are coarser than a text's."""
    with shipped.client() as client:
        client.create_collection("failures")
        documents = {document.id: document for document in sample.documents()}
        several = 0
        for kind, source in KINDS.items():
            own = [one for one in documents.values() if one.metadata["kind"] == kind]
            # the longest, since those have several chunks
            chosen = sorted(own, key=lambda one: -len(one.text))[:EACH]
            texts = [
                one.text if isinstance(one.text, str) else one.text.decode(errors="replace")
                for one in chosen
            ]
            ids = [f"{kind}-{at}" for at in range(len(texts))]
            before = client.stats("failures").chunks
            stored = [Document(text, id=name) for text, name in zip(texts, ids, strict=True)]
            assert client.ingest(stored, collection="failures").failed == ()
            several += client.stats("failures").chunks - before > 2 * len(texts)
            by_text = classified(client, texts=texts)
            by_id = classified(client, ids=ids, collection="failures")
            assert [one.label for one in by_id] == [one.label for one in by_text]
            right = [str(one.label).partition("/")[0] for one in by_text]
            assert right.count(source) >= EACH - 1, right
            moved = [
                abs((one.confidence or 0.0) - (other.confidence or 0.0))
                for one, other in zip(by_text, by_id, strict=True)
            ]
            assert median(moved) < 0.01
        assert several >= 3
        client.delete_collection("failures")

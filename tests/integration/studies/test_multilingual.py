"""Summaries are read from manual pages, and what was measured is not measured again."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from studies.multilingual import manual, measure
from verso_core import manifest

ARTIFACT = Path(__file__).parents[2] / "data" / "artifact-tiny"
PAGE = ".TH {name} 1\n.SH {title}\n{name} \\- {summary}\n.SH DESCRIPTION\nMore.\n"
TRANSLATED = {
    "": {"ls": "list the content of a directory", "cp": "copy files", "vi": "edit a file"},
    "de": {"ls": "den Inhalt eines Verzeichnisses auflisten", "cp": "copy files"},
}


@pytest.fixture
def pages(tmp_path: Path) -> Path:
    """Two languages; a page that was not translated is the English one."""
    for language, texts in TRANSLATED.items():
        folder = tmp_path / "man" / language / "man1"
        folder.mkdir(parents=True)
        for name, summary in texts.items():
            title = "BEZEICHNUNG" if language else "NAME"
            page = PAGE.format(name=name, title=title, summary=summary)
            (folder / f"{name}.1").write_text(page, encoding="utf-8")
    return tmp_path / "man"


@pytest.mark.skipif(shutil.which("lexgrog") is None, reason="lexgrog (Debian: man-db)")
def test_a_summary_stands_without_the_name_of_its_command(pages: Path) -> None:
    assert manual.summaries(pages / "de") == {
        f"man1/{name}.1": text for name, text in TRANSLATED["de"].items()
    }
    english = manual.summaries(pages, {"man1/ls.1"})
    assert english == {"man1/ls.1": "list the content of a directory"}
    assert manual.summaries(pages / "fr") == {}


def test_parts_that_are_done_are_read(tmp_path: Path) -> None:
    parts = ("similarity", "search", "sentences", "documentation", "patches")
    for number, part in enumerate(parts):
        kept = tmp_path / f"{manifest.load(ARTIFACT).id}-{part}.json"
        kept.write_text(json.dumps({part: number}))
    found = measure.measure(ARTIFACT, tmp_path / "none", pages=tmp_path / "none", work=tmp_path)
    assert found == dict(zip(parts, range(5), strict=True))

"""Readers that are trained further, and a student of two, from a small data folder to the table."""

import json
import lzma
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from studies.__main__ import main
from studies.answers import arms, distillation

ARTIFACT = Path(__file__).parents[2] / "data" / "artifact-tiny"
RECIPE = """name = "qa"
task = "answer"
reads = "token_pair"

[answer]
minutes = 0.02
rank = 4
alpha = 8.0
max_tokens = 64
stride = 16
tokens_per_step = 256
"""
PARTS = ("worker", "gateway", "queue", "keeper", "engine", "ledger")


def _packed(path: Path, rows: Iterable[Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(lzma.compress("".join(json.dumps(row) + "\n" for row in rows).encode()))


def _articles(name: str) -> list[dict[str, Any]]:
    """Return two articles whose paragraphs say what a part does, each with a question and one that
    has no answer."""
    made = []
    for title in (f"{name} 0", f"{name} 1"):
        paragraphs = [
            {
                "context": f"In {title} the {part} stops at {at}. Nobody knows why it does so.",
                "qas": [
                    {"id": f"{title}-{at}", "question": f"When does the {part} stop?"}
                    | {"answers": [{"text": str(at)}]},
                    {"id": f"{title}-{at}-none", "question": "Who sings?", "answers": []}
                    | {"is_impossible": True},
                ],
            }
            for at, part in enumerate(PARTS, 10)
        ]
        made.append({"title": title, "paragraphs": paragraphs})
    return made


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Return a folder with a few rows of each set that the readers are trained on."""
    root = tmp_path / "data"
    parts = {part: _articles(part) for part in ("train", "dev", "eval")}
    titles = {part: [one["title"] for one in own] for part, own in parts.items()}
    squad = root / "qa_squad"
    _packed(
        squad / "squad2_dev_shared.json.xz",
        [{"data": [one for own in parts.values() for one in own]}],
    )
    _packed(squad / "squad11_dev_shared.json.xz", [{"data": []}])
    (squad / "split_by_article.json").write_text(json.dumps(titles | {"train_11_only": []}))
    for part in ("dev", "test"):
        short = [
            {"id": f"{part}{at}", "question": "What stops?", "context": f"The {name} stops."}
            | {"answers": [{"text": name}]}
            for at, name in enumerate(PARTS)
        ]
        _packed(root / "qa_qamr" / f"{part}.jsonl.xz", short)
        marked = [
            {"question": f"What does the {name} do?", "answers": [0]}
            | {"candidates": [f"The {name} stops.", "It rains."]}
            for name in PARTS
        ]
        _packed(root / "qa_selqa" / f"{part}.jsonl.xz", marked)
    said = " ".join(f"The {name} was stopped by Henry Ashton in 1362 at noon." for name in PARTS)
    for name in ("techdocs", *(f"books_{n}" for n in range(1, 5))):
        _packed(root / "prose" / f"{name}.jsonl.xz", [{"id": name, "text": said, "source": "own"}])
    section = "Chad - Geography\nLocation: Central Africa\nClimate: dry"
    _packed(root / "prose" / "factbook1995.jsonl.xz", [{"id": "chad", "text": section}])
    return root


def test_a_student_of_two_readers_is_measured_beside_them_and_kept(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = tmp_path / "qa.toml"
    recipe.write_text(RECIPE)
    common = ["--data", str(data), "--artifact", str(ARTIFACT)]
    out = ["--out", str(tmp_path / "heads"), "--work", str(tmp_path / "head-work")]
    assert main(["head", "--recipe", str(recipe), *common, *out]) == 0
    (head,) = (tmp_path / "heads" / "qa").iterdir()
    work = tmp_path / "work"
    options = [*common, "--head", str(head), "--work", str(work), "--minutes", "0.01"]
    taught = ["distillation", *options, "--second-minutes", "0.01"]
    capsys.readouterr()
    assert main(taught) == 0
    first = capsys.readouterr().out
    rows = [line.split("|")[1].strip() for line in first.splitlines() if line.startswith("| ")]
    expected = ["reader", arms.SHIPPED, distillation.SECOND, arms.MEAN]
    for student in distillation.STUDENTS:
        expected += [student, distillation.BETWEEN.format(student)]
    assert rows == expected
    line = json.loads(first.splitlines()[-1])
    assert line["study"] == "distillation"
    assert line["figures"][arms.SHIPPED]["gain"]["F1"]["value"] == 0.0
    kept = {path: path.stat().st_mtime_ns for path in work.rglob("*.*")}
    assert main(taught) == 0
    assert capsys.readouterr().out == first
    assert {path: path.stat().st_mtime_ns for path in work.rglob("*.*")} == kept
    # the questions that were made are those of the other study
    assert main(["answers", *options, "--only", "squad", "selqa"]) == 0
    told = capsys.readouterr().out
    assert "selqa over squad" in told
    # readers that were trained further are taught from as well, and not read again
    runs = [str(work / "runs" / arm) for arm in ("squad", "selqa")]
    kept = {path: path.stat().st_mtime_ns for path in work.glob("read/s*.json")}
    assert main(["distillation", *options, "--readers", *runs, "--only"]) == 0
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| ")]
    names = [row.split("|")[1].strip() for row in rows]
    assert names == ["reader", arms.SHIPPED, "squad", "selqa", arms.MEAN]
    assert {path: path.stat().st_mtime_ns for path in work.glob("read/s*.json")} == kept
    assert (work / "read" / "logits-shipped-squad-selqa.json").exists()

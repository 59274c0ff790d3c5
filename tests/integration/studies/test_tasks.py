"""All studies from a small data folder to the page, on the artifact for tests."""

import csv
import itertools
import json
import lzma
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import pytest

from studies.__main__ import main
from studies.papers.multi_task import converged, round_robin, spent
from studies.quality import sets as labelled
from studies.quality.classification import Bench
from studies.tasks import catalogue
from studies.tasks.pages import missed, page

ARTIFACT = Path(__file__).parents[2] / "data" / "artifact-tiny"
STUDIES = [
    name
    for name in catalogue.STUDIES
    if name not in ("pretraining-objectives", "frozen-curves") or os.environ.get("STUDIES") == "all"
]
"""Two take as long as all others, of which one has a section: they are done with STUDIES=all."""
PARTS = ("worker", "gateway", "queue", "keeper", "engine")
STATES = ("stops", "fails", "waits", "starts", "serves")
TEXTS = [f"the {part} {state} again" for part in PARTS for state in STATES]


def table(path: Path, rows: Sequence[Mapping[str, object]], *, delimiter: str = "\t") -> None:
    """A table as the public folder holds it, compressed where the name says so."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_suffix("").open("w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, [*rows[0]], delimiter=delimiter)
        writer.writeheader()
        writer.writerows(rows)
    plain = path.with_suffix("")
    path.write_bytes(lzma.compress(plain.read_bytes()))
    plain.unlink()


def lines(path: Path, rows: Iterable[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "\n".join(rows) + "\n"
    packed = path.suffix == ".xz"
    path.write_bytes(lzma.compress(text.encode()) if packed else text.encode())


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The sets that the studies read, a few rows each."""
    root = tmp_path / "data"
    for part in ("train", "dev"):
        sst = [{"sentence": text, "sentiment": i % 5} for i, text in enumerate(TEXTS)]
        table(root / "cs224n" / f"ids-sst-{part}.csv.xz", sst)
    others = [TEXTS[(i + (5 if i % 2 else 1)) % len(TEXTS)] for i in range(len(TEXTS))]
    pairs = [
        (a, b, float(a.split()[2] == b.split()[2])) for a, b in zip(TEXTS, others, strict=True)
    ]
    quora = [
        {"sentence1": f"{a} {n}", "sentence2": f"{b} {n}", "is_duplicate": same}
        for n, (a, b, same) in enumerate(3 * pairs)
    ]
    table(root / "cs224n" / "quora-dev.csv.xz", quora)
    for name in ("stsb-en-train.csv.xz", "stsb-en-dev.csv", "stsb-en-test.csv"):
        lines(root / "sim_stsb" / name, [f"{a},{b},{5 * same}" for a, b, same in pairs])
    extra = [json.dumps({"sentence1": a, "sentence2": b, "score": 5 * s}) for a, b, s in pairs]
    lines(root / "sim_sts_extra" / "sts2012_2016_not_in_stsb.jsonl.xz", extra)
    sick = [{"sentence_A": a, "sentence_B": b, "relatedness_score": 1 + 4 * s} for a, b, s in pairs]
    table(root / "sim_sick" / "SICK_test_annotated.txt.xz", sick)
    meant = [[text, text.split()[2]] for text in TEXTS]
    other = [["what is the weather", "oos"], ["sing me a song", "oos"]]
    clinc = dict.fromkeys(("train", "val", "test"), meant)
    clinc |= {f"oos_{name}": other for name in ("train", "val", "test")}
    lines(root / "intent_clinc150" / "data_full.json.xz", [json.dumps(clinc)])
    bank = [f"{text},{label}" for text, label in meant]
    failures = [
        json.dumps(
            {
                "id": str(n),
                "text": text,
                "label": label,
                "date": f"2019-0{n + 1}-05",
                "project": "p",
            }
        )
        for n, (text, label) in enumerate(meant[:4])
    ]
    said = [f"{text.capitalize()} and nobody knows why." for text in TEXTS]
    prose = [
        json.dumps({"id": f"{n}", "text": " ".join(said[n % 5 : n % 5 + 12])}) for n in range(60)
    ]
    for name in ("techdocs", "factbook1995", *(f"books_{n}" for n in range(1, 5))):
        lines(root / "prose" / f"{name}.jsonl.xz", prose)
    for name, part in itertools.product(labelled.LOG_SETS, ("train", "dev", "test")):
        lines(root / name / f"{part}.jsonl.xz", failures)
    for name in ("train.csv.xz", "test.csv"):
        lines(root / "intent_banking77" / name, ["text,category", *bank])
    return root


@pytest.fixture
def asked(data: Path) -> Path:
    """The same with SQuAD."""
    said = "The worker stops. The queue waits."
    rows = [
        {"id": f"{n}", "question": question, "answers": [{"text": text}] if text else []}
        | {"is_impossible": not text}
        for n, (question, text) in enumerate(
            4 * [("What stops?", "worker"), ("What waits?", "queue"), ("What sings?", "")]
        )
    ]
    parts = ("train", "dev", "eval")
    articles = [{"title": part, "paragraphs": [{"context": said, "qas": rows}]} for part in parts]
    titles = {part: [part] for part in parts} | {"train_11_only": []}
    lines(data / "qa_squad" / "split_by_article.json", [json.dumps(titles)])
    for name, held in (("squad2", articles), ("squad11", [])):
        packed = data / "qa_squad" / f"{name}_dev_shared.json.xz"
        lines(packed, [json.dumps({"data": held})])
    return data


def test_every_study_is_done_once_and_told_on_the_page(data: Path, tmp_path: Path) -> None:
    told = tmp_path / "quality.md"
    told.write_text("# Page\n", encoding="utf-8")
    options = ["--data", str(data), "--artifact", str(ARTIFACT), "--work", str(tmp_path / "work")]
    options += ["--only", *STUDIES]
    assert main(["tasks", *options, "--out", str(told)]) == 0
    kept = {path.stem: path.stat().st_mtime_ns for path in (tmp_path / "work/tasks").glob("*.json")}
    assert kept.keys() == set(STUDIES)
    first = told.read_text(encoding="utf-8")
    assert first.startswith(f"# Page\n\n{page.TITLE}\n")
    assert first.count("\n### ") == (9 if len(STUDIES) == len(catalogue.STUDIES) else 8)
    assert first.count(f"\n{missed.TITLE}\n") == 1
    assert main(["tasks", *options, "--out", str(told)]) == 0
    again = {
        path.stem: path.stat().st_mtime_ns for path in (tmp_path / "work/tasks").glob("*.json")
    }
    assert (again, told.read_text(encoding="utf-8")) == (kept, first)


def test_a_student_needs_its_teacher(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--data", str(data), "--artifact", str(ARTIFACT), "--work", str(tmp_path / "work")]
    assert main(["tasks", *options, "--only", "distillation"]) == 1
    assert "expected the study `lora-sentiment`" in capsys.readouterr().err


def test_an_adapter_keeps_less_than_an_encoder_a_task(asked: Path, tmp_path: Path) -> None:
    bench = Bench(data=asked, artifact=ARTIFACT, work=tmp_path / "work")
    found = {way: spent.measured(bench, way, count=1) for way in spent.Way}
    kept = {way: figures["to keep"] for way, figures in found.items()}
    assert kept[spent.Way.OUTER] == kept[spent.Way.ROUND_ROBIN]
    assert kept[spent.Way.ROUND_ROBIN] < kept[spent.Way.LORA] < kept[spent.Way.FULL]
    assert kept[spent.Way.FULL] < kept[spent.Way.CROSS]
    assert found[spent.Way.QUESTIONS]["steps"] > found[spent.Way.ROUND_ROBIN]["steps"]
    assert found[spent.Way.LORA]["trained"] < found[spent.Way.FULL]["trained"]
    assert all(figures["minutes"] > 0 for figures in found.values())
    assert spent.page({str(way): f for way, f in found.items()}).count("\n| ") == len(spent.Way)


def test_questions_are_drawn_beside_the_three_tasks(asked: Path, tmp_path: Path) -> None:
    bench = Bench(data=asked, artifact=ARTIFACT, work=tmp_path / "work")
    found = round_robin.run(bench)
    assert set(found) == {*round_robin.ARMS, "difference"}
    assert found["four tasks"].keys() == found["three tasks"].keys() | found["SQuAD alone"].keys()
    assert 0 <= found["SQuAD alone"]["f1"] <= 100
    told = round_robin.page(found)
    assert told.count("\n| ") == len(round_robin.ARMS)
    assert round_robin.run(bench) == found


def test_every_epoch_of_a_task_is_read_and_validation_rows_choose(
    data: Path, tmp_path: Path
) -> None:
    rows = [f"{text},{TEXTS[0]},{n % 6}" for n, text in enumerate(TEXTS)]
    lines(data / "sim_stsb" / "stsb-en-train.csv.xz", rows)
    bench = Bench(data=data, artifact=ARTIFACT, work=tmp_path / "work")
    found = converged.run(bench)
    assert found.keys() == converged.EPOCHS.keys()
    for name, figures in found.items():
        epochs = range(1, converged.EPOCHS[name] + 1)
        validation = [figures[f"{epoch}/validation"] for epoch in epochs]
        assert validation[int(figures["best"]) - 1] == max(validation)
        for epoch in epochs:
            low, value, high = (figures[f"{epoch}/reported{e}"] for e in ("/low", "", "/high"))
            assert low <= value <= high
    told = converged.page(found)
    assert told.count("(chosen)") == len(found)
    assert told.count("\n| ") == len(found) + sum(converged.EPOCHS.values())

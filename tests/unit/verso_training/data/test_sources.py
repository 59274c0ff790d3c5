"""Which documents may be trained on."""

import json
import lzma
from pathlib import Path

from verso_training.data import sources
from verso_training.data.sources import Split


def test_about_two_percent_of_documents_are_held_out() -> None:
    share = sum(sources.held_out(f"document {n}") for n in range(20_000)) / 20_000
    assert 0.015 < share < 0.025


def test_no_test_part_is_opened(tmp_path: Path) -> None:
    """Every file that may be read exists; no test part does; reading must not fail."""
    row = json.dumps({"id": "a#1.0", "text": "some text"})
    names = [
        f"prose/{n}" for n in ("techdocs", "factbook1995", *(f"books_{i}" for i in range(1, 5)))
    ]
    logs = ("logs_rcheck", "logs_rinstall", "logs_defects4j", "logs_syzkaller")
    names += [f"{n}/{part}" for n in logs for part in ("train", "dev")] + ["logs_ci_logdx/dev"]
    for name in names:
        path = tmp_path / f"{name}.jsonl.xz"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(lzma.compress(row.encode()))
    squad = tmp_path / "qa_squad"
    squad.mkdir()
    split = {"train_11_only": ["A"], "train": ["B"], "dev": ["C"], "eval": ["D"]}
    (squad / "split_by_article.json").write_text(json.dumps(split))
    for name in ("squad11_dev_shared", "squad2_dev_shared"):
        articles = [
            {"title": t, "paragraphs": [{"context": f"About {t}", "qas": [{"question": f"{t}?"}]}]}
            for t in "ABCD"
        ]
        data = json.dumps({"data": articles}).encode()
        (squad / f"{name}.json.xz").write_bytes(lzma.compress(data))

    found = list(sources.documents(tmp_path))
    squad_texts = {(d.text, d.split) for d in found if d.source == "squad"}
    assert squad_texts == {
        (text, Split.VALIDATION if title == "C" else Split.TRAIN)
        for title in "ABC"
        for text in (f"About {title}", f"{title}?")
    }
    dev = {d.split for d in found if d.source in logs}
    assert dev == {Split.TRAIN, Split.VALIDATION}
    assert all(d.split is Split.TRAIN for d in found if d.source == "logs_ci_logdx")

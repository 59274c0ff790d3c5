"""Which texts the compared decoders learn from and are measured on."""

import json
import lzma
from pathlib import Path

from studies.comparison import texts
from verso_training.data.sources import Split


def _folder(root: Path) -> Path:
    logs = root / "logs_loghub2k" / "HDFS"
    logs.mkdir(parents=True)
    lines = [f"block {number} of {number % 7}" for number in range(2000)]
    (logs / "HDFS_2k.log").write_text("\n".join(lines))
    questions = {part: [[f"{part} question {n}", "x"] for n in range(80)] for part in ("train",)}
    questions["test"] = [["never seen", "x"]]
    (root / "intent_clinc150").mkdir()
    with lzma.open(root / "intent_clinc150" / "data_full.json.xz", "wt") as stream:
        json.dump(questions, stream)
    (root / "sim_stsb").mkdir()
    rows = "".join(f"first {n},second {n},0.5\n" for n in range(80))
    (root / "sim_stsb" / "stsb-en-train.csv.xz").write_bytes(lzma.compress(rows.encode()))
    return root


def test_a_log_is_cut_in_time_and_its_second_half_is_never_opened(tmp_path: Path) -> None:
    found = texts.texts(_folder(tmp_path))
    logs = {
        split: [int(c.text.split()[1]) for c in chunks if c.family == "logs"]
        for split, chunks in found.items()
    }
    assert logs[Split.TRAIN] == list(range(800))
    assert logs[Split.VALIDATION] == list(range(800, 1000, 2))


def test_no_text_is_in_both_parts_and_none_is_of_a_test_part(tmp_path: Path) -> None:
    found = texts.texts(_folder(tmp_path))
    parts = [{chunk.text for chunk in chunks} for chunks in found.values()]
    assert not parts[0] & parts[1]
    assert len(parts[1]) == 100 + 2 + 4
    assert "never seen" not in parts[0] | parts[1]

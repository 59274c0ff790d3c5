"""Kernel reports that were added to a repository after the public set was made."""

import json
import lzma
import subprocess
from pathlib import Path

import pytest

from studies.quality import later
from verso_training.heads.rows import Row

DATA = Path(__file__).parents[3] / "data"
_REPORTS = {
    "linux/report/1": ("2024-06-01", "TYPE: HANG\nTITLE: old", "hung before the set ended"),
    "linux/report/2": ("2024-07-01", "TYPE: HANG\nTITLE: new", "hung: for\n\n143 s\nREPORT:\nhung"),
    "linux/report/3": ("2024-07-02", "TITLE: untyped", "no type"),
    "linux/report/4": ("2024-07-03", "TYPE: NEVER-SEEN", "another type"),
    "linux/report/5": ("2024-07-04", "TYPE: HANG", "hung: for\n\n143 s"),
    "linux/guilty/6": ("2024-07-05", "TYPE: HANG", "a file of another kind"),
    "netbsd/report/7": ("2024-07-06", "TYPE: LEAK", "leaks"),
}


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A repository of reports, each added by a commit of its day."""
    root = tmp_path / "clone"
    root.mkdir()

    def git(*command: str, day: str = "2024-01-01") -> None:
        stamp = f"{day}T12:00:00+00:00"
        subprocess.run(
            ["git", "-c", "user.name=a", "-c", "user.email=a@b", *command],
            cwd=root,
            env={"GIT_COMMITTER_DATE": stamp, "GIT_AUTHOR_DATE": stamp, "HOME": str(tmp_path)},
            check=True,
            capture_output=True,
        )

    git("init", "-q")
    for name, (day, head, log) in _REPORTS.items():
        path = root / "pkg/report/testdata" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{head}\n\n{log}")
        git("add", ".")
        git("commit", "-q", "-m", name, day=day)
    return root


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The set, which ends on a day in June."""
    folder = tmp_path / "data" / "logs_syzkaller"
    folder.mkdir(parents=True)
    rows: dict[str, list[tuple[str, str | None, str]]] = {
        "train": [("2019-01-01", "HANG", "hang"), ("2019-01-01", "LEAK", "leak")],
        "dev": [("2020-01-01", None, "unlabelled")],
        "test": [("2024-06-17", "HANG", "hang")],
    }
    for part, own in rows.items():
        with lzma.open(folder / f"{part}.jsonl.xz", "wt") as stream:
            for day, kind, label in own:
                print(json.dumps({"date": day, "type": kind, "label": label}), file=stream)
    return tmp_path / "data"


def test_only_later_reports_with_a_known_type_are_rows(data: Path, clone: Path) -> None:
    found = later.kernels(data, clone)
    assert found.rows == (
        Row("kernel/hang", "hung: for\n\n143 s"),
        Row("kernel/leak", "leaks"),
    )
    assert (found.since, found.left_out) == ("2024-06-17", 2)
    assert len(found.commit) == 40


def test_a_heads_figures_on_rows_are_those_of_its_graph(tmp_path: Path) -> None:
    (folder,) = (DATA / "heads-tiny" / "heads" / "endings").iterdir()
    rows = [Row("gateway/request", "nothing to see"), Row("worker/retry", "nor here")]
    found = later.report(rows, folder, artifact=DATA / "artifact-tiny", work=tmp_path)
    assert found.rows == 2
    assert set(found.sources) <= {"gateway", "worker"}

"""The long proof, in parts that can be taken up again: ``make prove``.

    python -m tests.chaos.prove --minutes 240

1. The simulation of the ledger (:mod:`tests.simulation`).
2. Rounds under every kind of fault (:mod:`tests.chaos.proof`).
3. Millions of lines taken in under faults and read back (:mod:`tests.chaos.many_lines`).
4. Power cuts under a whole platform (``test_power_cut.py``) and under each store alone
   (``test_store_cuts.py``), and a broken network before the ledger (``test_broken_network.py``),
   as pytest runs them.
5. Failovers of a ledger with two replicas (:mod:`tests.chaos.failovers`).

Each part that has ended is a row of ``docs/research/proof.json``; the page beside it is made of all
rows. A run that is stopped loses the part it was in; the next one goes on with new seeds.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from sheet import machine
from tests.chaos.many_lines import run_many
from tests.chaos.proof import KEPT, is_broken, run_round
from tests.chaos.proof_page import page
from tests.chaos.store_cuts import STORES

from verso_standalone.stack import find_artifact
from verso_standalone.valkey import find_program

ROOT = Path(__file__).parents[2]
ROWS = ROOT / "docs" / "research" / "proof.json"
PAGE = ROWS.with_suffix(".md")
_ROUND_MINUTES = 20.0
_LEAST_MINUTES = 1.0
_SHARE = 0.7
"""Of the time, after which no new round begins: power cuts and the network come then."""
_SIMULATED = 0.1
_LINES_MINUTES = 60.0
PARTS = ("simulation", "faults", "lines", "cuts", "stores", "network", "failovers")


class Results:
    """The rows of all runs, on disk after each."""

    def __init__(self, path: Path, first_seed: int = 1) -> None:
        self._path, self._first_seed = path, first_seed
        self.rows: list[dict[str, Any]] = []
        if path.exists():
            self.rows = json.loads(path.read_text(encoding="utf-8"))

    def seed(self) -> int:
        """Return a seed that no part had."""
        return max([self._first_seed, *(int(row["seed"]) + 1 for row in self.rows)])

    def add(self, part: str, seed: int, found: dict[str, Any]) -> None:
        """Keep the row of a part that has ended, and write the page."""
        about = {"part": part, "seed": seed, "date": _now(), "commit": _commit()}
        self.rows.append(about | {"machine": machine(), "versions": _versions()} | found)
        draft = self._path.with_suffix(".draft")
        rows = ",\n".join(json.dumps(row) for row in self.rows)
        draft.write_text(f"[\n{rows}\n]\n", encoding="utf-8")
        draft.replace(self._path)
        self._path.with_suffix(".md").write_text(page(self.rows), encoding="utf-8")


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _commit() -> str:
    done = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, check=False, capture_output=True
    )
    return done.stdout.decode().strip() or "unknown"


def _versions() -> dict[str, str]:
    done = subprocess.run([find_program(), "--version"], check=True, capture_output=True)
    names = ("onnxruntime", "qdrant-edge-py", "celery")
    found = {name: metadata.version(name) for name in names}
    return found | {
        "python": sys.version.split()[0],
        "ledger": done.stdout.decode().split(" sha")[0],
    }


def simulate(seed: int, minutes: float) -> dict[str, Any]:
    """Run the simulation for some minutes."""
    argv = ["-m", "tests.simulation", "--steps", str(1 << 40), "--seed", str(seed)]
    done = _python(*argv, "--minutes", f"{minutes:.2f}")
    if done.returncode:
        return {"steps": 0, "wrong": done.stdout[-2000:]}
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return {
        "steps": found["steps"],
        "jobs": found["jobs"],
        "seconds": found["seconds"],
        "wrong": "",
    }


def pytest_part(file: str, **settings: str) -> dict[str, Any]:
    """Run a file of tests; return whether it passed."""
    started = time.monotonic()
    done = _python("-m", "pytest", "-q", f"tests/chaos/{file}", **settings)
    words = done.stdout.strip().splitlines()[-1:] or ["nothing"]
    return {
        "passed": done.returncode == 0, "said": words[0],
        "minutes": round((time.monotonic() - started) / 60, 1),
    }  # fmt: skip


def fail_over(count: int) -> dict[str, Any]:
    """Let replicas of a ledger take over, some times; return what was kept and lost."""
    started = time.monotonic()
    done = _python("-m", "tests.chaos.failovers", "--count", str(count))
    said = done.stdout.strip().splitlines()[-1:] or ["nothing"]
    found = json.loads(said[0]) if said[0].startswith("{") else {"failovers": count}
    return found | {
        "passed": done.returncode == 0, "said": said[0],
        "minutes": round((time.monotonic() - started) / 60, 1),
    }  # fmt: skip


def _python(*argv: str, **settings: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *argv], cwd=ROOT, env=os.environ | settings, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


def prove(results: Results, given: argparse.Namespace, artifact: Path) -> None:
    """Run the parts that were asked for, for so long, about."""
    minutes = given.minutes
    rounds_until = time.monotonic() + 60 * minutes * (_SHARE if len(given.parts) > 1 else 1.0)
    if "simulation" in given.parts:
        seed = results.seed()
        share = _SIMULATED if len(given.parts) > 1 else 1.0
        results.add("simulation", seed, simulate(seed, minutes * share))
    first = True
    while "faults" in given.parts and (left := (rounds_until - time.monotonic()) / 60) > 0:
        if not first and left < _LEAST_MINUTES:
            break
        first, seed = False, results.seed()
        most = min(left, _ROUND_MINUTES)
        with _folder() as folder, (folder / "faults.jsonl").open("w", encoding="utf-8") as log:
            found = run_round(folder, artifact, seed=seed, minutes=most, log=log)
        results.add("faults", seed, found)
    if "lines" in given.parts:
        seed = results.seed()
        with _folder() as folder, (folder / "faults.jsonl").open("w", encoding="utf-8") as log:
            found = run_many(
                folder, artifact, seed=seed, lines=given.lines, minutes=_LINES_MINUTES, log=log
            )
        results.add("many lines", seed, found)
    turns = max(1, round(minutes / 12))
    if "cuts" in given.parts:
        found = pytest_part("test_power_cut.py", POWER_CUTS=str(turns))
        results.add("power cuts", results.seed(), found | {"cuts": 2 * turns})
    if "stores" in given.parts:
        seed = results.seed()
        found = pytest_part(
            "test_store_cuts.py", STORE_CUTS=str(given.cuts), STORE_CUTS_SEED=str(seed)
        )
        results.add("store cuts", seed, found | {"cuts": len(STORES) * given.cuts})
    if "network" in given.parts:
        found = pytest_part("test_broken_network.py", NETWORK_ROUNDS=str(turns))
        results.add("ledger network", results.seed(), found | {"faults": 3 * turns})
    if "failovers" in given.parts:
        results.add("failovers", results.seed(), fail_over(given.failovers))


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    """Yield a folder that is removed in the end, unless it has what a broken promise left."""
    folder = Path(tempfile.mkdtemp(prefix="verso-prove-"))
    try:
        yield folder
    finally:
        if (folder / KEPT).exists():
            sys.stderr.write(f"a promise was broken: {folder}\n")
        else:
            shutil.rmtree(folder, ignore_errors=True)


def broken(row: dict[str, Any]) -> bool:
    """Whether a part found a broken promise."""
    if row["part"] == "simulation":
        return bool(row["wrong"])
    if "passed" in row:
        return not row["passed"]
    return is_broken(row)


def main() -> int:
    """Run the proof; status 1 if a promise was broken in this run."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=240.0)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--lines", type=int, default=10_000_000, help="of the part of that name")
    parser.add_argument("--cuts", type=int, default=350, help="under each store")
    parser.add_argument("--artifact", type=Path, default=None, help="default: the stable one")
    parser.add_argument("--failovers", type=int, default=50, help="of the part of that name")
    parser.add_argument("--seed", type=int, default=1, help="the least: for runs side by side")
    parser.add_argument("--out", type=Path, default=ROWS, help="rows of all runs, JSON")
    given = parser.parse_args()
    results = Results(given.out, given.seed)
    before = len(results.rows)
    with contextlib.suppress(KeyboardInterrupt):
        prove(results, given, given.artifact or find_artifact())
    return int(any(broken(row) for row in results.rows[before:]))


if __name__ == "__main__":
    sys.exit(main())

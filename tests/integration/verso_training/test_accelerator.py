"""Every training is done on the accelerator that PyTorch names, and what it leaves needs none.

The accelerator is a stand-in with data of its own (``tests.accelerator``): what is left behind on
the processor, or read from there, is refused as by a GPU. It is registered where a GPU's is, by
``import torch`` in the process that trains; this process has none.
"""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from tests import accelerated, accelerator, made_up

from verso_training import device
from verso_training.decoder import train
from verso_training.heads import backbone, recipe
from verso_training.heads.fitting import AdapterRun, Budget
from verso_training.heads.reader import Reader

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the trainings have been done, a folder and a JSON file of each."""
    made = tmp_path_factory.mktemp("accelerated")
    site = accelerator.announce(made / "site")
    paths = [str(site), *filter(None, sys.path), str(ROOT)]
    kinds = (*accelerated.KINDS, *accelerated.MORE) if _ALL else accelerated.KINDS
    subprocess.run(
        [sys.executable, "-m", "tests.accelerated", made, *(one.__name__ for one in kinds)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        stdout=subprocess.DEVNULL,
        check=True,
    )
    return made


_ALL = os.environ.get("ACCELERATED") == "all"


def told(folder: Path, kind: str, *, least: int = 1000) -> dict[str, Any]:
    """What came out of a training that was done there."""
    found: dict[str, Any] = json.loads((folder / f"{kind}.json").read_text(encoding="utf-8"))
    assert "error" not in found, found["error"]
    assert sum(found["done"].values()) > least
    return found


def test_a_head_on_vectors_is_trained_there_and_published(folder: Path) -> None:
    found = told(folder, "vectors")
    assert found["reads"] == "vector"
    assert found["metrics"]["accuracy"] > 0.9


def test_adapters_are_trained_there_and_read_here(folder: Path) -> None:
    found = told(folder, "adapters")
    assert all(math.isfinite(one) for row in found["logits"] for one in row)
    assert all(0.0 < one < 1.0 for one in found["scores"])


@pytest.mark.skipif(not _ALL, reason="exports two encoders more: ACCELERATED=all")
@pytest.mark.parametrize(("kind", "figure"), [("tokens", "accuracy"), ("score", "test_auroc")])
def test_other_heads_are_trained_there_and_published(folder: Path, kind: str, figure: str) -> None:
    assert told(folder, kind)["metrics"][figure] > 0.9


def test_a_reader_that_was_killed_goes_on_there_and_is_published(folder: Path) -> None:
    killed = json.loads((folder / "killed.json").read_text(encoding="utf-8"))
    assert killed == {"signal": signal.SIGKILL}
    found = told(folder, "resumed")
    assert found["task"] == "answer"
    assert found["metrics"]["test_f1"] > 80


def test_a_checkpoint_from_there_is_gone_on_from_where_there_is_none(folder: Path) -> None:
    assert device.fastest() == device.PROCESSOR
    asked = {"name": "head", "task": "answer", "reads": "token_pair", "answer": made_up.SETTINGS}
    module = Reader(backbone.load(accelerated.ARTIFACT), recipe.parse(asked).answer)
    run: AdapterRun[Any] = AdapterRun(
        module,
        Budget(1.0, 1.0, 1e-3, 800),
        main=[],
        losses=module.losses,
        folder=folder / "killed" / "job" / "run",
    )
    assert run._position.step == accelerated.KILLED_AT
    moments = [state["exp_avg"] for state in run._optimiser.state.values()]
    assert {one.device for one in moments} == {torch.device("cpu")}
    assert any(one.any() for one in moments)


def test_a_decoder_is_trained_there_and_goes_on_there(folder: Path) -> None:
    found = told(folder, "decoder")
    assert found["steps"] == [6, 9]
    assert found["device"] == "cpu"
    assert found["done"][accelerator.NARROWED] > 50
    assert train.load_scale(folder / "decoder" / "run") == found["scale"]


@pytest.mark.skipif(not _ALL, reason="fits a codec for half a minute: ACCELERATED=all")
def test_a_decoder_is_trained_further_there_and_published(folder: Path) -> None:
    found = told(folder, "collected")
    assert found["kept"]
    assert found["done"][accelerator.NARROWED] > 50
    assert found["neural"][1] < found["neural"][0]


def test_the_papers_tasks_are_trained_there(folder: Path) -> None:
    found = told(folder, "studies", least=500)
    assert found["done"][accelerator.NARROWED] > 20
    assert all(math.isfinite(one) for one in found["cosines"])
    assert all(math.isfinite(one) for row in found["logits"] for one in row)


def test_what_is_mixed_is_refused_as_by_a_gpu(folder: Path) -> None:
    """Else the tests above could not fail."""
    assert "one device" in told(folder, "mixed", least=-1)["refused"]

"""An entry of the GPU's queue from end to end on a processor, with a tiny decoder."""

from __future__ import annotations

import json
import lzma
import time
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import torch

from studies.gpu.catalogue import ENTRIES, Entry, Places, Step
from studies.gpu.queue import Queue

LINES = [f"the worker {at} stops and the queue of {at % 7} waits for it" for at in range(60)]
MADE_UP = "data = { total_bytes = 4000, validation_chunks = 8 }\n"
SMALL = """
[tokenizer]
vocab = 300
[model]
vocab = 300
width = 16
layers = 1
heads = 1
kv_heads = 1
head_dim = 16
slots = 2
[train]
device = "fastest"
compile = true
threads = 1
bfloat16 = false
max_steps = 60
tokens_per_step = 256
checkpoint_minutes = 1e-9
evaluate_chunks = 2
"""


def _packed(path: Path, rows: list[Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(lzma.compress("".join(json.dumps(row) + "\n" for row in rows).encode()))


@pytest.fixture
def places(tmp_path: Path) -> Places:
    """A few lines in the places of the public data, and a recipe of seconds."""
    data = tmp_path / "data"
    rows = [{"id": f"{at}", "text": line} for at, line in enumerate(LINES)]
    for name in ("techdocs", *(f"books_{i}" for i in range(1, 5)), "factbook1995"):
        _packed(data / "prose" / f"{name}.jsonl.xz", [])
    for name in ("rcheck", "rinstall", "defects4j", "syzkaller", "ci_logdx"):
        _packed(data / f"logs_{name}" / "train.jsonl.xz", rows[:40] if name == "rcheck" else [])
        _packed(data / f"logs_{name}" / "dev.jsonl.xz", rows[40:] if name == "rcheck" else [])
    for name in ("squad11", "squad2"):
        _packed(data / "qa_squad" / f"{name}_dev_shared.json.xz", [{"data": []}])
    titles: dict[str, list[str]] = {"train_11_only": [], "train": [], "dev": []}
    (data / "qa_squad" / "split_by_article.json").write_text(json.dumps(titles))
    recipe = tmp_path / "small.toml"
    recipe.write_text(MADE_UP + SMALL)
    return Places(data, tmp_path, tmp_path / "work", str(recipe))


def _queue(places: Places, name: str = "conditioning", **options: Any) -> Queue:
    entry = options.pop("entry", None) or ENTRIES[name]
    return Queue(name, entry, places, minutes=10, command="the test", **options)


def test_an_entry_that_its_budget_ends_goes_on_and_writes_its_figures(places: Places) -> None:
    state = places.work / "conditioning-memory" / "state.pt"

    def until_the_first_checkpoint() -> float:
        return 1e9 if state.exists() else 0.0

    cut = _queue(places, clock=until_the_first_checkpoint)
    assert cut.run() is False
    told = json.loads(cut.figures.read_text())
    prepared, memory, cross = told["steps"]
    assert (prepared["status"], cross["status"]) == ("ended", "not started")
    assert memory["status"] == "cut off"
    reached = torch.load(state, weights_only=True)["progress"]["step"]
    assert 0 < reached < 60
    whole = _queue(places)
    assert whole.run() is True
    told = json.loads(whole.figures.read_text())
    assert told["ended"] is True
    assert told["entry"] == "conditioning"
    assert told["versions"]["torch"] == metadata.version("torch")
    assert told["steps"][0] == prepared
    again, cross = told["steps"][1:]
    assert again["seconds"] > memory["seconds"]
    assert again["exit"] == 0
    for step in (again, cross):
        (row,) = step["files"].values()
        assert row["step"] == 60
        assert row["vector"]["all"]["bits_per_byte"] > 0
    model = json.loads((places.work / "conditioning-cross" / "recipe.json").read_text())["model"]
    assert model["conditioning"] == "cross"
    began_s = time.monotonic()
    assert _queue(places).run() is True  # nothing is left to do
    assert time.monotonic() - began_s < 1.0


def test_a_step_that_fails_stops_only_those_that_need_it(places: Places) -> None:
    def step(name: str, module: str, *needs: str, words: str = "") -> Step:
        return Step(name, module, words, figures=(f"{name}/*.json",), needs=needs)

    entry = Entry(
        1.0,
        (
            step("wrong", "no.such.module"),
            step("needs-it", "this", "wrong"),
            step("missing", "this", words="{work}/none/*"),
            step("right", "this"),
        ),
    )
    made = _queue(places, "made-up", entry=entry)
    assert made.run() is False
    told = json.loads(made.figures.read_text())
    status = {one["name"]: one["status"] for one in told["steps"]}
    assert status == {
        "wrong": "failed",
        "needs-it": "not started",
        "missing": "failed",
        "right": "ended",
    }
    assert "The Zen of Python" in (places.work / "steps" / "right.out").read_text()

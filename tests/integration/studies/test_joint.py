"""Encoder and decoder trained together for a few steps, on the artifact for tests."""

from __future__ import annotations

import copy
import dataclasses
import functools
import itertools
import json
import lzma
import shutil
from pathlib import Path

import pytest
import torch
from tests.support.untrained_encoder import untrained
from tokenizers import Tokenizer

from studies.__main__ import main
from studies.papers.joint import artifact, run, study
from studies.papers.joint.arms import Arm, Trained
from studies.quality.classification import Bench
from verso_core import manifest
from verso_training import config, encoder
from verso_training.artifact import tuning
from verso_training.config import Conditioning, Recipe, RecipeInvalid
from verso_training.data import dataset, sources
from verso_training.data.sources import Chunk, Document, Split
from verso_training.encoder import SentenceEncoder

ARTIFACT = Path(__file__).parents[2] / "data" / "artifact-tiny"
TEXTS = [f"the worker stops {number} times" for number in range(40)]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """Texts in the places of the public data."""
    data = tmp_path / "data"
    scored = "".join(f"{text},the queue waits,{at % 5}\n" for at, text in enumerate(TEXTS))
    (data / "sim_stsb").mkdir(parents=True)
    (data / "sim_stsb" / "stsb-en-train.csv.xz").write_bytes(lzma.compress(scored.encode()))
    (data / "sim_stsb" / "stsb-en-dev.csv").write_text(scored)
    searched = data / "ir_scifact"
    (searched / "qrels").mkdir(parents=True)
    rows = "".join(
        json.dumps({"_id": str(at), "text": text}) + "\n" for at, text in enumerate(TEXTS)
    )
    (searched / "corpus.jsonl").write_text(rows)
    (searched / "queries.jsonl").write_text(rows)
    judged = "".join(f"{at}\t{at}\t1\n" for at in range(40))
    (searched / "qrels" / "train.tsv").write_text(f"query-id\tcorpus-id\tscore\n{judged}")
    questions = {
        "title": "a",
        "paragraphs": [
            {
                "context": "The worker stops. The queue waits.",
                "qas": [
                    {"id": f"{at}", "question": "What stops?", "answers": [{"text": "worker"}]}
                    for at in range(9)
                ],
            }
        ],
    }
    asked = data / "qa_squad"
    asked.mkdir()
    (asked / "split_by_article.json").write_text(json.dumps({"train": ["a"], "train_11_only": []}))
    for name, articles in (("squad2", [questions]), ("squad11", [])):
        packed = lzma.compress(json.dumps({"data": articles}).encode())
        (asked / f"{name}_dev_shared.json.xz").write_bytes(packed)
    return Bench(data=data, artifact=ARTIFACT, work=tmp_path / "work")


@functools.cache
def _encoder() -> tuple[SentenceEncoder, Tokenizer]:
    # An export is tried with token ids up to 100, so there have to be as many.
    more = " ".join(map("".join, itertools.product("abcdefghijkl", repeat=2)))
    return untrained([*TEXTS, more], dim=manifest.read(ARTIFACT).space.dim, seed=3)


def _load() -> tuple[SentenceEncoder, Tokenizer]:
    """Return the same encoder each time: its words may be others when they are learnt again."""
    made, words = _encoder()
    return copy.deepcopy(made), words


def _recipe() -> Recipe:
    """Return the artifact's sizes and a training of four steps."""
    values = config.load("tiny").to_dict()
    short = {"max_steps": 4, "warmup_steps": 1, "minutes": 10.0, "checkpoint_minutes": 1e-9}
    return config.parse({**values, "name": "joint", "train": {**values["train"], **short}})


def _prepare(bench: Bench) -> None:
    """Write the texts as ``study.prepared`` would those of the public data."""
    folder = bench.work / "papers" / "joint" / "data"
    folder.mkdir(parents=True)
    model, words = _load()
    vectors = encoder.encode(model, words, texts=TEXTS)
    tokens = dataset.encode(tuning.tokenizer(manifest.load(ARTIFACT)), TEXTS)
    for split in Split:
        chunks = [Chunk(text, "logs", "own") for text in TEXTS]
        dataset.write(folder, split, chunks, tokens=tokens, vectors=vectors)
    (folder / "done").touch()


@pytest.mark.parametrize(
    "arm",
    [
        Arm(Trained.NOTHING),
        Arm(Trained.ADAPTER),
        Arm(Trained.ALL),
        Arm(Trained.ALL, Conditioning.CROSS),
    ],
    ids=lambda arm: arm.name,
)
def test_an_arm_is_trained_and_measured(bench: Bench, arm: Arm) -> None:
    _prepare(bench)
    found = study.run(bench, recipe=_recipe(), arms=[arm], load=_load)
    told = found[arm.name]
    assert told["steps"] == 4
    assert told["logs/none"] - told["logs/vector"] == pytest.approx(told["logs/saved"])
    assert 0 <= told["scifact"] <= 100
    assert study.page(found).count(f"\n| {arm.name} |") == 2


def test_a_stopped_training_goes_on_where_it_was(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    _prepare(bench)
    arm, recipe = Arm(Trained.ALL), _recipe()
    work = bench.work / "papers" / "joint" / "10" / arm.name
    counted = itertools.count(1)

    def stopping(one: run.JointRun) -> None:
        save(one)
        if next(counted) == 2:
            raise KeyboardInterrupt

    save = run.JointRun.save
    with monkeypatch.context() as patched:
        patched.setattr(run.JointRun, "save", stopping)
        with pytest.raises(KeyboardInterrupt):
            study.run(bench, recipe=recipe, arms=[arm], load=_load)
    assert torch.load(work / "state.pt", weights_only=True)["progress"]["step"] == 2
    study.run(bench, recipe=recipe, arms=[arm], load=_load)
    state = torch.load(work / "state.pt", weights_only=True)
    assert state["progress"]["step"] == 4
    whole = dataclasses.replace(bench, work=bench.work / "whole")
    _prepare(whole)
    study.run(whole, recipe=recipe, arms=[arm], load=_load)
    path = whole.work / "papers" / "joint" / "10" / arm.name / "state.pt"
    for name, weight in torch.load(path, weights_only=True)["encoder"].items():
        torch.testing.assert_close(state["encoder"][name], weight)


def test_an_arm_wins_nothing_over_itself_and_is_written_as_an_artifact(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _prepare(bench)
    scifact, cacm = (bench.data / name for name in artifact.SEARCHES)
    shutil.copytree(scifact, cacm)
    for folder in (scifact, cacm):
        shutil.copyfile(folder / "qrels" / "train.tsv", folder / "qrels" / "test.tsv")
    arms = {arm.name: arm for arm in (Arm(Trained.ALL), Arm(Trained.NOTHING))}
    recipe = _recipe()
    study.run(bench, recipe=recipe, arms=arms.values(), load=_load)
    documents = [
        Document("logs", "own", f"{split}{at}", text, split)
        for split in Split
        for at, text in enumerate(TEXTS)
    ]
    monkeypatch.setattr(sources, "documents", lambda _: documents)
    monkeypatch.setattr(sources, "foreign", lambda _: [])
    same = artifact.run(bench, arms, "all layers", "all layers", recipe=recipe, load=_load)
    kept = {key: value for key, value in same.items() if "bits of a record" in key}
    assert kept
    assert all(value > 0.0 for value in kept.values())
    assert {value for key, value in same.items() if key not in kept} == {0.0}
    out = tmp_path / "own"
    won = artifact.run(bench, arms, "all layers", None, recipe=recipe, load=_load, out=out)
    alone = artifact.run(bench, arms, "all layers", "frozen", recipe=recipe, load=_load)
    assert won["logs, bits won"] != 0.0
    assert won["logs, bits won"] != alone["logs, bits won"]  # the frozen arm's decoder has learnt
    assert artifact.page(won).count("\n| ") == 5
    made, before = manifest.load(out).manifest, manifest.load(ARTIFACT).manifest
    assert made.space.id != before.space.id
    assert made.codec.id != before.codec.id


def test_an_adapter_is_no_artifact(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _prepare(bench)
    monkeypatch.setattr(sources, "foreign", lambda _: [])
    arm, recipe = Arm(Trained.ADAPTER), _recipe()
    study.run(bench, recipe=recipe, arms=[arm], load=_load)
    with pytest.raises(RecipeInvalid, match="without an adapter"):
        artifact.run(
            bench, {arm.name: arm}, arm.name, None, recipe=recipe, load=_load, out=tmp_path / "own"
        )


def test_an_arm_is_asked_for_by_its_name(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    where = ["--data", str(tmp_path), "--artifact", str(ARTIFACT), "--work", str(tmp_path)]
    with pytest.raises(SystemExit):
        main(["joint", *where, "--only", "all layers", "some layers"])
    told = capsys.readouterr().err
    assert "invalid choice: 'some layers'" in told
    assert "adapter before pooling" in told

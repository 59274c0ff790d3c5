"""Trainings of every kind, done where this process is told that it has an accelerator.

    python -m tests.accelerated FOLDER [KIND ...]

``FOLDER/NAME.json`` then tells of each what came out, or the error. Each is done in a process of
its own, forked when everything has been loaded, so that one can be killed as a trainer can.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tests import accelerator, made_up
from tests.support import tiny_artifact
from tests.support.untrained_encoder import untrained
from torch import nn

from studies.tasks import distillation, steps
from studies.tasks.distillation import Taught
from studies.tasks.pairs import siamese
from studies.tasks.pairs.siamese import Siamese
from verso_core import heads, questions
from verso_core.heads import Task
from verso_core.jobs.train import Labelled, Scored, pack_pairs, pack_rows
from verso_training import config, device
from verso_training.artifact import collection
from verso_training.config import Recipe
from verso_training.data import dataset
from verso_training.decoder import train
from verso_training.heads import backbone, scoring, token_classifier
from verso_training.heads.fitting import AdapterRun, Budget
from verso_training.heads.modules import CrossEncoder, SequenceClassifier
from verso_training.heads.ranking import groups as ranking
from verso_training.heads.ranking.groups import Group
from verso_training.heads.scoring import Pair
from verso_training.service import job

ARTIFACT = Path(__file__).parent / "data" / "artifact-tiny"
KILLED_AT = 30
"""Steps after which the reader's process is killed; each of them is in a checkpoint."""


def request(
    folder: Path, task: Task, data: bytes, recipe: Mapping[str, Any], *, name: str = "head"
) -> Path:
    """Lay out what a trainer does for the process of one training."""
    made, models = folder / "job", folder / "models"
    models.mkdir(parents=True, exist_ok=True)
    made.mkdir(exist_ok=True)
    (made / "rows.jsonl").write_bytes(data)
    params = {
        "head": name,
        "task": task,
        "source": {"collection": None, "label_key": None},
        "recipe": dict(recipe),
        "share": 0.5,
        "new_labels": False,
        "licence": "CC0-1.0",
    }
    told = {"params": params, "artifact": str(ARTIFACT), "models": str(models), "threads": 1}
    (made / "request.json").write_text(json.dumps(told), encoding="utf-8")
    return made


def reader(folder: Path, **settings: Any) -> Path:
    """Ask for a head that answers."""
    asked = questions.pack(questions.read(made_up.squad()))
    return request(folder, Task.ANSWER, asked, {"answer": made_up.SETTINGS | settings})


def _published(folder: Path) -> dict[str, Any]:
    """Train, and load what was published as a worker would."""
    result = job.train(folder)
    place = folder.parent / "models" / "heads" / "head" / result["version"]
    loaded = heads.load(place).head
    return {"task": loaded.task, "reads": loaded.reads, "metrics": dict(loaded.metrics)}


def _lines(count: int = 120) -> bytes:
    kinds = ("disk", "login")
    return pack_rows([Labelled(f"{kinds[n % 2]} {n} on host", kinds[n % 2]) for n in range(count)])


def vectors(folder: Path) -> dict[str, Any]:
    """A classifier on vectors: trained, exported, compared with its graph, published."""
    recipe = {"classify": {"hidden": 8, "l2": [1e-3], "iterations": 20}}
    return _published(request(folder, Task.CLASSIFY, _lines(), recipe))


def tokens(folder: Path) -> dict[str, Any]:
    """A classifier on tokens, with an adapter and dropout, likewise."""
    settings = {"rate": 4e-3, "rank": 4, "epochs": 6, "dropout": 0.1, "tokens_per_step": 400}
    recipe = {"reads": "tokens", "classify": settings}
    return _published(request(folder, Task.CLASSIFY, _lines(), recipe))


def score(folder: Path) -> dict[str, Any]:
    """A scorer of pairs, likewise."""
    scored = pack_pairs([Scored(*one.values()) for one in made_up.pairs()])  # type: ignore[arg-type]
    settings = {"rate": 4e-3, "rank": 8, "start": "", "epochs": 8}
    return _published(request(folder, Task.SCORE, scored, {"score": settings}))


def adapters(folder: Path) -> dict[str, Any]:
    """Some steps of what ``tokens`` and ``score`` train, and of a ranker; nothing is exported."""
    base, other = backbone.load(ARTIFACT), backbone.load(ARTIFACT)
    classifier = SequenceClassifier(backbone.adapt(base, rank=2, alpha=4.0, dropout=0.1), classes=2)
    lines = [(f"worker {n % 2} stops", n % 2) for n in range(32)]
    texts = token_classifier.tokenised(lines, base.tokenizer, max_tokens=32)
    scorer = CrossEncoder(backbone.adapt(other, rank=2, alpha=4.0))
    fits = [Pair(text, "which one stops", float(kind)) for text, kind in lines]
    rows = scoring.tokenised(fits, other.tokenizer, max_tokens=32)
    weights = torch.ones(2)
    _fitted(classifier, texts, token_classifier.losses(classifier, weights))
    _fitted(scorer, rows, scoring.losses(scorer))
    groups = [Group("which one stops", "worker 1 stops", (text,)) for text, _ in lines]
    ranked = ranking.tokenised(groups, other.tokenizer, max_tokens=32)
    _fitted(scorer, ranked, ranking.losses(scorer))
    return {
        "logits": token_classifier.outputs(classifier, texts)[0].tolist(),
        "scores": scoring.scores(scorer, rows).tolist(),
    }


def _fitted(module: nn.Module, rows: Sequence[Any], losses: Callable[..., Any]) -> None:
    budget = Budget(1.0, 2.0, 1e-3, 200, patience=3)
    run = AdapterRun(module, budget, main=rows, losses=losses, held_out=rows)
    run.train(on_progress=lambda _: None, should_stop=lambda: False)


def killed(folder: Path) -> dict[str, Any]:
    """A reader, whose process is killed amid its training."""
    save = AdapterRun.save

    def saved(run: AdapterRun[Any]) -> None:
        save(run)
        if run._position.step >= KILLED_AT:
            os.kill(os.getpid(), signal.SIGKILL)

    AdapterRun.save = saved  # type: ignore[assignment, method-assign]
    return _published(reader(folder, checkpoint_minutes=0.0))


def resumed(folder: Path) -> dict[str, Any]:
    """The reader that was killed, from its checkpoint, which stays as it was."""
    shutil.copytree(folder.parent / "killed", folder, dirs_exist_ok=True)
    return _published(reader(folder))


def decoder(folder: Path) -> dict[str, Any]:
    """A decoder: texts encoded, some steps, and some more from the checkpoint."""
    recipe = config.load("tiny")
    few = replace(
        recipe.train,
        device=accelerator.NAME,
        minutes=60.0,  # steps end it, however slow the machine is
        max_steps=6,
        bfloat16=True,
        evaluate_chunks=4,
    )
    recipe = replace(recipe, train=few)
    pool = list(tiny_artifact.documents(count=60))
    texts = untrained([one.text for one in pool], dim=recipe.model.vector_dim)
    dataset.prepare(recipe, pool, folder=folder / "data", sentence_encoder=texts)

    def run(recipe: Recipe, *, resume: bool) -> train.Run:
        made = train.Run(recipe, data=folder / "data", folder=folder / "run", resume=resume)
        made.train()
        return made

    first = run(recipe, resume=False)
    more = replace(recipe, train=replace(few, max_steps=9))
    last = run(more, resume=True)
    return {
        "steps": [first.progress.step, last.progress.step],
        "device": str(next(last.decoder.parameters()).device),
        "scale": train.load_scale(folder / "run"),
    }


def collected(folder: Path) -> dict[str, Any]:
    """A decoder trained further on a collection, exported and checked."""
    rng = np.random.default_rng(4)
    words = ("amber", "basin", "cedar", "delta", "ember", "fjord")
    texts = ["the {} lies behind the {}".format(*rng.choice(words, 2)).encode() for _ in range(80)]
    ticks = itertools.count(0.0, 1.0).__next__
    collection.WORTH = -10.0
    report = collection.fit(
        ARTIFACT,
        texts,
        folder=folder / "fitted",
        name="fitted",
        budget=config.Budget(0.2, clock=ticks),
    )
    assert report.training is not None
    return {"kept": report.training.kept, "neural": list(report.training.neural)}


def studies(folder: Path) -> dict[str, Any]:
    """What the papers' tasks train: vectors apart, and a student with its teacher."""
    base = backbone.load(ARTIFACT)
    apart = Siamese(backbone.adapt(base, rank=2, alpha=4.0, dropout=0.1))
    rows = siamese.tokenised(
        [Pair(f"worker {n} stops", "a worker stops", n % 2) for n in range(16)],
        base.tokenizer,
    )
    student = SequenceClassifier(distillation.halved(backbone.load(ARTIFACT).bert), classes=3)
    texts = token_classifier.tokenised(
        [(f"worker {n} stops", n % 3) for n in range(16)], base.tokenizer, max_tokens=32
    )
    even = np.zeros(3, np.float32)
    taught = [Taught(one.ids, one.target, even) for one in texts]
    for task in (
        steps.Task("apart", apart, rows, siamese.losses(apart, ranking=True), 2, 1),
        steps.Task("student", student, taught, distillation.losses(student, weight=0.5), 3, 1),
    ):
        steps.train(steps.one_task(task), rates=steps.FULL, seed=0, title=task.name)
    return {
        "cosines": siamese.stored_cosines(apart, rows, scale=100.0).tolist(),
        "logits": token_classifier.outputs(student, texts)[0].tolist(),
    }


def mixed(folder: Path) -> dict[str, Any]:
    """A product of what is there with what is here."""
    there = torch.ones(2, 2).to(device.fastest())
    try:
        there @ torch.ones(2, 2)
    except RuntimeError as error:
        return {"refused": str(error)}
    return {"refused": ""}


Kind = Callable[[Path], dict[str, Any]]
KINDS: tuple[Kind, ...] = (vectors, adapters, killed, resumed, decoder, studies, mixed)
MORE: tuple[Kind, ...] = (tokens, score, collected)
"""Take long, for an encoder is exported or a codec is fitted: done where they are named."""


def _alone(kind: Kind, folder: Path) -> None:
    """Do one training in a child of this process."""
    place, told = folder / kind.__name__, folder / f"{kind.__name__}.json"
    place.mkdir(parents=True, exist_ok=True)
    child = os.fork()
    if child == 0:
        try:
            found = kind(place) | {"done": dict(accelerator.done)}
        except BaseException as error:  # noqa: BLE001 - it is told
            found = {"error": "".join(traceback.format_exception(error))}
        told.write_text(json.dumps(found), encoding="utf-8")
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        told.write_text(json.dumps({"signal": os.WTERMSIG(status)}), encoding="utf-8")


if __name__ == "__main__":
    torch.set_num_threads(1)
    chosen = [one for one in (*KINDS, *MORE) if one.__name__ in sys.argv[2:]]
    for one in chosen or KINDS:
        _alone(one, Path(sys.argv[1]))

"""The process of one training: ``python -m verso_training.service.job FOLDER``.

It reads the folder that :mod:`verso_training.service.trainer` describes, trains, and writes
``result.json``: the head's version and figures, or the error. It prints progress, one JSON object a
line. It exits when its standard input ends, because its parent is then dead.
"""

from __future__ import annotations

import json
import logging
import math
import os
import sys
import threading
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from verso_core import files, heads, manifest, questions, registry, telemetry
from verso_core.errors import (
    LabelsChanged,
    RequestInvalid,
    VersoError,
    error_body,
)
from verso_core.heads import Head, Reads, Task
from verso_core.interpreter import end_at_once, loading
from verso_core.jobs.train import (
    Labelled,
    check_rows,
    holds_groups,
    unpack_groups,
    unpack_pairs,
    unpack_rows,
)
from verso_core.registry import Channel
from verso_training.config import RecipeInvalid
from verso_training.heads import recipe as recipes
from verso_training.heads.recipe import HeadRecipe
from verso_training.heads.rows import Row, RowSplit, check
from verso_training.service.process import RESULT_NAME

if TYPE_CHECKING:
    from verso_training.heads.context import HeadReport, TrainingContext
    from verso_training.heads.graph import Start
    from verso_training.heads.shipping import Provenance
    from verso_training.heads.vectors import Progress

RUN_NAME = "run"
"""Checkpoints of an adapter's training, in the job's folder."""
_READS = {
    Task.CLASSIFY: Reads.VECTOR,
    Task.ANSWER: Reads.TOKEN_PAIR,
    Task.SCORE: Reads.TOKEN_PAIR,
}
_START = {Task.ANSWER: "qa", Task.SCORE: "pairs"}
"""Heads that a training starts from if its recipe names none."""
_PASSAGES = {"max_tokens": 256, "tokens_per_step": 3072}
"""Settings of a head that reads passages, of about 1 KiB, if its recipe does not say them."""
_log = logging.getLogger(__name__)


def main(argv: Sequence[str] | None = None) -> int:
    """Train once."""
    [name] = sys.argv[1:] if argv is None else argv
    folder = Path(name)
    threading.Thread(target=_watch_parent, daemon=True).start()
    try:
        result = train(folder)
    except RecipeInvalid as error:
        result = {"error": error_body(RequestInvalid(f"recipe: {error}"))}
    except VersoError as error:
        result = {"error": error_body(error)}
    except Exception as error:  # noqa: BLE001 - its message may contain a text
        stack = "".join(traceback.format_tb(error.__traceback__))
        _log.error("training failed: %s\n%s", type(error).__name__, stack)
        return 1
    files.replace(folder / RESULT_NAME, json.dumps(result).encode())
    return 0


def train(folder: Path) -> dict[str, Any]:
    """Train the head that a job's folder describes; return its version and figures.

    Raises:
        VersoError: the request cannot be trained.
        RecipeInvalid: the recipe has an unknown setting or an invalid value.
    """
    request = json.loads((folder / "request.json").read_bytes())
    name, task = str(request["params"]["head"]), Task(request["params"]["task"])
    stable = _stable(Path(request["models"]), name)
    if stable is not None and stable.task is not task:
        raise RequestInvalid(
            f"expected a free name or that of a head to {task}; {name} is one to {stable.task}"
        )
    if task is Task.CLASSIFY:
        report = _classifier(request, folder, stable)
    else:
        report = _adapter(request, folder, task)
    return {
        "head": name,
        "version": report.head.version,
        "space": report.head.space,
        "labels": list(report.head.labels),
        "rows": dict(report.rows),
        "dropped_labels": list(report.dropped_labels),
        "contradicted": report.contradicted,
        "metrics": dict(report.head.metrics),
        "data_sha256": report.head.lineage.data_sha256,
    }


def _classifier(request: Mapping[str, Any], folder: Path, stable: Head | None) -> HeadReport:
    params, name = request["params"], str(request["params"]["head"])
    rows = read_rows(folder)
    # Clients may rely on the labels of the stable version.
    known = None if stable is None or params["new_labels"] else set(stable.labels)
    if known is not None:
        space = manifest.load(Path(request["artifact"])).manifest.space
        # A label with too few rows to train on is dropped, so it counts as missing.
        _expect_labels(known, set(check(rows, dim=space.dim).labels), name)
    recipe = _recipe(request)
    if recipe.reads is Reads.VECTOR:
        recipes.check_chunk(recipe, rows)
    # Torch takes seconds to load: errors in the rows and the recipe are raised before.
    with loading():
        from verso_training.heads.token_classifier import train_token_classifier
        from verso_training.heads.vector_classifier import train_head

    telemetry.adopt("torch")
    context = _context(request, folder)
    train_it = train_token_classifier if recipe.reads is Reads.TOKENS else train_head
    return train_it(recipe, rows, context)


def _adapter(request: Mapping[str, Any], folder: Path, task: Task) -> HeadReport:
    """Train a head that reads tokens, from its last checkpoint if there is one."""
    data = (folder / "rows.jsonl").read_bytes()
    ranks = task is Task.SCORE and holds_groups(data)
    recipe = _recipe(request, usual=_PASSAGES if ranks else None)
    with loading():
        from verso_training.heads.ranking.training import train_ranker
        from verso_training.heads.reading import train_reader
        from verso_training.heads.scoring import train_scorer

    telemetry.adopt("torch")
    begin = recipe.answer.start if task is Task.ANSWER else recipe.score.start
    named = request["params"]["recipe"].get(str(task), {}).get("start")
    start = _start(request, begin, task=task, expected=named is not None)
    context = replace(_context(request, folder), start=start)
    if task is Task.ANSWER:
        return train_reader(recipe, questions.unpack(data), context)
    if ranks:
        return train_ranker(recipe, unpack_groups(data), context)
    return train_scorer(recipe, unpack_pairs(data), context)


def _context(request: Mapping[str, Any], folder: Path) -> TrainingContext:
    from verso_training.heads.context import TrainingContext

    return TrainingContext(
        artifact=Path(request["artifact"]),
        out_dir=Path(request["models"]) / registry.HEADS,
        provenance=_provenance(request["params"]),
        run=folder / RUN_NAME,
        on_progress=_report,
    )


def _recipe(request: Mapping[str, Any], usual: Mapping[str, Any] | None = None) -> HeadRecipe:
    params = request["params"]
    task = Task(params["task"])
    values = {"threads": request["threads"], "reads": _READS[task], **params["recipe"]}
    if task is not Task.CLASSIFY and isinstance(values.setdefault(str(task), {}), dict):
        values[str(task)] = {"start": _START[task], **(usual or {}), **values[str(task)]}
    return recipes.parse({**values, "name": params["head"], "task": params["task"]})


def _start(request: Mapping[str, Any], name: str, *, task: Task, expected: bool) -> Start | None:
    """Return the head that a training starts from; None if there is none.

    A head never starts from itself: it would be measured on rows that it was trained on.

    Raises:
        VersoError: the request names it (``expected``), and it cannot be started from.
    """
    from verso_training.heads import graph

    if not name or name == request["params"]["head"]:
        return None
    folder = Path(request["models"])
    try:
        path = registry.head(folder, name, Channel.STABLE)
        space = manifest.load(Path(request["artifact"])).manifest.space.id
        found = graph.load(path, space=space)
    except VersoError as error:
        if expected:
            raise
        _log.info("training starts from the encoder: %s", error.detail)
        return None
    if found.head.task is not task or not found.head.reads.tokens:
        raise RequestInvalid(f"expected a {task} head to start from, got {name}")
    return found


def _provenance(params: Mapping[str, Any]) -> Provenance:
    from verso_training.heads.shipping import Provenance

    return Provenance(
        data=(_described(params),),
        licence=params["licence"],
        command=f"verso train head {params['head']} --task {params['task']}",
    )


def _described(params: Mapping[str, Any]) -> str:
    """Return the source of a request's rows, for the head's lineage."""
    source = params["source"]
    if source.get("collection") is not None:
        return f"collection {source['collection']}, label {source['label_key']}"
    return "rows of the request"


def _report(progress: Progress) -> None:
    # JSON has no NaN; the head's own metrics hold the long tables of signals and risks.
    figures = {k: v for k, v in progress.metrics.items() if "/" not in k and math.isfinite(v)}
    row = {"stage": "train", "share": round(progress.share, 4), "metrics": figures}
    sys.stdout.write(json.dumps(row) + "\n")
    sys.stdout.flush()


def read_rows(folder: Path) -> list[Row]:
    """Read the rows of a job: texts, or stored vectors.

    Raises:
        TrainingDataInvalid: no head can be trained on the rows.
    """
    texts = folder / "rows.jsonl"
    if texts.exists():
        found = unpack_rows(texts.read_bytes())
        check_rows(found)
        return [
            Row(row.label, text=row.text, split=None if row.split is None else RowSplit(row.split))
            for row in found
        ]
    about = json.loads((folder / "rows.json").read_bytes())
    vectors = np.fromfile(folder / "rows.f32", "<f4").reshape(-1, about["dim"])
    check_rows([Labelled(str(n), label) for n, label in enumerate(about["labels"])])
    return [
        Row(label, vector=vector, document=document)
        for label, vector, document in zip(
            about["labels"], vectors, about["documents"], strict=True
        )
    ]


def _stable(models: Path, name: str) -> Head | None:
    try:
        return heads.load(registry.head(models, name, Channel.STABLE)).head
    except VersoError:
        return None  # none yet, or a broken one: no client can rely on it


def _expect_labels(known: set[str], found: set[str], name: str) -> None:
    if known != found:
        more, fewer = sorted(found - known), sorted(known - found)
        raise LabelsChanged(
            f"expected the labels of the stable version of {name}; new: {more[:8]}, missing: "
            f"{fewer[:8]}; new_labels allows both"
        )


def _watch_parent() -> None:
    while os.read(0, 4096):  # not the buffered reader: its lock would still be held at exit
        pass
    os._exit(1)


if __name__ == "__main__":
    end_at_once()
    telemetry.configure("training")
    sys.exit(main())

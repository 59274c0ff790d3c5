"""What the process of one training does: ``python -m verso_training.service.job FOLDER``.

Reads the folder that :mod:`verso_training.service.desk` describes, trains, and leaves
``result.json``: the head's version and figures, or the error. It prints progress, a JSON object a
line, and ends at once when its standard input does, which is how it learns that its parent died.
"""

from __future__ import annotations

import json
import logging
import math
import os
import sys
import threading
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from verso_core import heads, registry, telemetry
from verso_core.errors import LabelsChanged, RequestInvalid, VersoError, error_body
from verso_core.registry import Channel
from verso_core.training import Labelled, check_rows, unpack_rows
from verso_training.config import RecipeInvalid
from verso_training.heads.rows import Row, RowSplit
from verso_training.service.desk import described
from verso_training.service.process import RESULT_NAME

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
    except Exception as error:  # noqa: BLE001 - its message may quote a text
        stack = "".join(traceback.format_tb(error.__traceback__))
        _log.error("the training failed: %s\n%s", type(error).__name__, stack)
        return 1
    draft = folder / f".{RESULT_NAME}"
    draft.write_text(json.dumps(result), encoding="utf-8")
    draft.replace(folder / RESULT_NAME)
    return 0


def train(folder: Path) -> dict[str, Any]:
    """Train the head that a job's folder asks for; give its version and figures.

    Raises:
        VersoError: what was asked for cannot be trained.
        RecipeInvalid: the recipe has a setting that does not exist or does not fit.
    """
    request = json.loads((folder / "request.json").read_bytes())
    params, models = request["params"], Path(request["models"])
    name = params["head"]
    rows = read_rows(folder)
    known = None if params["new_labels"] else _stable_labels(models, name)
    if known is not None:
        _expect_labels(known, {row.label for row in rows}, name)
    # Torch takes seconds to load, and what was wrong with the rows has been said by now.
    from verso_training.heads import recipe as recipes
    from verso_training.heads.shipping import Provenance
    from verso_training.heads.training import train_head
    from verso_training.heads.vectors import Progress

    telemetry.adopt("torch")

    def tell(progress: Progress) -> None:
        # JSON has no NaN; the long tables of signals and risks stand in the head's own metrics.
        figures = {k: v for k, v in progress.metrics.items() if "/" not in k and math.isfinite(v)}
        row = {"stage": "train", "share": round(progress.share, 4), "metrics": figures}
        sys.stdout.write(json.dumps(row) + "\n")
        sys.stdout.flush()

    values = {"threads": request["threads"], **params["recipe"]}
    recipe = recipes.parse({**values, "name": name, "task": params["task"]})
    report = train_head(
        recipe,
        rows,
        models / registry.HEADS,
        artifact=Path(request["artifact"]),
        provenance=Provenance(
            data=(described(params),),
            licence=params["licence"],
            command=f"verso train head {name}",
        ),
        on_progress=tell,
        should_stop=lambda: False,  # the process is ended instead
    )
    if known is not None:
        _expect_labels(known, set(report.head.labels), name)
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


def read_rows(folder: Path) -> list[Row]:
    """Read the rows of a job: texts, or stored vectors.

    Raises:
        TrainingDataInvalid: no head can be trained on them.
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
        Row(label, vector=vector) for label, vector in zip(about["labels"], vectors, strict=True)
    ]


def _stable_labels(models: Path, name: str) -> set[str] | None:
    try:
        return set(heads.load(registry.head(models, name, Channel.STABLE)).head.labels)
    except VersoError:
        return None  # there is none yet, or none that works: nobody relies on its labels


def _expect_labels(known: set[str], found: set[str], name: str) -> None:
    if known != found:
        more, fewer = sorted(found - known), sorted(known - found)
        raise LabelsChanged(
            f"expected the labels of the stable version of {name}; new are {more[:8]}, missing "
            f"{fewer[:8]}: new_labels allows that"
        )


def _watch_parent() -> None:
    while os.read(0, 4096):  # not the buffered reader: its lock is still held at the end
        pass
    os._exit(1)


if __name__ == "__main__":
    telemetry.configure("training")
    sys.exit(main())

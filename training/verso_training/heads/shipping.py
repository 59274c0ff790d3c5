"""Write a trained head as a folder that can be served, and only if it passes its own check.

Steps:

1. the graph is written into a draft folder and compared with the module (``graph.write``);
2. golden samples: inputs with the outputs of the written graph;
3. signals, card, and last ``head.json`` with the hash of every file and the version they make;
4. the draft is loaded as a worker loads it and its golden samples are run again;
5. one rename publishes it: a reader sees no head or a complete one. An error before that leaves
   nothing behind; a full disk is ``DiskFull``.

The card holds the figures of the head as Markdown.
"""

from __future__ import annotations

import json
import math
import os
import platform
import shutil
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from verso_core import files, heads, manifest
from verso_core.errors import DiskFull, HeadInvalid
from verso_core.heads import Calibration, Head, Lineage, Reads, Task
from verso_training.heads import graph
from verso_training.heads.backbone import Source
from verso_training.heads.confidence import Refusals, Report
from verso_training.heads.confidence.reports import exact
from verso_training.heads.fitting import NO_ROOM
from verso_training.heads.reader import Marks
from verso_training.heads.recipe import HeadRecipe
from verso_training.heads.signals import Fitted, Interval


def classifier(
    report: Report, calibration: Calibration, *, labels: tuple[str, ...], notes: tuple[str, ...]
) -> str:
    """Return a classifier's figures on its test rows: by source, scope, thresholds, accuracy,
    signals, risk-coverage."""
    lines = [
        *sources_table(report),
        *scope_table(report),
        f"Temperature {calibration.temperature:.3f}; answers are accepted by",
        f"`{calibration.accept_by}`. On all {report.rows} test rows:",
        "",
        *accepted_table(report),
        *limits_table(calibration),
        "",
        f"Accuracy {percent(report.accuracy)}, macro-F1 {percent(report.macro_f1)}.",
        "",
        *signals_table(report),
        "",
        *curve_table(report),
        "",
        "Brackets are 95 % intervals: of rows accepted, of errors among them and of texts given a",
        "label those of Clopper and Pearson, of the others by bootstrap over the rows.",
        "",
        f"{len(labels)} labels: {_shortened(labels)}.",
        *notes,
    ]
    return "\n".join(lines)


_READER_COLUMNS = (
    "part", "threshold", "EM", "F1", "over no answer", "F1, answerable", "unanswerable, refused",
    "given", "right",
)  # fmt: skip


def reader(
    rows: Mapping[str, tuple[float, Marks]], *, auroc: Interval, notes: Sequence[str]
) -> str:
    """Return a reader's figures: marks by part, each at a null threshold.

    The last columns are the share of questions that are given an answer, and of right ones among
    these.
    """
    lines = [
        f"| {' | '.join(_READER_COLUMNS)} |",
        "|---|" + "---:|" * (len(_READER_COLUMNS) - 1),
    ]
    for name, (threshold, found) in rows.items():
        cells = [
            found.exact, found.f1, found.over_null, found.answerable_f1, found.refused,
            found.given, found.right,
        ]  # fmt: skip
        said = " | ".join(percent(cell, scale=1.0) for cell in cells)
        lines.append(f"| {name} | {threshold:.2f} | {said} |")
    lines += [
        "",
        f"AUROC, answerable against unanswerable: {percent(auroc)}. Brackets are 95 % bootstrap",
        "intervals over the texts that are asked about.",
        "",
        *notes,
    ]
    return "\n".join(lines)


def scorer(figures: Mapping[str, float], *, notes: Sequence[str]) -> str:
    """Return a scorer's figures on its test pairs."""
    lines = [*notes, "", "| on test pairs | |", "|---|---:|"]
    lines += [f"| {name.replace('_', ' ')} | {value:.1f} |" for name, value in figures.items()]
    return "\n".join(lines)


def signals_table(report: Report) -> list[str]:
    """Return how well each signal separates right from wrong answers."""
    rows = [
        "| signal | AUGRC × 100 | accuracy of the surest 80 % | AUROC right/wrong | FPR95 |",
        "|---|---:|---:|---:|---:|",
    ]
    for name, found in report.signals.items():
        rows.append(
            f"| {name} | {percent(found.augrc, digits=2)} | {percent(found.accuracy_at_80)} "
            f"| {percent(found.auroc)} | {percent(found.fpr95)} |"
        )
    return rows


def curve_table(report: Report) -> list[str]:
    """Risk-coverage: the error rate among the surest 10 %, 20 %, ..."""
    heading = " | ".join(f"{10 * c} %" for c in range(1, 11))
    rows = [f"| errors, %, among the surest | {heading} |", "|---|" + "---:|" * 10]
    for name, curve in report.curve.items():
        told = (share_of(risk, of=report.rows * c / 10) for c, risk in enumerate(curve, start=1))
        rows.append(f"| {name} | {' | '.join(told)} |")
    return rows


def scope_table(report: Report) -> list[str]:
    """Return how well each signal separates texts in scope, or nothing without such figures."""
    if not report.scope:
        return []
    rows = ["| signal, in scope against out of scope | AUROC | FPR95 |", "|---|---:|---:|"]
    for name, found in report.scope.items():
        rows.append(f"| {name} | {percent(found.auroc)} | {percent(found.fpr95)} |")
    return [*rows, ""]


def accepted_table(report: Report) -> list[str]:
    """Return the coverage and error rate of each threshold."""
    if not report.accepted:
        return ["No threshold: too few calibration rows for any error rate."]
    rows = [
        "| errors asked for | accepted, % | errors among them, % |",
        "|---:|---:|---:|",
    ]
    for rate, (coverage, wrong) in report.accepted.items():
        errors = share_of(wrong, of=coverage * report.rows)
        rows.append(
            f"| ≤ {100 * float(rate):g} % | {share_of(coverage, of=report.rows)} | {errors} |"
        )
    return rows


def share_of(share: float, *, of: float) -> str:
    """Return a share of so many rows in percent with its exact interval; ``none`` of no rows."""
    count = round(of)
    return percent(exact(round(share * count), of=count)) if count else "none"


def limits_table(calibration: Calibration) -> list[str]:
    """Return the least probability of each source, or nothing for a head without limits."""
    if not calibration.source_limits:
        return []
    limits = calibration.source_limits.items()
    return [
        "",
        "A label is accepted only if its source has at least this probability:",
        f"{', '.join(f'`{source}` {limit:.4f}' for source, limit in limits)}.",
    ]


def sources_table(report: Report, *, fewest: int = 2) -> list[str]:
    """Return the figures of each source of labels, and what each error rate came to there.

    Without a row where there are fewer sources than ``fewest``: one says what the whole does.
    """
    if len(report.sources) < fewest:
        return []
    rates = list(next(iter(report.sources.values())).accepted)
    asked = " | ".join(f"≤ {100 * float(rate):g} %" for rate in rates)
    rows = [
        "Test rows by source, as served: accuracy, macro-F1, expected calibration error and its",
        "median by chance, were each confidence exact; for each error rate asked for, the share",
        "accepted, and after the colon the errors among them, in percent.",
        "",
        f"| source | rows | accuracy | macro-F1 | ECE | by chance | {asked} |",
        "|---|---:|---:|---:|---:|---:|" + "---:|" * len(rates),
    ]
    for name, one in report.sources.items():
        accepted = " | ".join(
            f"{share_of(coverage, of=one.rows)}: {share_of(wrong, of=coverage * one.rows)}"
            for _, (coverage, wrong) in one.accepted.items()
        )
        rows.append(
            f"| {name} | {one.rows} | {percent(one.accuracy)} | {percent(one.macro_f1)} "
            f"| {percent(one.error)} | {100 * one.chance:.1f} | {accepted} |"
        )
    return [*rows, ""]


def refusals_table(found: Mapping[str, Refusals]) -> list[str]:
    """Return what is given a label in scope, by kind of text."""
    rows = [
        "Given a label in scope by default; AUROC of `scope` against the test rows in scope.",
        "",
        "| texts | rows | given a label, % | AUROC |",
        "|---|---:|---:|---:|",
    ]
    for kind, one in found.items():
        auroc = "" if one.auroc is None else percent(one.auroc)
        rows.append(f"| {kind} | {one.rows} | {percent(one.given)} | {auroc} |")
    return [*rows, ""]


def percent(interval: Interval, *, digits: int = 1, scale: float = 100.0) -> str:
    """Return such as ``93.1 [91.0, 95.2]``; ``-`` if undefined, as without a wrong answer.

    Args:
        interval: Of a share, or of percent with a ``scale`` of 1.
        digits: Behind the point.
        scale: Of the numbers.
    """
    if math.isnan(interval.value):
        return "-"
    value, low, high = (
        f"{scale * x:.{digits}f}" for x in (interval.value, interval.low, interval.high)
    )
    return f"{value} [{low}, {high}]"


def _shortened(labels: tuple[str, ...]) -> str:
    shown = [f"`{label}`" for label in labels[:40]]
    return ", ".join(shown) + (f" and {len(labels) - 40} more" if len(labels) > 40 else "")


_GOLDEN = 12


@dataclass(frozen=True)
class Provenance:
    """The origin of a head: data, licence and command.

    Attributes:
        data: Names of the data sets.
        licence: Of the head.
        command: That made it.
        data_sha256: Of the rows.
    """

    data: tuple[str, ...]
    licence: str
    command: str
    data_sha256: str = "0" * 64


@dataclass(frozen=True)
class Trained:
    """A trained and measured head, before it is written.

    Attributes:
        module: With the inputs and outputs of the graph.
        outputs: Their names.
        samples: Inputs of the golden samples, by input name, without the batch axis.
        card: Figures and notes, Markdown.
        sources: Of the encoder's weights, for heads that read tokens.
    """

    recipe: HeadRecipe
    module: nn.Module
    outputs: tuple[str, ...]
    samples: Sequence[Mapping[str, NDArray[np.generic]]]
    provenance: Provenance
    card: str = ""
    labels: tuple[str, ...] = ()
    calibration: Calibration = field(default_factory=Calibration)
    metrics: Mapping[str, float] = field(default_factory=dict)
    fitted: Fitted | None = None
    sources: Mapping[str, Source] = field(default_factory=dict)
    max_tokens: int | None = None
    stride: int | None = None


def publish(trained: Trained, *, artifact: Path, out_dir: Path) -> Path:
    """Write a head below ``out_dir`` as ``NAME/VERSION`` and return that folder.

    Raises:
        HeadInvalid: the outputs of the written head and the module differ.
        DiskFull: no room for it.
    """
    parent = out_dir / trained.recipe.name
    draft = parent / _draft_name()
    try:
        draft.mkdir(parents=True)
        head = _write(trained, artifact=artifact, draft=draft)
        folder = _placed(draft, parent / head.version, artifact=artifact)
    except OSError as exc:
        if exc.errno in NO_ROOM:
            raise DiskFull(f"no room for head {trained.recipe.name}: {exc.strerror}") from exc
        raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return folder


def publish_again(kept: Path, head: Head, card_text: str, *, artifact: Path, out_dir: Path) -> Path:
    """Write a version that has the files of another but its card; return the folder.

    Args:
        kept: Folder of the other version.
        head: Settings and figures of the new one; its version and files are filled in.
        card_text: The new card, Markdown.
        artifact: Whose encoder the head reads.
        out_dir: ``models/heads``.

    Raises:
        HeadInvalid: the files are not those of the head.
    """
    parent = out_dir / head.name
    draft = parent / _draft_name()
    try:
        shutil.copytree(kept, draft)
        (draft / heads.CARD).write_text(card_text, encoding="utf-8")
        described = {**head.files, heads.CARD: manifest.describe(draft / heads.CARD)}
        made = heads.named(head.model_copy(update={"files": described}))
        heads.write(made, draft)
        folder = _placed(draft, parent / made.version, artifact=artifact)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return folder


def _draft_name() -> str:
    """Return a name of this process's own: processes of two machines may have one number."""
    return f".draft-{socket.gethostname()}-{os.getpid()}"


def _placed(draft: Path, folder: Path, *, artifact: Path) -> Path:
    """Check a draft, make it the folder of its version, durably, and return that."""
    check(draft, artifact=artifact)
    if folder.exists():
        # The same rows, recipe and machine yield the same files: the head exists already.
        return folder
    for path in (*draft.iterdir(), draft):
        files.sync(path)
    draft.rename(folder)
    files.sync(folder.parent)
    return folder


def check(folder: Path, *, artifact: Path) -> None:
    """Load a head as a worker does and run its golden samples.

    Raises:
        HeadInvalid: a file differs from ``head.json``, or an output is not the golden one.
    """
    loaded = heads.load(folder)
    base = {name: Source.of(weight) for name, weight in loaded.head.base_weights.items()}
    values = graph.widened(artifact / "encoder.onnx", base) if base else {}
    session = graph.session(folder / heads.GRAPH, values)
    types = {i.name: np.int64 if "int64" in i.type else np.float32 for i in session.get_inputs()}
    names = [o.name for o in session.get_outputs()]
    lines = loaded.data[heads.GOLDEN].decode().splitlines()
    if len(lines) < heads.GOLDEN_LINES:
        raise HeadInvalid(f"expected {heads.GOLDEN_LINES} golden samples, got {len(lines)}")
    for number, line in enumerate(lines):
        sample = json.loads(line)
        feeds = {n: np.array([v], types[n]) for n, v in sample["inputs"].items()}
        for name, value in zip(names, session.run(None, feeds), strict=True):
            strayed = np.abs(value[0] - np.array(sample["outputs"][name], np.float32))
            if not float(strayed.max()) <= heads.GOLDEN_TOLERANCE:
                raise HeadInvalid(f"golden sample {number}: {name} differs by {strayed.max():.1e}")


def _write(trained: Trained, *, artifact: Path, draft: Path) -> Head:
    recipe = trained.recipe
    written = graph.write(
        trained.module,
        draft / heads.GRAPH,
        reads=recipe.reads,
        outputs=trained.outputs,
        example=_example(trained.samples, recipe.reads),
        sources=trained.sources,
    )
    values = graph.widened(artifact / "encoder.onnx", written.base) if written.base else {}
    session = graph.session(draft / heads.GRAPH, values)
    with (draft / heads.GOLDEN).open("w") as stream:
        for sample in trained.samples[:_GOLDEN]:
            found = session.run(None, {name: value[None] for name, value in sample.items()})
            outputs = {n: v[0].tolist() for n, v in zip(trained.outputs, found, strict=True)}
            inputs = {name: value.tolist() for name, value in sample.items()}
            stream.write(json.dumps({"inputs": inputs, "outputs": outputs}) + "\n")
    if trained.fitted is not None:
        arrays: dict[str, Any] = trained.fitted.arrays()
        np.savez_compressed(draft / heads.SIGNALS, **arrays)
    created = datetime.now(UTC).replace(microsecond=0)
    text = card(recipe, trained.provenance, trained.card, created)
    (draft / heads.CARD).write_text(text, encoding="utf-8")
    base = manifest.load(artifact)
    described = {path.name: manifest.describe(path) for path in sorted(draft.iterdir())}
    head = heads.named(
        Head(
            name=recipe.name,
            created=created,
            task=recipe.task,
            reads=recipe.reads,
            space=base.manifest.space.id,
            labels=trained.labels,
            none_label=recipe.none_label if recipe.none_label in trained.labels else None,
            max_tokens=trained.max_tokens,
            stride=trained.stride,
            chunk=recipe.classify.chunk if recipe.task is Task.CLASSIFY else None,
            text_unit=recipe.score.text_unit if recipe.task is Task.SCORE else None,
            max_chunks=recipe.classify.max_chunks if recipe.reads is Reads.DOCUMENT else None,
            terms=recipe.reads is Reads.DOCUMENT and recipe.classify.buckets > 0,
            calibration=trained.calibration,
            metrics={k: float(v) for k, v in trained.metrics.items() if np.isfinite(v)},
            lineage=Lineage(
                data_sha256=trained.provenance.data_sha256,
                data=trained.provenance.data,
                licence=trained.provenance.licence,
                recipe=recipe.to_dict(),
                base_artifact=base.id,
                command=trained.provenance.command,
                machine=machine(),
                created=created,
            ),
            base_weights={name: source.weight() for name, source in written.base.items()},
            files=described,
        )
    )
    heads.write(head, draft)
    return head


def machine() -> str:
    """Describe this machine in one line."""
    return (
        f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, "
        f"torch {torch.__version__}, onnxruntime {ort.__version__}"
    )


def _example(
    samples: Sequence[Mapping[str, NDArray[np.generic]]], reads: Reads
) -> tuple[Tensor, ...]:
    """Return three samples as one batch, shorter rows padded with zeros."""
    chosen = samples[:3]
    columns = []
    for name in graph.INPUTS[reads]:
        # an export takes an axis of length 1 for a constant
        length = max(2, *(len(sample[name]) for sample in chosen))
        rows = []
        for sample in chosen:
            value = sample[name]
            missing = [(0, length - len(value))] + [(0, 0)] * (value.ndim - 1)
            rows.append(np.pad(value, missing))
        columns.append(torch.from_numpy(np.stack(rows)))
    return tuple(columns)


def card(recipe: HeadRecipe, provenance: Provenance, text: str, created: datetime) -> str:
    """Return a head's card: where it comes from, and then its figures and notes, Markdown."""
    task = {Task.CLASSIFY: "classifies", Task.ANSWER: "answers", Task.SCORE: "scores pairs"}
    return f"""# {recipe.name}

A head that {task[recipe.task]}, reading `{recipe.reads}`.

- Data: {", ".join(provenance.data)} (SHA-256 of the rows `{provenance.data_sha256[:16]}`)
- Licence: {provenance.licence}
- Command: `{provenance.command}`
- Machine: {machine()}
- Date: {created:%Y-%m-%d}

{text.strip()}
"""

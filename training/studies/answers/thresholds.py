"""What do a shipped reader's two thresholds give and cost, on questions of other articles?

The default about a text that is given is stricter than the one with the best F1. All questions of
SQuAD's eval articles are read once, as a worker reads them; both thresholds decide on the same
answers, and their difference is paired over the paragraphs.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from studies.answers.evidence import reader_of
from studies.answers.intervals import Compared, Marked, compared
from studies.papers.kept import table
from studies.quality import squad
from studies.quality.squad import Part
from verso_core import heads
from verso_training.artifact.graphs import EncoderGraph
from verso_training.heads import reader
from verso_training.heads.signals import Interval

_COLUMNS = (
    "given", "right among it", "F1", "F1 over no answer", "EM", "F1, with an answer",
    "no answer, refused",
)  # fmt: skip


def study(folder: Path, *, data: Path, artifact: Path) -> dict[str, Compared]:
    """Return the figures of the threshold with the best F1, and of the default over it."""
    calibration = heads.load(folder).head.calibration
    best, default = calibration.found_null_threshold, calibration.null_threshold
    assert best is not None
    assert default is not None
    asked = squad.read(data, Part.EVAL)
    base, module, config = reader_of(folder, artifact)
    found = reader.answers(asked, base.tokenizer, logits=reader.logits_of(module), config=config)
    encode = EncoderGraph(artifact, threads=1).encode
    near = reader.sentence_cosines(asked, found, encode)
    marked = Marked.of(asked, reader.corrected(found, near, calibration.relevance))
    both = compared([(marked, marked.margins > one) for one in (best, default)])
    return dict(zip((f"{best:.2f}", f"{default:.2f}"), both, strict=True))


def page(found: Mapping[str, Compared]) -> str:
    """Return the table; the last row is the second threshold's gain over the first."""
    rows = [[name, *(_shown(one.of[key]) for key in _COLUMNS)] for name, one in found.items()]
    *_, last = found.values()
    rows.append(["the difference, paired", *(_shown(last.gain[key], "+") for key in _COLUMNS)])
    auroc = _shown(last.of["AUROC"])
    return f"{table(['threshold', *_COLUMNS], rows)}\n\nAUROC, answerable or not: {auroc}."


def _shown(found: Interval, sign: str = "") -> str:
    return f"{found.value:{sign}.1f} [{found.low:.1f}, {found.high:.1f}]"

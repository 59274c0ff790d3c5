"""Report how a version of a head was measured."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from pydantic import Field

from verso_core.heads import Head, SignalName, Task
from verso_core.jobs.models import ItemResult, OpenModel, Text

_ACCEPTED = re.compile(r"^\| ≤ ([\d.]+) % \| ([\d.]+) % \| ([\d.]+) % \|$", re.MULTILINE)


class RiskCurve(OpenModel):
    """Risk against coverage by one signal."""

    signal: SignalName
    coverage: tuple[float, ...] = Field(description="share of the rows, the surest first")
    risk: tuple[float, ...] = Field(description="share of errors among them")


class AcceptedRows(OpenModel):
    """What an accepted error rate came to on the test rows, as shares."""

    asked: float = Field(description="error rate that was to be kept")
    coverage: float = Field(description="of the rows, accepted")
    risk: float = Field(description="of errors among those")


class ConfidenceBin(OpenModel):
    """Test rows whose confidence lies in one interval."""

    rows: int
    confidence: float = Field(description="their mean")
    accuracy: float = Field(description="share of them whose label is right")


class HeadFigures(OpenModel):
    """The figures of a head's report, measured on rows that it was not trained on."""

    rows: int | None = Field(default=None, description="measured on; null of heads that score")
    accuracy: float | None = None
    accept_by: SignalName | None = Field(default=None, description="what labels are accepted by")
    risk_coverage: tuple[RiskCurve, ...] = ()
    accepted: tuple[AcceptedRows, ...] = ()
    calibration: tuple[ConfidenceBin, ...] = Field(
        default=(), description="empty for a head that was trained before this was measured"
    )
    metrics: dict[str, float] = Field(default_factory=dict, description="all that was measured")

    @classmethod
    def of(cls, head: Head, card: str) -> HeadFigures:
        """Return the figures that ``head.json`` and the card hold."""
        metrics, classifies = head.metrics, head.task is Task.CLASSIFY
        accepted = [
            (rate / 100, one["coverage"], one["risk"])
            for rate, one in _numbered(metrics, "accepted_at_")
        ]
        return cls(
            rows=int(metrics["test_rows"]) if "test_rows" in metrics else None,
            accuracy=metrics.get("accuracy"),
            accept_by=head.calibration.accept_by if classifies else None,
            risk_coverage=tuple(_curves(metrics)),
            accepted=tuple(
                AcceptedRows(asked=asked, coverage=coverage, risk=risk)
                for asked, coverage, risk in accepted or _of_card(card)
            ),
            calibration=tuple(
                ConfidenceBin(
                    rows=int(one["rows"]), confidence=one["confidence"], accuracy=one["accuracy"]
                )
                for _, one in _numbered(metrics, "confidence_")
            ),
            metrics=dict(metrics),
        )


def _of_card(card: str) -> Iterator[tuple[float, float, float]]:
    """Yield the rows of accepted error rates in a card: earlier heads have them nowhere else."""
    for row in _ACCEPTED.finditer(card):
        asked, coverage, risk = (float(cell) / 100 for cell in row.groups())
        yield asked, coverage, risk


def _numbered(metrics: Mapping[str, float], prefix: str) -> list[tuple[float, dict[str, float]]]:
    """Return the metrics ``{prefix}{number}/{part}``, by number and part."""
    found: dict[float, dict[str, float]] = {}
    for name, value in metrics.items():
        number, slash, part = name.removeprefix(prefix).partition("/")
        if name.startswith(prefix) and slash:
            found.setdefault(float(number), {})[part] = value
    return sorted(found.items())


def _curves(metrics: Mapping[str, float]) -> Iterator[RiskCurve]:
    steps = _numbered(metrics, "risk_at_")
    for signal in SignalName:
        points = [(share / 100, by[signal]) for share, by in steps if signal in by]
        if points:
            coverage, risk = zip(*points, strict=True)
            yield RiskCurve(signal=signal, coverage=coverage, risk=risk)


class HeadReport(Text, ItemResult):
    """The report that a version of a head was published with; its text is Markdown."""

    head: str
    version: str
    figures: HeadFigures | None = None


class HeadReportView(OpenModel):
    """Answer of ``GET /v1/heads/{name}/report``."""

    head: str
    version: str
    report: str = Field(description="Markdown")
    figures: HeadFigures | None = None

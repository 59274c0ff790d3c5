"""How sure a classifier is of its answers: calibrated on held-out rows, reported on others."""

from verso_training.heads.confidence.calibration import (
    DELTA,
    Outputs,
    calibrate,
    fit_platt,
    fit_stack,
    fit_temperature,
    fold_thresholds,
    thresholds,
)
from verso_training.heads.confidence.reports import (
    Decided,
    Refusals,
    Report,
    by_chance,
    calibration_error,
    decided,
    macro_f1,
    refusals,
    report,
)

__all__ = [
    "DELTA",
    "Decided",
    "Outputs",
    "Refusals",
    "Report",
    "by_chance",
    "calibrate",
    "calibration_error",
    "decided",
    "fit_platt",
    "fit_stack",
    "fit_temperature",
    "fold_thresholds",
    "macro_f1",
    "refusals",
    "report",
    "thresholds",
]

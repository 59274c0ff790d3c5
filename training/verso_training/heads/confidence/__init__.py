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
from verso_training.heads.confidence.reports import Refusals, Report, macro_f1, refusals, report

__all__ = [
    "DELTA",
    "Outputs",
    "Refusals",
    "Report",
    "calibrate",
    "fit_platt",
    "fit_stack",
    "fit_temperature",
    "fold_thresholds",
    "macro_f1",
    "refusals",
    "report",
    "thresholds",
]

"""What a figure was made on: the machine, the versions, the commit."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from verso_training import device

_ROOT = Path(__file__).resolve().parents[3]
_LIBRARIES = ("torch", "numpy", "onnxruntime", "tokenizers", "transformers")


def described() -> dict[str, Any]:
    """Return machine, versions and commit."""
    return {
        "machine": {"processor": _processor(), "cores": os.cpu_count(), "gpu": _gpu()},
        "versions": {
            "python": platform.python_version(),
            **{name: metadata.version(name) for name in _LIBRARIES},
            "cuda": torch.version.cuda,
        },
        "commit": _commit(),
    }


def _processor() -> str:
    try:
        told = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        told = ""
    named = re.search(r"^model name\s*: (.+)$", told, re.MULTILINE)
    return named[1] if named else platform.machine()


def _gpu() -> str | None:
    kind = device.fastest().type
    if kind == device.PROCESSOR.type:
        return None
    return torch.cuda.get_device_name() if kind == "cuda" else kind


def _commit() -> str | None:
    """Return the commit, with ``+`` where files differ from it; None outside of a checkout."""
    try:
        commit, changed = (_git("rev-parse", "HEAD"), _git("status", "--porcelain"))
    except (OSError, subprocess.CalledProcessError):
        return None
    return f"{commit}+" if changed else commit


def _git(*words: str) -> str:
    command = ["git", "-C", str(_ROOT), *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

"""Kernels of log collections are compiled once, whatever number of testers need them."""

from __future__ import annotations

import os

import pytest

from verso_codecs.logs.warm import warm


@pytest.fixture(scope="session", autouse=True)
def _compiled() -> None:
    if os.environ.get("NUMBA_DISABLE_JIT", "0") != "1":
        warm()

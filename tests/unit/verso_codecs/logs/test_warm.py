"""Facts about compiling the kernels of log collections ahead."""

from __future__ import annotations

from pathlib import Path

import numba
import pytest

from verso_codecs.logs import warm


def test_kernels_that_were_compiled_are_known_to_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(numba.config, "DISABLE_JIT", 0)
    assert not warm.is_compiled()
    warm.warm()
    assert warm.is_compiled()

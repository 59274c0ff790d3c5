"""Fixtures of cold storage: an object store in a folder, and the clock of those who move."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.integration.verso_worker.rules.cold_storage import Clock

from verso_worker.stores.objects import ObjectStorage, local_objects


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def objects(tmp_path: Path) -> ObjectStorage:
    return local_objects(tmp_path / "cold", ledger="home")

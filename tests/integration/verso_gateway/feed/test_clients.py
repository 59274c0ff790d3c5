"""The programs of the page about agents, as they stand there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.integration.verso_gateway.conftest import Gateway
from tests.integration.verso_gateway.feed.conftest import Ledger, configurations

NODE_MODULES = Path(__file__).parents[3] / "support/node/node_modules"
ADDRESS = "http://127.0.0.1:8080"
STAYS = "setInterval(() => {}, 1000);"
"""Transports send a little later, as a service stays: not all of them do when the process ends."""


def at(gateway: Gateway, code: str) -> str:
    """Return a program that sends to a gateway."""
    assert ADDRESS in code
    return code.replace(ADDRESS, gateway.url)


@pytest.mark.parametrize("place", range(3), ids=["opentelemetry", "elasticsearch", "loki"])
def test_a_program_in_python_sends_its_line(place: int, gateway: Gateway, stored: Ledger) -> None:
    codes = configurations("Python")
    assert len(codes) == 3
    subprocess.run([sys.executable, "-c", at(gateway, codes[place])], check=True, timeout=120)
    assert stored.texts(1) == ["disk sda is full"]


@pytest.mark.parametrize("place", range(3), ids=["elasticsearch", "loki", "opentelemetry"])
def test_a_program_in_node_sends_its_line(
    place: int, gateway: Gateway, stored: Ledger, tmp_path: Path
) -> None:
    if shutil.which("node") is None:
        pytest.skip("node is not installed")
    if not NODE_MODULES.is_dir():
        if os.environ.get("CI"):
            pytest.fail(f"npm install was not run in {NODE_MODULES.parent}")
        pytest.skip(f"npm install was not run in {NODE_MODULES.parent}")
    codes = configurations("Node")
    assert len(codes) == 3
    (tmp_path / "node_modules").symlink_to(NODE_MODULES)
    (tmp_path / "program.cjs").write_text(at(gateway, codes[place]) + STAYS)
    process = subprocess.Popen(["node", "program.cjs"], cwd=tmp_path)
    try:
        [one] = stored.records(1)
    finally:
        process.kill()
        process.wait()
    assert one.text == "disk sda is full"

"""The server of tools where its libraries are missing, and what loads them."""

from __future__ import annotations

import subprocess
import sys

import pytest
from fastapi import FastAPI

from verso_core.errors import NotInstalled
from verso_gateway.agents import Agents


async def test_without_the_extra_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)  # as if it were not installed
    agents = Agents(FastAPI(), timeout_s=1)
    with pytest.raises(NotInstalled, match=r"verso-retrieval\[mcp\]"):
        await agents.server()
    await agents.close()


async def test_the_server_is_made_once_and_ends_with_the_gateway() -> None:
    agents = Agents(FastAPI(), timeout_s=1)
    assert await agents.server() is await agents.server()
    await agents.close()


def test_the_command_names_the_extra_that_it_needs() -> None:
    without = "import sys; sys.modules['mcp'] = None; sys.argv[1:] = ['mcp']; "
    program = without + "from verso_client.cli.app import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr.split(":")[0]) == (1, "not_installed")

"""`verso demo` takes the shipped corpus through the whole platform and proves it byte by byte."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx2
import psutil
import pytest


@pytest.mark.slow
def test_the_demo_gives_every_text_back_and_writes_its_report(
    artifact: Path, tmp_path: Path
) -> None:
    report_path = tmp_path / "report.json"
    argv = [sys.executable, "-m", "verso_standalone", "demo", "--threads", "1", "--stay"]
    argv += ["--artifact", str(artifact), "--json", str(report_path)]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env=environment) as running:
        assert running.stdout is not None
        lines = iter(running.stdout)
        address = next(line.split()[1] for line in lines if line.startswith("console: "))
        assert "text/html" in httpx2.get(address, timeout=60).headers["content-type"]
        running.send_signal(signal.SIGTERM)
        assert not [line for line in lines if line.startswith("to search it")]
    assert running.returncode == 0
    report = json.loads(report_path.read_text(encoding="utf-8"))
    assert report["passed"] is True
    assert report["exact"] == report["texts"] == report["verified"] == 2000
    assert report["bytes_text"] > 800_000
    assert len(report["searches"]) == 10
    assert sum(share["records"] for share in report["codecs"].values()) == report["chunks"]
    assert report["restore_tokens_per_s"] > 0
    assert not list(tmp_path.glob("verso-demo-*")), "the data folder is removed"
    assert not [p for p in psutil.process_iter(["cmdline"]) if str(tmp_path) in _command(p)]


def _command(process: psutil.Process) -> str:
    return " ".join(process.info["cmdline"] or [])

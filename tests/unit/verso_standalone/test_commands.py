"""What `verso up` and `verso demo` say when they cannot do what was asked."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from typer.testing import CliRunner

from verso_client.cli.app import PLUGINS
from verso_standalone.commands import app, demo, up


@pytest.fixture
def runner() -> CliRunner:
    return CliRunner()


def test_up_names_what_is_missing_in_one_message(runner: CliRunner, tmp_path: Path) -> None:
    result = runner.invoke(app, ["up", "--artifact", str(tmp_path), "--data", str(tmp_path / "d")])
    assert result.exit_code == 1
    assert result.output.startswith("artifact_invalid: expected an artifact in ")
    assert "Traceback" not in result.output


def test_up_refuses_to_listen_beyond_loopback_without_keys(
    runner: CliRunner, tmp_path: Path
) -> None:
    (tmp_path / "manifest.json").write_text("{}", encoding="ascii")
    argv = ["up", "--host", "0.0.0.0", "--artifact", str(tmp_path), "--data", str(tmp_path / "d")]  # noqa: S104
    result = runner.invoke(app, argv)
    assert result.exit_code == 1
    assert "unauthorized" in result.output
    assert not (tmp_path / "d").exists()


def test_a_port_beyond_the_highest_is_refused(runner: CliRunner) -> None:
    for command in ("up", "demo"):
        result = runner.invoke(app, [command, "--port", "65536"])
        assert result.exit_code == 2
        assert "65535" in result.output


def test_demo_without_an_artifact_fails_and_writes_no_report(
    runner: CliRunner, tmp_path: Path
) -> None:
    report = tmp_path / "report.json"
    result = runner.invoke(app, ["demo", "--artifact", str(tmp_path), "--json", str(report)])
    assert result.exit_code == 1
    assert "artifact_invalid" in result.output
    assert not report.exists()


def test_the_commands_are_found_by_the_names_that_the_package_declares() -> None:
    for name, function in (("up", up), ("demo", demo)):
        entry = EntryPoint(name, f"verso_standalone.commands:{name}", PLUGINS)
        assert entry.load() is function


def test_ledger_names_a_damaged_file_of_the_data_folder(runner: CliRunner, tmp_path: Path) -> None:
    """A power cut left it empty, where it was written in place."""
    (tmp_path / "valkey").mkdir()
    (tmp_path / "valkey" / "valkey.conf").touch()
    result = runner.invoke(app, ["ledger", "--data", str(tmp_path)])
    assert result.exit_code == 1
    assert result.output.startswith("request_invalid: expected ")
    assert "valkey.conf" in result.output.replace("\n", "")

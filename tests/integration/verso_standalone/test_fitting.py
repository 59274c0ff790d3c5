"""`verso train decoder` on files, as a user calls it."""

from __future__ import annotations

import json
from pathlib import Path

import typer
from typer.testing import CliRunner

from verso_core import manifest
from verso_standalone.fitting import train_decoder

ARTIFACT = Path(__file__).parents[2] / "data" / "artifact-tiny"


def run(*arguments: str) -> tuple[int, str]:
    app = typer.Typer()
    app.command()(train_decoder)
    result = CliRunner().invoke(app, [*arguments, "--artifact", str(ARTIFACT)])
    return result.exit_code, result.output


def test_lines_and_json_lines_become_an_artifact(tmp_path: Path) -> None:
    plain, rows = tmp_path / "a.log", tmp_path / "b.jsonl"
    plain.write_text("".join(f"pump {n} sent {n * n} bytes\n" for n in range(40)))
    rows.write_text("".join(json.dumps({"text": f"pump {n} is late"}) + "\n" for n in range(20)))
    status, output = run(str(plain), str(rows), "--out", str(tmp_path / "pumps"))
    assert status == 0, output
    assert "mixture, fitted" in output
    assert "mixture.npz" in manifest.load(tmp_path / "pumps").manifest.files


def test_the_decoder_is_trained_on_them_too(tmp_path: Path) -> None:
    plain = tmp_path / "a.log"
    plain.write_text("".join(f"pump {n % 7} is late\n" for n in range(60)))
    status, output = run(str(plain), "--out", str(tmp_path / "pumps"), "--minutes", "0.01")
    assert status == 0, output
    assert "smallest, trained (9 chunks)" in output
    assert "Fitted to a collection" in (tmp_path / "pumps" / "MODEL_CARD.md").read_text()


def test_no_time_to_train_is_told(tmp_path: Path) -> None:
    plain = tmp_path / "a.log"
    plain.write_text("a pump is late\n" * 60)
    status, output = run(str(plain), "--out", str(tmp_path / "new"), "--minutes", "0")
    assert status == 2
    assert "--minutes" in output
    assert not (tmp_path / "new").exists()


def test_a_missing_file_is_told_with_its_code(tmp_path: Path) -> None:
    status, output = run(str(tmp_path / "none.log"), "--out", str(tmp_path / "new"))
    assert status == 1
    assert "request_invalid" in output
    assert not (tmp_path / "new").exists()

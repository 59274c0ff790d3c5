"""A user's path: logs go in, the codec is fitted to them, taken over, and all is written anew."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
import typer
from tests.e2e.conftest import Platform
from typer.testing import CliRunner

from verso_client import Document
from verso_client.terminal import Target
from verso_core import manifest
from verso_standalone.fitting import train_decoder
from verso_standalone.publishing import add_model

pytestmark = pytest.mark.timeout(600)


def run(platform: Platform, command: Callable[..., None], *arguments: str) -> str:
    app = typer.Typer()
    app.command()(command)
    result = CliRunner().invoke(app, arguments, obj=Target(platform.url, None, 30.0))
    assert result.exit_code == 0, result.output
    return result.output


def test_a_codec_fitted_to_a_collection_takes_it_over_and_shrinks_it(
    new_platform: Callable[..., Platform],
    lines: Callable[[int], list[Document]],
    tmp_path: Path,
) -> None:
    platform = new_platform(VERSO_SETTLE_S="0.1", VERSO_RAW_GRACE_S="0")
    platform.start()
    documents = lines(240)
    out = tmp_path / "sessions"
    with platform.client() as verso:
        verso.create_collection("logs")
        assert not verso.ingest(documents[:200], collection="logs").failed
        before = verso.stats("logs").bytes_patches / 200
        output = run(
            platform, train_decoder, "--on", "logs", "--out", str(out),
            "--artifact", str(platform.artifact),
        )  # fmt: skip
        codec = manifest.load(out).manifest.codec.id
        assert f"migrate logs --to {codec}" in output

        run(platform, add_model, str(out), "--data", str(platform.data), "--share", "1")
        verso.promote()
        until = time.monotonic() + 240
        while not (found := verso.registry().workers) or (
            found[0]["artifact"]["stable"]["name"] != out.name
        ):
            assert time.monotonic() < until, found
            time.sleep(0.2)

        # What comes in from now on is written by the fitted codec; what was there is moved to it.
        new = verso.ingest(documents[200:], collection="logs")
        assert not new.failed
        verso.migrate("logs", to=codec)
        while (state := verso.migration("logs")).stage != "done":
            assert time.monotonic() < until + 240, state
            time.sleep(0.2)
        assert state.copied == 200
        after = verso.stats("logs")
        assert after.bytes_patches / 240 < 0.5 * before
        assert set(after.codecs) & {"mixture"}
    found_texts = platform.read_all("logs", [str(d.id) for d in documents])
    assert found_texts == {str(d.id): str(d.text).encode() for d in documents}

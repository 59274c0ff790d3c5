"""A user's path: logs go in, the codec is fitted to them, taken over, and all is written again.

With a decoder that was trained on them as well, and back again.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import typer
from tests.e2e.conftest import Platform
from tests.e2e.test_migrate import Searches
from tests.support import tiny_artifact
from typer.testing import CliRunner

from verso_client import Client, Document
from verso_client.cli.terminal import Target
from verso_core import manifest
from verso_core.jobs import CodecPolicy
from verso_core.jobs.statistics import Statistics
from verso_standalone.fitting import train_decoder
from verso_standalone.models import add_model
from verso_training.artifact import collection

WORDS = sorted({word for words in tiny_artifact.WORDS.values() for word in words})


@pytest.fixture(scope="module")
def serving(new_platform: Callable[..., Platform]) -> Platform:
    platform = new_platform(VERSO_VERIFY_DELAY_S="0.1", VERSO_RAW_TEXT_RETENTION_S="0")
    platform.start()
    return platform


def run(platform: Platform, command: Callable[..., None], *arguments: str) -> str:
    app = typer.Typer()
    app.command()(command)
    result = CliRunner().invoke(app, arguments, obj=Target(platform.url, None, 30.0))
    assert result.exit_code == 0, result.output
    return result.output


def publish(platform: Platform, folder: Path) -> str:
    """Let an artifact serve, as a user does; returns its codec's id."""
    run(platform, add_model, str(folder), "--data", str(platform.data), "--share", "1")
    until = time.monotonic() + 240
    with platform.client() as verso:
        verso.promote()
        while not (found := verso.registry().workers) or (
            found[0]["artifact"]["stable"]["name"] != folder.name
        ):
            assert time.monotonic() < until, found
            time.sleep(0.2)
    return manifest.load(folder).manifest.codec.id


def migrate(platform: Platform, name: str, codec: str) -> int:
    """Move a collection to a codec; returns how many documents were written again."""
    until = time.monotonic() + 240
    with platform.client() as verso:
        verso.migrate(name, to=codec)
        while (state := verso.migration(name)).stage != "done":
            assert time.monotonic() < until, state
            time.sleep(0.2)
    return state.copied


@contextmanager
def searched(platform: Platform, wanted: list[Document], *, name: str) -> Iterator[None]:
    """Search all the while; none may fail or miss."""
    searches = Searches(platform, wanted, collection=name)
    searches.start()
    try:
        yield
    finally:
        searches.over.set()
        searches.join()
    assert searches.done
    assert not searches.faults


def holds(platform: Platform, name: str, documents: list[Document]) -> dict[str, int]:
    """Assert that a collection reads as these documents; returns its records by codec."""
    found = platform.read_all(name, [str(one.id) for one in documents])
    assert found == {str(one.id): str(one.text).encode() for one in documents}
    with platform.client() as verso:
        return {codec: share.records for codec, share in verso.stats(name).codecs.items()}


def known_words(count: int) -> list[Document]:
    """Words that the tiny decoder knows, in no order that a table could: it codes most of them."""
    rng = random.Random(5)
    return [
        Document(" ".join(rng.sample(WORDS, 6)), id=f"words/{number}") for number in range(count)
    ]


def test_a_codec_fitted_to_a_collection_takes_it_over_and_shrinks_it(
    serving: Platform, lines: Callable[[int], list[Document]], tmp_path: Path
) -> None:
    documents = lines(240)
    out = tmp_path / "sessions"
    with serving.client() as verso:
        verso.create_collection("logs", codec_policy=CodecPolicy.SMALLEST)
        assert not verso.ingest(documents[:200], collection="logs").failed
        before = verso.stats("logs").bytes_patches / 200
        output = run(
            serving, train_decoder, "--on", "logs", "--out", str(out),
            "--artifact", str(serving.artifact),
        )  # fmt: skip
        codec = publish(serving, out)
        assert f"migrate logs --to {codec}" in output

        # What comes in from now on is written by the fitted codec; what was there is moved to it.
        assert not verso.ingest(documents[200:], collection="logs").failed
        assert migrate(serving, "logs", codec) == 200
        assert verso.stats("logs").bytes_patches / 240 < 0.5 * before
    assert "mixture" in holds(serving, "logs", documents)


def test_a_collection_goes_to_a_decoder_that_learnt_it_and_back_while_it_is_searched(
    serving: Platform,
    lines: Callable[[int], list[Document]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # What seconds of so small a decoder's training are worth beside the mixture does not matter.
    monkeypatch.setattr(collection, "WORTH", -10.0)
    out = tmp_path / "learnt"
    texts, documents = lines(60), known_words(60)
    with serving.client() as verso:
        verso.create_collection("learnt", codec_policy=CodecPolicy.SMALLEST)
        assert not verso.ingest(texts, collection="learnt").failed
        run(
            serving, train_decoder, "--on", "learnt", "--out", str(out), "--minutes", "0.03",
            "--artifact", str(serving.artifact),
        )  # fmt: skip
        old, new = (manifest.load(folder).manifest for folder in (serving.artifact, out))
        assert new.files["decoder.onnx"] != old.files["decoder.onnx"]

        assert not verso.ingest(documents[:30], collection="learnt").failed
        by_old = holds(serving, "learnt", texts + documents[:30])["neural"]
        assert publish(serving, out) == new.codec.id
        assert not verso.ingest(documents[30:], collection="learnt").failed
        texts += documents
        # Records of both decoders side by side, each read by its own.
        assert holds(serving, "learnt", texts)["neural"] > by_old
        for codec in (new.codec.id, old.codec.id):
            with searched(serving, documents, name="learnt"):
                assert migrate(serving, "learnt", codec)
                assert holds(serving, "learnt", texts)["neural"]


def test_a_collection_fits_its_codec_by_itself(
    new_platform: Callable[..., Platform], lines: Callable[[int], list[Document]]
) -> None:
    """No command: chunks come in, tables are fitted, tried and serve; a kill costs nothing."""
    platform = new_platform(
        VERSO_VERIFY_DELAY_S="0.1", VERSO_RAW_TEXT_RETENTION_S="0", VERSO_FIT_AFTER_CHUNKS="300"
    )
    platform.start()
    documents = lines(3000)
    with platform.client() as verso:
        verso.create_collection("logs")
        assert not verso.ingest(documents[:300], collection="logs").failed
        unfitted = verso.stats("logs")
        platform.kill("worker")  # maybe in the middle of the fit
        canary = stage_of(verso, "logs", "canary")
        assert canary.kept is not None
        assert canary.kept.bytes_fitted > 0
        at = 300
        while verso.stats("logs").generations[0].stage != "serving":
            assert at < len(documents) - 300, verso.stats("logs")
            assert not verso.ingest(documents[at : at + 64], collection="logs").failed
            at += 64
            time.sleep(0.5)
        before = verso.stats("logs")
        assert not verso.ingest(documents[at : at + 192], collection="logs").failed
        after = verso.stats("logs")
    fitted = (after.bytes_patches - before.bytes_patches) / 192
    assert fitted < 0.5 * unfitted.bytes_patches / unfitted.chunks
    assert "mixture" in holds(platform, "logs", documents[: at + 192])
    platform.stop()


def stage_of(verso: Client, name: str, stage: str) -> Statistics:
    """Wait until a generation of a collection has reached a stage."""
    until = time.monotonic() + 240
    while True:
        found = verso.stats(name)
        if any(one.stage == stage for one in found.generations):
            return found
        assert time.monotonic() < until, found
        time.sleep(0.2)

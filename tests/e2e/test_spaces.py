"""Two artifacts of different spaces serve at once: a collection and an embed name theirs."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx2
import pytest
import typer
from tests.e2e.conftest import ARTIFACT, Platform
from typer.testing import CliRunner

from verso_client import Client, Document
from verso_core import manifest
from verso_core.errors import CollectionExists, ModelUnknown
from verso_standalone.models import add_model, drop_model

TEXTS = [f"the link on port {number} is down" for number in range(8)]


def of_another_space(folder: Path) -> str:
    """Write the tests' artifact with a shorter window, which is another space; return its id.

    A codec is of one space, so that of the copy gets an id of its own.
    """
    shutil.copytree(ARTIFACT, folder)
    old = manifest.read(folder)
    space = old.space.model_copy(update={"max_encoder_tokens": 255})
    space = space.model_copy(update={"id": manifest.space_id(space, old.files)})
    profile = old.codec.profile.model_copy(update={"onnxruntime": "another"})
    codec = old.codec.model_copy(update={"profile": profile})
    codec = codec.model_copy(update={"id": manifest.codec_id(codec, old.files)})
    made = old.model_copy(update={"space": space, "codec": codec, "name": folder.name})
    manifest.write(made, folder)
    return space.id


@pytest.fixture(scope="module")
def serving(
    new_platform: Callable[..., Platform], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """A platform to which `verso models add` added the artifact ``short``; returns its address."""
    platform = new_platform(VERSO_VERIFY_DELAY_S="0.1", VERSO_RAW_TEXT_RETENTION_S="0")
    platform.start()
    folder = tmp_path_factory.mktemp("spaces") / "short"
    space = of_another_space(folder)
    said = command(add_model, str(folder), "--data", str(platform.data))
    assert "serves beside the stable one" in said
    until = time.monotonic() + 240
    with platform.client() as verso:
        while not (workers := verso.registry().workers) or not (
            found := workers[0]["artifact"]["additional"]
        ):
            assert time.monotonic() < until, workers
            time.sleep(0.2)
        assert [(one["name"], one["space"]) for one in found] == [("short", space)]
    yield platform.url
    command(drop_model, "short", "--data", str(platform.data))


def command(run: Callable[..., None], *arguments: str) -> str:
    app = typer.Typer()
    app.command()(run)
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    return result.output


def test_a_collection_of_another_space_is_searched_and_read_back(serving: str) -> None:
    with Client(serving) as verso:
        stable = verso.create_collection("plain")
        made = verso.create_collection("short", artifact="short")
        assert made.space != stable.space
        assert verso.create_collection("short", artifact="short") == made
        with pytest.raises(CollectionExists, match="space"):
            verso.create_collection("plain", artifact="short")
        documents = [Document(text, id=f"{n}") for n, text in enumerate(TEXTS)]
        assert verso.ingest(documents, collection="short").failed == ()
        read = verso.reconstruct([f"{n}" for n in range(len(TEXTS))], collection="short")
        assert [one.data.decode() for one in read] == TEXTS
        found = verso.search(TEXTS[3], collection="short")
        assert found.hits[0].text == TEXTS[3]


def test_an_embed_names_its_artifact(serving: str) -> None:
    long = "the link on port 1 is down; " * 100
    with Client(serving) as verso:
        stable, short = verso.embed([long]), verso.embed([long], artifact="short")
        assert (short[0].tokens, stable[0].tokens) == (255, 256)
        with pytest.raises(ModelUnknown, match="short"):
            verso.embed([long], artifact="absent")
        with pytest.raises(ModelUnknown):
            verso.create_collection("none", artifact="absent")


def test_openais_clients_find_it_among_the_models(serving: str) -> None:
    names = {one["id"] for one in httpx2.get(f"{serving}/v1/models", timeout=60).json()["data"]}
    assert {"verso", "short"} <= names
    body = {"model": "short", "input": TEXTS[:1]}
    found = (
        httpx2.post(f"{serving}/v1/embeddings", json=body, timeout=120).raise_for_status().json()
    )
    assert found["model"] == "short"
    with Client(serving) as verso:
        [own] = verso.embed(TEXTS[:1], artifact="short")
    assert found["data"][0]["embedding"] == pytest.approx(own.embedding, abs=1e-5)

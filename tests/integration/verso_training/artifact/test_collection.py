"""An artifact fitted to a collection is one that the worker loads, writes and reads with."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from verso_core import manifest
from verso_core.errors import ArtifactInvalid, RequestInvalid
from verso_core.jobs import CodecPolicy, Precision
from verso_core.record import Codec, Record
from verso_training.artifact import collection
from verso_worker.engine.loading import load_service
from verso_worker.records.artifact import byte_codecs, cutter
from verso_worker.records.recorder import Recorder
from verso_worker.records.space import Space

ARTIFACT = Path(__file__).parents[3] / "data" / "artifact-tiny"


def lines(count: int) -> Iterator[bytes]:
    rng = np.random.default_rng(4)
    for number in range(count):
        host, size = rng.integers(1, 255), rng.integers(10**6)
        yield f"09:{number // 60:02}:{number % 60:02} pump-{host} sent {size} bytes".encode()


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, collection.Report]:
    folder = tmp_path_factory.mktemp("models") / "pumps"
    return folder, collection.fit(ARTIFACT, lines(200), folder=folder, name="pumps")


def test_fitted_codecs_take_less(fitted: tuple[Path, collection.Report]) -> None:
    report = fitted[1]
    assert report.held_out == 30
    assert report.after["mixture"] < 0.4 * min(report.before.values())
    assert report.after["zstd"] <= report.before["zstd"]


def test_the_space_stays_and_the_codec_is_new(fitted: tuple[Path, collection.Report]) -> None:
    old, new = manifest.load(ARTIFACT).manifest, manifest.load(fitted[0]).manifest
    assert new.space == old.space
    assert new.codec.id != old.codec.id
    assert new.name == "pumps"


def test_the_mixture_belongs_to_the_codec(
    fitted: tuple[Path, collection.Report], tmp_path: Path
) -> None:
    """Another history is another codec, and an altered one is refused."""
    other = tmp_path / "other"
    collection.fit(ARTIFACT, list(lines(200))[:150], folder=other, name="pumps")
    ids = {manifest.load(folder).manifest.codec.id for folder in (fitted[0], other)}
    assert len(ids) == 2
    (other / "mixture.npz").write_bytes((fitted[0] / "mixture.npz").read_bytes())
    with pytest.raises(ArtifactInvalid):
        manifest.load(other)


@pytest.mark.parametrize("name", ["mixture.npz", "zstd.dict", "golden.jsonl"])
def test_a_flipped_bit_in_what_was_fitted_is_found(
    fitted: tuple[Path, collection.Report], tmp_path: Path, name: str
) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(fitted[0], folder)
    sound = (folder / name).read_bytes()
    for at in (0, len(sound) // 3, len(sound) - 1):
        flipped = bytes([sound[at] ^ 1 << at % 8])
        (folder / name).write_bytes(sound[:at] + flipped + sound[at + 1 :])
        with pytest.raises(ArtifactInvalid, match=name):
            manifest.load(folder)


def test_a_worker_writes_and_reads_with_it(fitted: tuple[Path, collection.Report]) -> None:
    artifact = manifest.load(fitted[0])
    service = load_service(artifact, threads=1)  # the golden samples run
    recorder = Recorder(service, byte_codecs(artifact), cutter(artifact))
    about = artifact.manifest.space
    space = Space(Precision.INT8, about.dim, about.int8_scale)
    texts = [*[*lines(210)][200:], b"", b"\xff\x00", b"something else altogether"]
    stored = space.round(service.encode(texts).vectors)
    records = recorder.write(
        texts, stored, precision=space, slot=1, key=b"key", policy=CodecPolicy.SMALLEST
    )
    assert [record.codec for record in records[:10]] == [Codec.MIXTURE] * 10
    again = [Record.unpack(record.pack()) for record in records]
    assert recorder.read(again, list(stored), precision=space, key=b"key") == texts
    plain = recorder.write(
        texts, stored, precision=space, slot=1, key=b"key", policy=CodecPolicy.FAST
    )
    assert {record.codec for record in plain} <= {Codec.RAW, Codec.ZSTD}
    service.close()


def test_a_mixture_record_of_an_artifact_without_one_is_an_error() -> None:
    """Such a record is damaged; reading it must say so and not fail."""
    artifact = manifest.load(ARTIFACT)
    service = load_service(artifact, threads=1)
    recorder = Recorder(service, byte_codecs(artifact), cutter(artifact))
    about = artifact.manifest.space
    space = Space(Precision.INT8, about.dim, about.int8_scale)
    record = Record(Codec.MIXTURE, 0, bytes(8), bytes(4), b"abc")
    [found] = recorder.read([record], [None], precision=space, key=b"key")
    assert getattr(found, "code", None) == "record_corrupt"
    service.close()


def test_too_few_texts_and_a_folder_in_use_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RequestInvalid, match="at least"):
        collection.fit(ARTIFACT, lines(5), folder=tmp_path / "new", name="new")
    with pytest.raises(RequestInvalid, match="exists"):
        collection.fit(ARTIFACT, lines(30), folder=tmp_path, name="new")


def test_pieces_are_short_and_join_to_the_text() -> None:
    text = b"\n".join(lines(100)) + b"x" * 3000
    pieces = list(collection.cut(text))
    assert b"".join(pieces) == text
    assert max(map(len, pieces)) <= 1024
    assert pieces[0].endswith(b"\n")

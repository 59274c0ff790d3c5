"""An artifact that is not exactly what was published is refused with a clear error."""

from __future__ import annotations

import base64
import json
import shutil
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from verso_core import manifest
from verso_core.errors import ArtifactInvalid, NotReady
from verso_core.manifest import Artifact, Manifest
from verso_core.record import Codec
from verso_worker.engine.encoder import Precision, halved
from verso_worker.engine.loading import describe, load_service
from verso_worker.engine.passed import CodecGate, PassedChecks
from verso_worker.engine.sessions import Device, open_session
from verso_worker.records.artifact import (
    GOLDEN_MIN,
    byte_codecs,
    cutter,
    golden_samples,
    rank_tables,
    tokenizer,
)

ARTIFACT = Path(__file__).parents[3] / "data" / "artifact-tiny"
FILES = sorted([*manifest.SPACE_FILES, *manifest.CODEC_FILES, *manifest.OTHER_FILES])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the artifact that a test may spoil."""
    return Path(shutil.copytree(ARTIFACT, tmp_path / "artifact"))


def _load(folder: Path) -> None:
    load_service(manifest.load(folder), threads=1).close()


def _publish_again(folder: Path, change: Callable[[dict[str, Any]], None] | None = None) -> None:
    """Write a manifest that fits the folder's files, as a careless publisher might."""
    content = json.loads((folder / manifest.MANIFEST_NAME).read_bytes())
    if change is not None:
        change(content)
    files = {name: manifest.describe(folder / name) for name in content["files"]}
    content["files"] = {name: file.model_dump() for name, file in files.items()}
    parsed = Manifest.model_validate(content)
    content["space"]["id"] = manifest.space_id(parsed.space, files)
    content["codec"]["id"] = manifest.codec_id(parsed.codec, files)
    manifest.write(manifest.Manifest.model_validate(content), folder)


def _change_golden(
    folder: Path, change: Callable[[dict[str, Any]], None], *, index: int = 5
) -> None:
    path = folder / "golden.jsonl"
    samples = [json.loads(line) for line in path.read_bytes().splitlines()]
    change(samples[index])
    path.write_text("".join(json.dumps(sample) + "\n" for sample in samples), encoding="utf-8")


def test_a_sound_artifact_is_served_and_described() -> None:
    artifact = manifest.load(ARTIFACT)
    _load(ARTIFACT)
    described = describe(artifact, threads=1, device=Device.CPU, precision=Precision.FLOAT32)
    assert described["space"] == artifact.manifest.space.id
    assert described["codec"] == artifact.manifest.codec.id


@pytest.mark.parametrize("name", FILES)
def test_one_flipped_bit_in_any_file_is_refused(folder: Path, name: str) -> None:
    data = bytearray((folder / name).read_bytes())
    data[len(data) // 2] ^= 1
    (folder / name).write_bytes(data)
    with pytest.raises(ArtifactInvalid, match=rf"^{name}: expected sha256"):
        _load(folder)


@pytest.mark.parametrize("name", sorted({*FILES} - {"MODEL_CARD.md", "zstd.dict"}))
def test_a_file_of_noise_with_a_fitting_hash_is_refused(folder: Path, name: str) -> None:
    (folder / name).write_bytes(b"not what the name says\n" * 100)
    _publish_again(folder)
    with pytest.raises(ArtifactInvalid, match=name.replace(".", r"\.") + "|tables"):
        _load(folder)


def test_tables_are_loaded_without_a_file_that_a_kill_would_leave(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(folder / "missing"))
    with pytest.raises(FileNotFoundError), tempfile.TemporaryFile():
        pass
    artifact = manifest.load(folder)
    assert Codec.NGRAM in byte_codecs(artifact)
    assert rank_tables(artifact).vocab == artifact.manifest.codec.vocab


def test_a_dictionary_of_another_artifact_fails_the_golden_samples(folder: Path) -> None:
    (folder / "zstd.dict").write_bytes(b"another dictionary " * 200)
    _publish_again(folder)
    with pytest.raises(ArtifactInvalid, match="its zstd payload does not decode to its text"):
        _load(folder)


def test_a_graph_in_the_place_of_another_is_refused(folder: Path) -> None:
    shutil.copy(folder / "encoder.onnx", folder / "decoder.onnx")
    _publish_again(folder)
    with pytest.raises(ArtifactInvalid, match=r"decoder\.onnx: expected inputs bias"):
        _load(folder)


def test_sizes_that_are_not_the_graphs_are_refused(folder: Path) -> None:
    _publish_again(folder, lambda content: content["codec"].update(head_dim=64))
    with pytest.raises(ArtifactInvalid):
        _load(folder)


def test_a_wrong_golden_vector_is_refused(folder: Path) -> None:
    def turn(sample: dict[str, Any]) -> None:
        vector = base64.b64decode(sample["vector_base64"])
        sample["vector_base64"] = base64.b64encode(vector[2:] + vector[:2]).decode()

    _change_golden(folder, turn)
    _publish_again(folder)
    with pytest.raises(ArtifactInvalid, match=r"golden sample 6: expected cosine >= 0\.9999"):
        _load(folder)


@pytest.mark.parametrize("codec", ["neural", "ngram", "zstd"])
def test_a_golden_payload_that_reads_differently_is_refused(folder: Path, codec: str) -> None:
    def spoil(sample: dict[str, Any]) -> None:
        payload = bytearray(base64.b64decode(sample["patches"][codec]))
        payload[0] ^= 0x55
        sample["patches"][codec] = base64.b64encode(payload).decode()

    _change_golden(folder, spoil)
    _publish_again(folder)
    with pytest.raises(ArtifactInvalid, match=f"golden sample 6: its {codec} payload"):
        _load(folder)


def _other_text(sample: dict[str, Any]) -> None:
    sample["text_base64"], sample["tokens"] = base64.b64encode(b"another").decode(), 3
    sample["patches"] = {"zstd": sample["patches"]["zstd"]}


def test_an_artifact_that_passed_here_runs_its_first_golden_samples_again(
    folder: Path, tmp_path: Path
) -> None:
    _change_golden(folder, _other_text, index=20)
    _publish_again(folder)
    artifact, checks = manifest.load(folder), tmp_path / "checks"
    for _ in range(2):  # what failed is not remembered as passed
        with pytest.raises(ArtifactInvalid, match="golden sample 21"):
            load_service(artifact, threads=1, checks=checks)
    settings = ("1", Device.CPU.value, Precision.FLOAT32.value)
    PassedChecks(checks, settings).add(artifact)
    load_service(artifact, threads=1, checks=checks).close()
    with pytest.raises(ArtifactInvalid, match="golden sample 21"):
        load_service(artifact, threads=2, checks=checks)


def test_the_first_golden_samples_are_checked_at_every_start(folder: Path, tmp_path: Path) -> None:
    _change_golden(folder, _other_text)
    _publish_again(folder)
    artifact, checks = manifest.load(folder), tmp_path / "checks"
    PassedChecks(checks, ("1", Device.CPU.value, Precision.FLOAT32.value)).add(artifact)
    with pytest.raises(ArtifactInvalid, match="golden sample 6"):
        load_service(artifact, threads=1, checks=checks)


def test_codecs_are_checked_behind_the_gate_on_the_first_try_only(
    folder: Path, tmp_path: Path
) -> None:
    def spoil(sample: dict[str, Any]) -> None:
        payload = bytearray(base64.b64decode(sample["patches"]["neural"]))
        payload[0] ^= 0x55
        sample["patches"]["neural"] = base64.b64encode(payload).decode()

    _change_golden(folder, spoil)
    _publish_again(folder)
    load = partial(load_service, manifest.load(folder), threads=1, checks=tmp_path / "checks")
    gate = CodecGate()
    with closing(load(gate=gate)) as service:
        assert len(service.encode([b"vectors are served"]).vectors) == 1
        with pytest.raises(ArtifactInvalid, match="golden sample 6: its neural payload"):
            gate.await_passed()
    with pytest.raises(ArtifactInvalid, match="golden sample 6: its neural payload"):
        load(gate=CodecGate())


def test_a_call_waits_for_a_check_that_runs_only_as_long_as_it_may() -> None:
    gate, started, end = CodecGate(), threading.Event(), threading.Event()

    def check() -> None:
        started.set()
        end.wait(60)

    gate.defer(check)
    with ThreadPoolExecutor(1) as thread:
        first = thread.submit(gate.await_passed)
        assert started.wait(60)
        with pytest.raises(NotReady):
            gate.await_passed(patience_s=0.01)
        end.set()
        first.result(60)
    gate.await_passed(patience_s=0.01)


def test_what_passed_behind_the_gate_is_remembered(tmp_path: Path) -> None:
    artifact, gate = manifest.load(ARTIFACT), CodecGate()
    with closing(load_service(artifact, threads=1, checks=tmp_path, gate=gate)):
        gate.await_passed()
    assert PassedChecks(tmp_path, ("1", "cpu", "float32")).holds(artifact)


@pytest.mark.parametrize(
    ("key", "value"),
    [("text_base64", "***"), ("vector_base64", "AAAA"), ("patches", {"lzma": ""}), ("tokens", "x")],
)
def test_a_malformed_golden_sample_is_refused(folder: Path, key: str, value: object) -> None:
    _change_golden(folder, lambda sample: sample.update({key: value}))
    _publish_again(folder)
    with pytest.raises(ArtifactInvalid, match=r"golden\.jsonl: line 6"):
        _load(folder)


def test_too_few_golden_samples_are_refused(folder: Path) -> None:
    path = folder / "golden.jsonl"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[: GOLDEN_MIN - 1]))
    _publish_again(folder)
    with pytest.raises(ArtifactInvalid, match=f"expected >= {GOLDEN_MIN} samples"):
        _load(folder)


def test_an_unknown_optimisation_level_is_refused(folder: Path) -> None:
    _publish_again(folder, lambda content: content["codec"]["profile"].update(optimisation="all"))
    with pytest.raises(ArtifactInvalid, match="got 'all'"):
        _load(folder)


def test_a_file_changed_after_the_check_is_not_read(folder: Path) -> None:
    artifact = manifest.load(folder)
    for name in FILES:
        (folder / name).write_bytes(b"")
    load_service(artifact, threads=1).close()


def _need_float32(folder: Path) -> None:
    """Let the encoder divide half of its numbers by 1e9 on their way, and multiply them again."""
    path = folder / "encoder.onnx"
    model = onnx.load(path)
    *_, last = model.graph.node
    assert last.output == ["vector"]
    model.graph.node.remove(last)
    dim = manifest.load(folder).manifest.space.dim
    for name, scale in (("small", 1e-9), ("large", 1e9)):
        scales = np.where(np.arange(dim) % 2, 1, scale).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(scales, name))
        model.graph.node.append(onnx.helper.make_node("Mul", [last.input[0], name], [f"{name}_x"]))
        last.input[0] = f"{name}_x"
    model.graph.node.append(last)
    onnx.save(model, path)
    _publish_again(folder)


def test_an_encoder_that_float16_cannot_hold_is_refused_and_float32_serves(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    _need_float32(folder)
    artifact = manifest.load(folder)
    with closing(load_service(artifact, threads=1, precision=Precision.FLOAT16)) as service:
        assert service.precision is Precision.FLOAT32
        golden = golden_samples(artifact)
        vectors = service.encode([sample.text for sample in golden]).vectors
    assert np.allclose(vectors, [sample.vector for sample in golden], atol=1e-3)
    assert "no encoder in float16, float32 serves: golden sample 1: expected cosine" in caplog.text


def test_what_is_no_graph_is_refused_in_float16_too() -> None:
    with pytest.raises(ArtifactInvalid, match=r"^encoder.onnx: cannot be brought to float16"):
        halved(b"no graph", "encoder.onnx")


def test_the_same_graph_becomes_the_same_float16_graph() -> None:
    graph = manifest.load(ARTIFACT).data["encoder.onnx"]
    assert halved(graph, "encoder.onnx") == halved(graph, "encoder.onnx") != graph


def test_cuda_is_refused_where_the_runtime_has_none() -> None:
    import onnxruntime

    if "CUDAExecutionProvider" in onnxruntime.get_available_providers():
        pytest.skip("this runtime has CUDA")
    artifact = manifest.load(ARTIFACT)
    with pytest.raises(ArtifactInvalid, match="CUDA"):
        open_session(
            artifact.data["encoder.onnx"],
            "encoder.onnx",
            threads=1,
            device=Device.CUDA,
            optimisation="basic",
        )


@pytest.fixture(scope="module")
def artifact() -> Artifact:
    return manifest.load(ARTIFACT)


def test_byte_codecs_give_golden_texts_back(artifact: Artifact) -> None:
    codecs = byte_codecs(artifact)
    assert set(codecs) == {Codec.ZSTD, Codec.NGRAM}
    for sample in golden_samples(artifact):
        for coder in codecs.values():
            assert coder.decode(coder.encode(sample.text)) == sample.text


def test_the_cutter_has_the_windows_of_the_artifact(artifact: Artifact) -> None:
    made = cutter(artifact)
    assert made.max_decoder_tokens == artifact.manifest.codec.max_tokens
    assert made.max_encoder_tokens == artifact.manifest.space.max_encoder_tokens
    assert b"".join(made.cut(b"one line\n" * 200)) == b"one line\n" * 200


def test_tokenizers_neither_cut_nor_pad(artifact: Artifact) -> None:
    for name in ("encoder_tokenizer.json", "decoder_tokenizer.json"):
        made = tokenizer(artifact, name)
        assert made.truncation is None
        assert made.padding is None


def test_rank_tables_fit_the_vocabulary(artifact: Artifact) -> None:
    assert rank_tables(artifact).vocab == artifact.manifest.codec.vocab

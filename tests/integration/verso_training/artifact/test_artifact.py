"""From texts to an artifact: prepare, train, resume, export, tables, golden samples, manifest."""

import base64
import dataclasses
import gc
import json
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import torch
from numpy.typing import NDArray
from tests.support import tiny_artifact

from verso_codecs import ranks
from verso_core import manifest
from verso_training import config
from verso_training.artifact import export, weights
from verso_training.artifact.evaluate import Suite
from verso_training.config import Conditioning, Recipe, Storage
from verso_training.data import dataset
from verso_training.data.sources import Split
from verso_training.decoder.model import Decoder
from verso_training.decoder.train import Run
from verso_worker.engine.decoder import Cache
from verso_worker.engine.decoder import Decoder as ServedDecoder
from verso_worker.engine.sessions import Load, Sessions

COMMITTED = Path(__file__).resolve().parents[3] / "data" / "artifact-tiny"


@pytest.fixture(scope="module")
def recipe() -> Recipe:
    return config.load("tiny")


@pytest.fixture(scope="module")
def made(recipe: Recipe, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an artifact made in one go: ``artifact``, and its data and run in ``work``.

    Little is trained, counted and measured: of that the committed artifact tells.
    """
    folder = tmp_path_factory.mktemp("made")
    data = dataclasses.replace(recipe.data, total_bytes=60_000, validation_chunks=30)
    train = dataclasses.replace(recipe.train, max_steps=12)
    publish = dataclasses.replace(
        recipe.publish,
        table_bytes=60_000,
        fit_chunks=40,
        mixing_chunks=40,
        report_chunks=24,
        golden=16,
    )
    short = dataclasses.replace(recipe, data=data, train=train, publish=publish)
    tiny_artifact.build(folder / "artifact", work=folder / "work", recipe=short)
    return folder


@pytest.fixture(scope="module")
def prepared(made: Path) -> Path:
    return made / "work" / "data"


def test_the_tiny_artifact_is_made_and_verified_in_one_go(recipe: Recipe, made: Path) -> None:
    artifact = manifest.load(made / "artifact")
    assert artifact.manifest.codec.slots == recipe.model.slots
    assert sum(f.size_bytes for f in artifact.manifest.files.values()) < 2_000_000


def test_the_committed_artifact_has_at_least_64_golden_samples() -> None:
    artifact = manifest.load(COMMITTED)
    lines = artifact.data["golden.jsonl"].decode().splitlines()
    assert len(lines) >= 64
    assert {"text_base64", "vector_base64", "patches", "tokens"} == set(json.loads(lines[0]))


def test_golden_samples_read_back_in_one_batch(recipe: Recipe) -> None:
    suite = Suite.load(COMMITTED, recipe)
    rows = [json.loads(line) for line in (COMMITTED / "golden.jsonl").read_text().splitlines()]
    rows = [row for row in rows if "neural" in row["patches"]][:24]
    payloads = [base64.b64decode(row["patches"]["neural"]) for row in rows]
    vectors = np.stack(
        [np.frombuffer(base64.b64decode(row["vector_base64"]), "<f2") for row in rows]
    ).astype(np.float32)
    decoded = suite.decoder.decode(payloads, vectors, suite.rank_tables)
    texts = [suite.decoder.tokenizer.decode(i, skip_special_tokens=False).encode() for i in decoded]
    assert texts == [base64.b64decode(row["text_base64"]) for row in rows]


def test_float_noise_within_the_margin_changes_no_token(recipe: Recipe) -> None:
    suite = Suite.load(COMMITTED, recipe)
    row = json.loads((COMMITTED / "golden.jsonl").read_text().splitlines()[20])
    text = base64.b64decode(row["text_base64"]).decode()
    vector = np.frombuffer(base64.b64decode(row["vector_base64"]), "<f2").astype(np.float32)[None]
    ((_, seen),) = suite.decoder.passes([suite.decoder.tokens(text)], vector)
    rng = np.random.default_rng(0)
    half = recipe.publish.epsilon / 2
    streams = ranks.Streams([base64.b64decode(row["patches"]["neural"])], suite.rank_tables)
    for t, target in enumerate(seen.targets):
        noise = rng.uniform(-half, half, seen.logits[t].shape).astype(np.float32)
        near = seen.confidence[t : t + 1] + np.float32(rng.uniform(-half, half))
        (token,) = streams.step(np.zeros(1, np.int32), seen.logits[t : t + 1] + noise, near)
        assert token == target


def test_a_resumed_run_goes_on_where_it_stopped(
    recipe: Recipe, prepared: Path, tmp_path: Path
) -> None:
    def limited(steps: int) -> Recipe:
        return dataclasses.replace(recipe, train=dataclasses.replace(recipe.train, max_steps=steps))

    first = Run(limited(4), data=prepared, folder=tmp_path)
    first.train()
    second = Run(limited(6), data=prepared, folder=tmp_path, resume=True)
    assert second.progress.step == 4
    assert second.int8_scale == first.int8_scale
    for name, weight in first.decoder.state_dict().items():
        torch.testing.assert_close(second.decoder.state_dict()[name], weight)
    second.train()
    assert second.progress.step == 6
    assert json.loads((tmp_path / "recipe.json").read_text())["name"] == "tiny"
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 2


def test_prepared_chunks_fit_the_decoder_and_have_unit_vectors(
    recipe: Recipe, prepared: Path
) -> None:
    loaded = dataset.load(prepared, Split.TRAIN)
    assert len(loaded) == len(loaded.vectors) > 100
    assert int(loaded.lengths().max()) < recipe.model.max_tokens
    norms = np.linalg.norm(np.asarray(loaded.vectors, np.float32), axis=1)
    np.testing.assert_allclose(norms, 1.0, atol=2e-3)


def test_the_step_graph_continues_the_teacher_forced_graph(recipe: Recipe, made: Path) -> None:
    """Values of decoder.onnx, one token at a time, against all at once."""
    memory = export.session(made / "artifact" / "memory.onnx")
    graph = export.session(made / "artifact" / "decoder.onnx")
    model = recipe.model
    vector = np.full((1, model.vector_dim), model.vector_dim**-0.5, np.float32)
    bias, *cache = memory.run(None, {"vector": vector})
    assert cache[0].shape == (1, model.kv_heads, model.slots, model.head_dim)
    tokens = np.array([[model.bos, 5, 6, 7]], np.int64)

    def run(tokens: np.ndarray, start: int, cache: list[np.ndarray]) -> list[np.ndarray]:
        count = tokens.shape[1]
        feeds = {
            "tokens": tokens,
            "positions": np.arange(start, start + count, dtype=np.int64)[None],
            "bias": bias,
            "past_mask": np.zeros((1, cache[0].shape[2]), np.float32),
        }
        for layer in range(model.layers):
            feeds[f"past_key_{layer}"] = cache[2 * layer]
            feeds[f"past_value_{layer}"] = cache[2 * layer + 1]
        result: list[np.ndarray] = graph.run(None, feeds)
        return result

    forced = run(tokens, 0, cache)
    alone = run(tokens[:, 3:], 3, cache)
    assert np.abs(alone[0][0, 0] - forced[0][0, 3]).max() > 1e-2, "expected to attend to the past"
    past = cache
    for t in range(4):
        logits, confidence, *new = run(tokens[:, t : t + 1], t, past)
        np.testing.assert_allclose(logits[0, 0], forced[0][0, t], atol=2e-5)
        np.testing.assert_allclose(confidence[0, 0], forced[1][0, t], atol=1e-4)
        past = [np.concatenate(pair, axis=2) for pair in zip(past, new, strict=True)]


def stored(weight: NDArray[np.float32], storage: Storage, path: Path) -> NDArray[np.float32]:
    """Write a graph of one product and return its weight as a session widens it."""
    rows, columns = weight.shape
    node = onnx.helper.make_node("MatMul", ["x", "w"], ["y"])
    x = onnx.helper.make_tensor_value_info("x", 1, ["B", rows])
    y = onnx.helper.make_tensor_value_info("y", 1, ["B", columns])
    initializer = onnx.numpy_helper.from_array(weight, "w")
    graph = onnx.helper.make_graph([node], "g", [x], [y], [initializer])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 20)])
    model.ir_version = 10
    onnx.save(export.store(model, storage), path)
    session = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    widened: NDArray[np.float32] = session.run(None, {"x": np.eye(rows, dtype=np.float32)})[0]
    return widened


def a_weight() -> NDArray[np.float32]:
    rng = np.random.default_rng(0)
    return (rng.normal(size=(128, 96)) * rng.uniform(0.01, 3, 96)).astype(np.float32)


def test_int8_weights_are_off_by_half_a_step_per_channel(tmp_path: Path) -> None:
    weight = a_weight()
    widened = stored(weight, Storage.INT8, tmp_path / "g.onnx")
    step = np.abs(weight).max(0) / 127
    assert (np.abs(widened - weight) <= 0.5 * step + 1e-6).all()
    assert (tmp_path / "g.onnx").stat().st_size < weight.nbytes / 2


def test_float16_weights_are_the_nearest_halves(tmp_path: Path) -> None:
    weight = a_weight()
    widened = stored(weight, Storage.FLOAT16, tmp_path / "g.onnx")
    np.testing.assert_array_equal(widened, weight.astype(np.float16).astype(np.float32))
    assert (tmp_path / "g.onnx").stat().st_size < 0.6 * weight.nbytes


@pytest.mark.parametrize("conditioning", list(Conditioning))
def test_exported_decoders_decode_step_by_step_as_the_module_does(
    recipe: Recipe, tmp_path: Path, conditioning: Conditioning
) -> None:
    """In the worker's own cache; and the graphs' weights are found again."""
    torch.manual_seed(1)
    model = dataclasses.replace(recipe.model, conditioning=conditioning)
    made = Decoder(model).eval()
    for weight in made.parameters():
        torch.nn.init.normal_(weight, std=0.1)
    export.export_memory(made, tmp_path / "memory.onnx", storage=Storage.FLOAT32)
    export.export_decoder(made, tmp_path / "decoder.onnx", storage=Storage.FLOAT32)
    about = manifest.load(COMMITTED).manifest.codec
    codec = about.model_copy(update={"slots": model.prefix})
    again = weights.decoder(tmp_path, codec, vector_dim=model.vector_dim)
    for name, weight in made.state_dict().items():
        torch.testing.assert_close(again.state_dict()[name], weight)
    memory, steps = (export.session(tmp_path / name) for name in weights.GRAPHS)
    served = ServedDecoder(memory, Sessions(steps, None, load=Load()), codec, dim=model.vector_dim)
    vectors = torch.nn.functional.normalize(torch.randn(2, model.vector_dim), dim=-1)
    tokens = torch.randint(0, model.bos, (2, 6))
    with torch.inference_mode():
        expected = made.logits(made.teacher_forced(tokens, vectors)).numpy()
    cache = Cache(served, 2)
    cache.add(served.memory(vectors.numpy()))
    for at in range(6):
        found = cache.step(tokens[:, at].numpy()).logits
        np.testing.assert_allclose(found, expected[:, at], atol=2e-4)


@pytest.mark.parametrize("enabled", [True, False])
def test_garbage_is_looked_for_after_an_export_as_before(tmp_path: Path, *, enabled: bool) -> None:
    module, found = torch.nn.Linear(2, 2), gc.isenabled()
    (gc.enable if enabled else gc.disable)()
    try:
        export.traced(
            module, (torch.ones(1, 2),), tmp_path / "g.onnx", inputs=["x"], outputs=["y"],
            dynamic=({},),
        )  # fmt: skip
        assert gc.isenabled() is enabled
    finally:
        (gc.enable if found else gc.disable)()

"""Heads from rows to a folder: trained, written, loaded and run as a worker does."""

import json
import resource
import signal
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch

from verso_core import heads, manifest, registry
from verso_core.errors import Cancelled, DiskFull, HeadInvalid
from verso_core.heads import Reads, SignalName
from verso_training.artifact import graphs
from verso_training.config import RecipeInvalid
from verso_training.heads import (
    backbone,
    fitting,
    graph,
    reader,
    recipe,
    shipping,
    token_classifier,
    vector_classifier,
)
from verso_training.heads.context import HeadReport, TrainingContext
from verso_training.heads.modules import (
    CrossEncoder,
    SequenceClassifier,
    SpanHead,
    SpanReader,
    VectorClassifier,
)
from verso_training.heads.recipe import SpanLayers
from verso_training.heads.rows import Row
from verso_training.heads.shipping import Provenance
from verso_training.heads.vectors import Progress

TINY = Path(__file__).parents[2] / "data" / "artifact-tiny"
DATA = Provenance(("made up",), "Apache-2.0", "pytest")


def rows(count: int = 40) -> list[Row]:
    rng = np.random.default_rng(0)
    words = {"fire": ("timed out", "was refused"), "calm": ("was loaded", "has answered")}
    return [
        Row(label, f"gateway {rng.integers(1_000_000)}: the worker {rng.choice(said)} {i}")
        for label, said in words.items()
        for i in range(count)
    ]


def train(out: Path, *, count: int = 40, **more: Any) -> HeadReport:
    values = {"name": "mood", "classify": {"l2": [0.01], "iterations": 20}}
    context = TrainingContext(TINY, out, DATA, **more)
    return vector_classifier.train_head(recipe.parse(values), rows(count), context)


def test_a_head_is_trained_written_and_checked(tmp_path: Path) -> None:
    seen: list[Progress] = []
    report = train(tmp_path, on_progress=seen.append)
    loaded = heads.load(report.folder)
    assert loaded.head.labels == ("calm", "fire")
    assert loaded.head.metrics["accuracy"] > 0.8
    assert report.folder == tmp_path / "mood" / loaded.head.version
    assert [p.share for p in seen] == sorted(p.share for p in seen)
    assert seen[-1].share == 1.0
    assert {p.name for p in (tmp_path / "mood").iterdir()} == {loaded.head.version}


def test_a_few_dozen_rows_are_enough(tmp_path: Path) -> None:
    report = train(tmp_path, count=12)
    assert report.rows["test"] < heads.GOLDEN_LINES
    assert heads.load(report.folder).head.labels == ("calm", "fire")


def test_a_head_can_be_calibrated_with_what_the_decoder_says(tmp_path: Path) -> None:
    values = {"name": "mood", "classify": {"l2": [0.01], "iterations": 20, "decoder": True}}
    context = TrainingContext(TINY, tmp_path, DATA)
    report = vector_classifier.train_head(recipe.parse(values), rows(), context)
    of_decoder = {
        SignalName.SELF_GENERATION, SignalName.BITS_GIVEN_VECTOR, SignalName.BITS_SAVED,
    }  # fmt: skip
    assert of_decoder <= report.head.calibration.signals.keys()
    assert {f"augrc/{name}" for name in of_decoder} <= report.head.metrics.keys()
    bare = [Row(row.label, vector=np.eye(384, dtype=np.float32)[n]) for n, row in enumerate(rows())]
    with pytest.raises(RecipeInvalid, match="got vectors"):
        vector_classifier.train_head(recipe.parse(values), bare, context)
    with pytest.raises(RecipeInvalid, match="got both"):
        recipe.parse({"name": "mood", "classify": {"decoder": True, "chunk": "last"}})


def test_the_same_rows_and_recipe_give_the_same_head(tmp_path: Path) -> None:
    assert train(tmp_path / "a").head.metrics == train(tmp_path / "b").head.metrics


def test_a_cancelled_training_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(Cancelled):
        train(tmp_path, should_stop=lambda: True)
    assert list(tmp_path.rglob("*")) == []


def test_a_full_disk_is_an_error_and_leaves_nothing(tmp_path: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
        with pytest.raises(DiskFull):
            train(tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, before)
    assert not list((tmp_path / "mood").iterdir())


def test_an_altered_golden_sample_is_found(tmp_path: Path) -> None:
    folder = train(tmp_path).folder
    lines = (folder / heads.GOLDEN).read_text().splitlines()
    sample = json.loads(lines[0])
    sample["outputs"]["logits"][0] += 0.01
    (folder / heads.GOLDEN).write_text("\n".join([json.dumps(sample), *lines[1:]]) + "\n")
    with pytest.raises(HeadInvalid):
        shipping.check(folder, artifact=TINY)


def test_a_classifier_on_tokens_learns_and_ships(tmp_path: Path) -> None:
    base = backbone.load(TINY)
    torch.manual_seed(0)
    module = SequenceClassifier(backbone.adapt(base, rank=4, alpha=8.0), classes=2, dropout=0.0)
    labels = {"calm": 0, "fire": 1}
    texts = token_classifier.tokenised(
        [(str(row.text), labels[row.label]) for row in rows()], base.tokenizer, max_tokens=24
    )
    budget = fitting.Budget(1.0, 6, rate=3e-3, tokens_per_step=240, warmup_steps=2)
    run = fitting.AdapterRun(
        module, budget, main=texts, losses=token_classifier.losses(module, torch.ones(2))
    )
    run.train(on_progress=lambda _: None, should_stop=lambda: False)
    logits, features = token_classifier.outputs(module, texts)
    assert (logits.argmax(-1) == np.array([text.target for text in texts])).mean() > 0.9
    assert features.shape == (len(texts), base.width)
    ids, mask, _ = token_classifier.collate(texts[:3])
    written = graph.write(
        module,
        tmp_path / "head.onnx",
        reads=Reads.TOKENS,
        outputs=("logits", "feature"),
        example=(ids, mask),
        sources=base.sources,
    )
    values = graph.widened(TINY / "encoder.onnx", written.base)
    feeds = {"input_ids": ids.numpy(), "attention_mask": mask.numpy()}
    found = graph.session(written.path, values).run(None, feeds)[0]
    assert found == pytest.approx(logits[:3], abs=2e-2)


def test_the_backbone_is_the_encoder_that_is_served() -> None:
    text = "the gateway restarted 17 workers"
    base = backbone.load(TINY)
    ids = torch.tensor([base.tokenizer.encode(text).ids])
    states = base.bert(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state
    # The tiny encoder widens its mean by a projection, which heads do not read.
    constants = {i.name: i for i in onnx.load(TINY / "encoder.onnx").graph.initializer}
    projection = backbone.Source("projection.weight.narrow", "projection.weight.scale")
    mean = states.mean(1).detach().numpy() @ projection.read(constants).T
    served = graphs.EncoderGraph(TINY).encode([text])
    assert mean / np.linalg.norm(mean) == pytest.approx(served, abs=1e-5)


@pytest.mark.parametrize("hidden", [0, 12])
def test_the_graph_of_a_classifier_on_vectors_computes_what_the_module_does(
    tmp_path: Path, hidden: int
) -> None:
    torch.manual_seed(0)
    module = VectorClassifier(dim=384, classes=7, hidden=hidden).eval()
    for weight in module.parameters():
        weight.data = weight.data.half().float()  # as they are stored, so that nothing is rounded
    outputs = ("logits", "feature") if hidden else ("logits",)
    rows = torch.nn.functional.normalize(torch.randn(5, 384))
    written = graph.write(
        module,
        tmp_path / "head.onnx",
        reads=Reads.VECTOR,
        outputs=outputs,
        example=(rows[:2],),
        sources={},
    )
    onnx.checker.check_model(onnx.load(written.path), full_check=True)
    found = graph.session(written.path, {}).run(None, {"vector": rows.numpy()})
    with torch.inference_mode():
        expected = module(rows)
    assert len(found) == len(outputs)
    for value, want in zip(found, expected, strict=True):
        assert value == pytest.approx(want.numpy(), abs=1e-5)


def test_a_reader_ships_without_the_encoders_weights(tmp_path: Path) -> None:
    base = backbone.load(TINY)
    torch.manual_seed(0)
    bert = backbone.adapt(base, rank=4, alpha=8.0)
    for module in bert.modules():
        if isinstance(module, backbone.LoraLinear):
            torch.nn.init.normal_(module.lora_b, std=0.05)
    spans = SpanReader(bert, SpanHead(SpanLayers.GELU_4_SKIP, width=base.width)).eval()
    ids = torch.randint(5, 100, (3, 9))
    mask, types = torch.ones_like(ids), torch.zeros_like(ids)
    mask[1, 6:], types[:, 4:] = 0, 1
    written = graph.write(
        spans,
        tmp_path / "head.onnx",
        reads=Reads.TOKEN_PAIR,
        outputs=("start", "end"),
        example=(ids, mask, types),
        sources=base.sources,
    )
    words = "bert.embeddings.word_embeddings.weight"
    products = [n for n in written.base if n.startswith("bert.encoder") and n.endswith("weight")]
    assert words in written.base
    assert len(products) >= 6
    # A weight of another encoder gives another answer: it really is read from outside.
    values = dict(graph.widened(TINY / "encoder.onnx", written.base))
    columns = {"input_ids": ids, "attention_mask": mask, "token_type_ids": types}
    feeds = {name: value.numpy() for name, value in columns.items()}
    right = graph.session(written.path, values).run(None, feeds)[0]
    turned = np.negative(values[words].astype(np.float32))
    wrong = graph.session(written.path, values | {words: turned}).run(None, feeds)[0]
    with torch.inference_mode():
        assert right == pytest.approx(spans(ids, mask, types)[0].numpy(), abs=5e-3)
    assert np.abs(right - wrong).max() > 0.01


@pytest.mark.parametrize("name", ["kinds-tokens", "pairs", "qa"])
def test_a_tiny_head_has_the_settings_that_it_says(name: str) -> None:
    [folder] = (TINY.parent / "heads-tiny" / "heads" / name).iterdir()
    start = graph.load(folder, space=manifest.load(TINY).manifest.space.id)
    made = recipe.parse(start.head.lineage.recipe)
    base = backbone.load(TINY)

    def adapted(settings: recipe.ClassifyConfig | recipe.ScoreConfig | recipe.AnswerConfig) -> Any:
        assert start.head.max_tokens == settings.max_tokens
        return backbone.adapt(base, rank=settings.rank, alpha=settings.alpha)

    module: torch.nn.Module
    if name == "kinds-tokens":
        classes = len(start.head.labels)
        module = SequenceClassifier(adapted(made.classify), classes=classes)
    elif name == "pairs":
        module = CrossEncoder(adapted(made.score))
    else:
        head = SpanHead(made.answer.layers, width=base.width)
        module = SpanReader(adapted(made.answer), head)
    start.restore(module)


@pytest.mark.parametrize("name", ["qa", "pairs"])
def test_the_heads_that_ship_can_be_gone_on_from(name: str) -> None:
    """Read back from its graph, a head gives what its golden samples say."""
    models = TINY.parents[2] / "models"
    artifact = registry.resolve(models)
    space = manifest.load(artifact).manifest.space.id
    folder = registry.head(models, name)
    found, base = graph.load(folder, space=space), backbone.load(artifact)
    module: torch.nn.Module
    if name == "qa":
        answer = graph.shaped(recipe.AnswerConfig(), found)
        module = reader.Reader(base, answer).only(answer.layers)
    else:
        score = graph.shaped(recipe.ScoreConfig(), found)
        module = CrossEncoder(backbone.adapt(base, rank=score.rank, alpha=score.alpha))
    found.restore(module)
    module.eval()
    for line in (folder / heads.GOLDEN).read_text().splitlines()[:3]:
        golden = json.loads(line)
        names = graph.INPUTS[Reads.TOKEN_PAIR]
        with torch.inference_mode():
            given = module(*(torch.tensor([golden["inputs"][one]]) for one in names))
        for value, expected in zip(given, golden["outputs"].values(), strict=True):
            assert value[0].numpy() == pytest.approx(np.array(expected), abs=1e-3)

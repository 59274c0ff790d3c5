"""The studies of the papers' rows, on the artifact for tests and a few texts."""

from __future__ import annotations

import dataclasses
import json
import lzma
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from studies.papers import (
    aggregation,
    catalogue,
    classification,
    guesses,
    loaded,
    pooling,
    precision,
    recurrent,
    saving,
    sentiment,
    sizes,
    written,
)
from studies.papers.multi_task import pair_strategies
from studies.papers.multi_task.pair_strategies import Comparison, Strategy
from studies.papers.question_answering import configurations, readers, students
from studies.quality.classification import Bench
from studies.tasks import sets as task_sets
from studies.tasks.distillation import halved
from verso_codecs import mixture_fit
from verso_codecs.mixture import MixtureTables
from verso_codecs.ngram import NgramTables
from verso_core import manifest
from verso_training import config
from verso_training.artifact import evaluate
from verso_training.data import dataset
from verso_training.data.sources import Chunk, Split
from verso_training.heads import backbone, reader
from verso_training.heads.questions import Question, windows
from verso_training.heads.reader import Reader
from verso_training.heads.recipe import AnswerConfig, SpanLayers
from verso_training.heads.scoring import Pair
from verso_training.pooling import Pooling

TESTS = Path(__file__).parents[2]
ARTIFACT = TESTS / "data" / "artifact-tiny"
MODELS = TESTS.parent / "models"
HEADS = TESTS / "data" / "heads-tiny" / "heads"


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(data=tmp_path / "data", artifact=ARTIFACT, work=tmp_path / "work")


def _packed(path: Path, rows: list[dict[str, object]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(lzma.compress("".join(json.dumps(row) + "\n" for row in rows).encode()))


def _rated(data: Path, name: str, rows: list[tuple[str, int]]) -> None:
    """Write texts with their ratings as a part of the folder of public sets."""
    path = data / "cs224n" / f"ids-{name}.csv"
    path.parent.mkdir(parents=True, exist_ok=True)
    said = "".join(f"{text}\t{rating}\n" for text, rating in rows)
    path.write_text(f"sentence\tsentiment\n{said}", encoding="utf-8")


def test_every_precision_is_searched_and_coded(bench: Bench) -> None:
    folder = bench.data / "ir_cacm"
    texts = [f"the {part} stops" for part in ("worker", "queue", "engine", "keeper")]
    _packed(folder / "corpus.jsonl.xz", [{"_id": f"{n}", "text": t} for n, t in enumerate(texts)])
    asked = "".join(json.dumps({"_id": f"q{n}", "text": t}) + "\n" for n, t in enumerate(texts))
    (folder / "queries.jsonl").write_text(asked)
    (folder / "qrels").mkdir()
    judged = "".join(f"q{n}\t{n}\t1\n" for n in range(len(texts)))
    (folder / "qrels" / "test.tsv").write_text(f"query-id\tcorpus-id\tscore\n{judged}")
    found = precision._measured(bench, folder)
    assert found["float32/ndcg"] == found["1 bit, 10 re-scored/ndcg"] == 100.0
    told = precision.page({"ir_cacm": found})
    assert told.count("\n| ir_cacm, ") == len(precision.KINDS) + 1 + len(precision.RESCORED)


def test_groups_of_rounded_vectors_are_compared_with_those_of_plain_ones(bench: Bench) -> None:
    rows: list[dict[str, object]] = [
        {"text": f"the {part} stops", "label": part, "date": "2019-04-05"}
        for part in ("worker", "queue") * 3
    ]
    for part in ("train", "dev", "test"):
        _packed(bench.data / "logs_syzkaller" / f"{part}.jsonl.xz", rows)
    found = aggregation._measured(bench, "logs_syzkaller")
    assert found["rows"] == 18
    assert found["0.95/float32/same"] == found["0.95/int8/same"] == found["0.95/int4/same"] == 1.0
    assert "| logs_syzkaller, 0.78, 1 bit | " in aggregation.page({"logs_syzkaller": found})


def test_a_pooling_is_measured_before_and_after_an_epoch(bench: Bench) -> None:
    folder = bench.data / "sim_stsb"
    folder.mkdir(parents=True)
    rows = "".join(f"the worker {a},the queue {b},{a % 5}\n" for a in range(6) for b in range(2))
    (folder / "stsb-en-train.csv.xz").write_bytes(lzma.compress(rows.encode()))
    for part in ("dev", "test"):
        (folder / f"stsb-en-{part}.csv").write_text(rows, encoding="utf-8")
    for part in ("train", "dev"):
        rated = [(f"the {'worker stops' if n % 5 > 2 else 'queue'} {n}", n % 5) for n in range(30)]
        _rated(bench.data, f"sst-{part}", rated)
    found = {
        str(trained): pooling._measured(bench, Pooling.MAX, trained=trained)
        for trained in (False, True)
    }
    assert "minutes" in found["True"]
    assert found["False"]["sst-2"] == 100.0
    assert pooling.page(found).count("\n| ") == 2


def test_sentences_in_two_classes_are_those_that_are_not_neutral(tmp_path: Path) -> None:
    _rated(tmp_path, "sst-dev", [(f"the worker {n}", n) for n in range(5)])
    found = task_sets.polarity(tmp_path, "dev")
    assert [label for _, label in found] == [0, 0, 1, 1]
    assert "the worker 2" not in dict(found)


@pytest.mark.parametrize("way", ["adapter", "fine-tuned"])
def test_epochs_of_a_sentiment_are_chosen_on_held_out_rows(bench: Bench, way: str) -> None:
    for part in ("train", "dev"):
        rated = [(f"the {('queue', 'worker')[n % 2]} stops {n}", n % 2) for n in range(30)]
        _rated(bench.data, f"cfimdb-{part}", rated)
    found = sentiment._measured(bench, sentiment.SETS["CFIMDB, 128 tokens"], way)
    assert (found["rows"], found["asked"]) == (27, 30)
    tried = {epochs: found[f"held out/{epochs}"] for epochs in (1, 2, 3)}
    assert tried[int(found["epochs"])] == max(tried.values())
    assert found["accuracy/low"] <= found["accuracy"] <= found["accuracy/high"]
    assert sentiment.page({"made up": found}).count("\n| made up") == 1


@pytest.mark.parametrize("classes", [2, 6])
@pytest.mark.parametrize("strategy", list(Strategy))
def test_pairs_are_compared_in_every_way(bench: Bench, strategy: Strategy, classes: int) -> None:
    rows = [Pair(f"the worker {a}", f"the queue {b}", float(b)) for a in range(6) for b in range(2)]
    about = Comparison("made up", classes, rows, rows)
    found = pair_strategies._measured(bench, strategy, lambda _: about)
    assert found["low"] <= found["value"] <= found["high"]
    assert pair_strategies.page({"made up": found}).count("\n| made up") == 1


def test_the_classifiers_are_asked_alike(bench: Bench) -> None:
    rows: list[dict[str, object]] = [
        {"text": f"the {part} stops {n}", "label": part, "project": "one"}
        for n in range(6)
        for part in ("worker", "queue")
    ]
    for part in ("train", "dev", "test"):
        _packed(bench.data / "logs_defects4j" / f"{part}.jsonl.xz", rows)
    found = classification.run(bench, ["logs_defects4j"])
    kinds = {part.partition(", ")[2] for part in found}
    assert kinds == {"words", "stored vector", "fine-tuned", "decodable"}
    words = found["logs_defects4j, words"]
    assert (words["own/rows"], words["later/rows"]) == (1, 12)
    assert words["own/accuracy"] == words["later/accuracy"] == 100.0
    assert classification.page(found).count("\n| logs_defects4j") == 1 + 2 * 4
    shipped, own = (found[f"logs_defects4j, {kind}"] for kind in ("fine-tuned", "decodable"))
    assert shipped["later/recovered"] == words["later/recovered"]
    assert own["later/recovered"] != shipped["later/recovered"]


@pytest.mark.parametrize("name", [*recurrent.ARMS])
def test_every_decoder_of_the_comparison_is_trained_and_guesses(tmp_path: Path, name: str) -> None:
    lines = [f"the worker stops {number} times" for number in range(40)]
    tokenizer = dataset.fit(lines, vocab=300)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    vectors = np.random.default_rng(3).normal(size=(40, 384)).astype(np.float16)
    for split in Split:
        chunks = [Chunk(line, "logs", "loghub x") for line in lines]
        chunks[1::2] = [dataclasses.replace(one, source="sts-b") for one in chunks[1::2]]
        tokens = dataset.encode(tokenizer, lines)
        dataset.write(tmp_path, split, chunks, tokens=tokens, vectors=vectors)
    start = config.load("compare").to_dict()
    start["model"] |= {"vocab": 300, "width": 16, "heads": 1, "kv_heads": 1, "head_dim": 16}
    start["tokenizer"] |= {"vocab": 300}
    start["train"] |= {"max_steps": 3, "warmup_steps": 1}
    recipe = config.parse(start)
    found = recurrent._trained(recipe, recurrent.ARMS[name], data=tmp_path, folder=tmp_path / "run")
    assert found["steps"] == 3
    for key in ("lines/vector", "short/none", "lines/right"):
        assert found[f"{key}/low"] <= found[key] <= found[f"{key}/high"]
    assert recurrent.page({name: found}).count("\n| ") == 1


def test_real_bytes_stand_beside_the_formula(bench: Bench) -> None:
    opened = saving._opened(manifest.load(ARTIFACT))
    text = "the worker stops and the queue waits " * 40
    short, long = (saving.shortened(text, length, opened.cutter) for length in (8, 64))
    rows = [saving.weighed(one, opened) for one in (short, long)]
    opened.service.close()
    assert text.encode().startswith(short)
    assert len(short) < len(long)
    assert rows[0]["real"] < rows[1]["real"] < 100
    assert all(row["formula"] <= row["published"] or row["chunks"] == 1 for row in rows)


def test_an_encoder_of_another_size_is_published_and_loaded(bench: Bench, tmp_path: Path) -> None:
    small = sizes.Size(layers=1, heads=2, width=16)
    made = sizes.untrained(ARTIFACT / "encoder_tokenizer.json", small)
    sizes.published(bench, made, folder=tmp_path / "small")
    found = sizes.measured(tmp_path / "small")
    assert found["mb"] > found["file_mb"] > 0
    assert found["128/ms"] > 0
    figures = {"parameters": 1e6, "encoder_mb": 1.0, **sizes.least_and_most([found, found])}
    told = sizes.page({small.name: figures})
    assert f"| {found['mb']:.0f} to {found['mb']:.0f} | " in told
    assert told.count("\n| 1 layers of 16, 2 heads | 1.0 M | 1.0 | ") == 1


def test_what_is_written_is_told_by_source_as_the_model_card_does() -> None:
    suite = evaluate.Suite.load(ARTIFACT, written.recipe_of(ARTIFACT))
    texts = [
        Chunk(f"the {part} stops {number}", "made up", part)
        for part in ("worker", "queue")
        for number in range(6)
    ]
    found, card = written.told(suite, texts), suite.measure(texts)
    for source in ("all", "worker", "queue"):
        assert found[f"{source}/texts"] == card[source].texts
        for codec in written.CODECS:
            key = f"{source}/{codec}"
            assert found[key] == pytest.approx(card[source].bits_per_byte(codec))
            assert found[f"{key}/low"] <= found[key] <= found[f"{key}/high"]
    assert written.page({"artifact": found}).count("\n| ") == 3


def test_heads_are_loaded_one_after_the_other(bench: Bench, tmp_path: Path) -> None:
    del bench
    shutil.copytree(HEADS, tmp_path / "heads")
    found = loaded.measured(ARTIFACT, tmp_path / "heads")
    told = loaded.page({"heads": found})
    names = [path.parent.parent.name for path in HEADS.glob("*/*/head.json")]
    assert all(f"| {name} | " in told for name in ("artifact", *names))


def test_a_guess_is_compared_with_its_text_by_one_measure(bench: Bench) -> None:
    texts = [f"the {part} stops again" for part in ("worker", "queue", "engine")]
    found = guesses._measured(bench, "made-up", lambda: texts)
    assert found["texts"] == 3
    assert 0 <= found["4/sum/search"] <= 100
    assert guesses.page({"made up": found}).count("\n| made up, ") == 2 * len(guesses.BEAMS)


def test_all_output_layers_read_the_same_questions() -> None:
    torch.manual_seed(1)
    base = backbone.load(ARTIFACT)
    about = AnswerConfig(layers=SpanLayers.VANILLA, max_tokens=32, stride=8)
    asked = [
        Question("1", "who stops?", "the worker stops", ("the worker",)),
        Question("2", "who starts?", "the engine waits", ()),
    ]
    module = Reader(base, about, layers=SpanLayers)
    found = readers.compared(module, base, about, dev=asked, test=asked)
    assert found["vanilla/gain"] == 0.0
    assert found["vanilla/parameters"] == 2 * base.width + 2
    # One of the two has an answer; in SQuAD 1.1 it is never refused.
    assert found["vanilla/f1_11"] >= found["vanilla/answerable_f1"]
    assert readers.page({"six heads": found}).count("\n| ") == len(SpanLayers)
    name = SpanLayers.GELU_4_SKIP
    alone = reader.answers(
        asked, base.tokenizer, logits=reader.logits_of(module.only(name)), config=about
    )
    shared = reader.answers(
        asked, base.tokenizer, logits=readers.Replayed(module).of(name), config=about
    )
    assert [one.text for one in shared] == [one.text for one in alone]


@pytest.mark.parametrize("weight", [0.0, 0.75])
def test_a_student_of_half_the_layers_learns_with_a_teacher_or_alone(weight: float) -> None:
    torch.manual_seed(1)
    about, layers = AnswerConfig(max_tokens=32, stride=8), SpanLayers.GELU_4_SKIP
    teacher, base = Reader(backbone.load(ARTIFACT), about), backbone.load(ARTIFACT)
    deep = base.bert.config.num_hidden_layers
    module = students.TunedReader(halved(base.bert), about, layers=students.LAYERS)
    assert module.bert.config.num_hidden_layers == -(-deep // 2)
    asked = [Question("1", "who stops?", "the worker stops", ("the worker",))]
    shown = [*windows(asked, base.tokenizer, max_tokens=32, stride=8, all_windows=False)]
    for one in (module, teacher):
        one.train(mode=False)
    found = students.losses(module, teacher.only(layers), weight=weight)(shown)
    assert set(found) == {layer.value for layer in students.LAYERS}
    plain = module.losses(shown)
    if not weight:
        assert all(torch.isclose(found[name], loss) for name, loss in plain.items())
    torch.stack([*found.values()]).mean().backward()  # type: ignore[no-untyped-call]
    assert all(p.grad is not None for p in module.bert.encoder.parameters())
    assert not any(p.grad is not None for p in teacher.parameters())
    told = readers.compared(
        module.eval(), base, about, dev=asked, test=asked, layers=students.LAYERS
    )
    assert students.page({"alone": {**told, "steps": 1, "minutes": 0.1}}).count("\n| alone, ") == 2


def test_a_teacher_that_is_remembered_says_the_same_and_reads_once() -> None:
    about, base = AnswerConfig(max_tokens=32, stride=8), backbone.load(ARTIFACT)
    teacher = Reader(base, about).only(about.layers)
    read = []

    def counted(ids: Tensor, mask: Tensor, types: Tensor) -> tuple[Tensor, Tensor]:
        read.append(len(ids))
        found: tuple[Tensor, Tensor] = teacher(ids, mask, types)
        return found

    asked = [
        Question("1", "who stops?", "the worker stops", ("the worker",)),
        Question("2", "who starts, and when?", "the engine waits for the queue", ()),
    ]
    shown = [*windows(asked, base.tokenizer, max_tokens=32, stride=8, all_windows=False)]
    remembered = students.Remembered(counted)
    with torch.no_grad():
        for batch in (shown, shown[::-1], shown[:1]):
            padded = reader.collate(batch)
            places = padded.ids, padded.mask, padded.types
            for said, plain in zip(remembered(*places), teacher(*places), strict=True):
                assert torch.allclose(said, plain * padded.mask, atol=1e-6)
    assert read == [2]


def test_a_configuration_is_trained_and_measured(tmp_path: Path) -> None:
    shutil.copytree(HEADS, tmp_path / "heads")
    artifact = shutil.copytree(ARTIFACT, tmp_path / "artifact")
    bench = Bench(data=tmp_path / "data", artifact=artifact, work=tmp_path / "work")
    rows = [
        {"id": f"{n}", "question": "who stops?", "answers": [{"text": "the worker"}]}
        | {"is_impossible": bool(n % 2)}
        for n in range(16)
    ]
    told = {"paragraphs": [{"context": "the worker stops", "qas": rows}]}
    folder = bench.data / "qa_squad"
    folder.mkdir(parents=True)
    parts = {"train": ["a"], "dev": ["b"], "eval": ["c"], "train_11_only": []}
    (folder / "split_by_article.json").write_text(json.dumps(parts))
    for name, titles in (("squad2_dev_shared", "abc"), ("squad11_dev_shared", "")):
        held = {"data": [{"title": title, **told} for title in titles]}
        (folder / f"{name}.json.xz").write_bytes(lzma.compress(json.dumps(held).encode()))
    found = configurations.run(bench, configurations.CONFIGURATIONS[:2])
    assert [*found] == ["3e-5, 12, 3", "5e-5, 12, 4"]
    assert [figures["steps"] for figures in found.values()] == [3, 4]
    assert configurations.page(found).count("\n| 5e-5, 12, 4, ") == len(students.LAYERS)


def test_the_teacher_is_the_reader_that_ships(tmp_path: Path) -> None:
    shipped = Bench(data=tmp_path, artifact=MODELS / "default", work=tmp_path)
    teacher, about, layers = students.teacher_of(students.shipped(shipped), shipped.artifact)
    base = backbone.load(shipped.artifact)
    asked = [Question("1", "Who built the bridge?", "The bridge was built by Ada Smith.", ())]
    logits = reader.logits_of(teacher.only(layers))
    (found,) = reader.answers(asked, base.tokenizer, logits=logits, config=about)
    assert found.text == "Ada Smith"


def test_a_byte_is_an_end_flag_and_eight_bits_the_highest_first() -> None:
    """What the combined codec takes the mixture's decisions to be."""
    general = NgramTables.load(ARTIFACT / "ngram.npz")
    text = b"the worker stops"
    tables = MixtureTables.fit([text + str(n).encode() for n in range(30)], general)
    bits, _ = mixture_fit.decisions(text, tables.tables)
    assert np.packbits(bits[:-1].reshape(-1, 9)[:, 1:], axis=1).tobytes() == text


def test_a_study_in_full_is_trained_for_longer_on_all_rows(bench: Bench) -> None:
    texts = [f"the {part} {number}" for part in ("worker", "queue") for number in range(4)]
    rows = "".join(f"{one},{other},{len(one) % 5}\n" for one in texts for other in texts)
    folder = bench.data / "sim_stsb"
    folder.mkdir(parents=True)
    (folder / "stsb-en-train.csv.xz").write_bytes(lzma.compress(rows.encode()))
    (folder / "stsb-en-dev.csv").write_text(rows, encoding="utf-8")
    full = dataclasses.replace(bench, full=True)
    short, long = (pair_strategies.similarity(one) for one in (bench, full))
    assert (short.epochs, long.epochs) == (1, 10)
    assert bench.length("short", full="long") == "short"
    assert full.length("short", full="long") == "long"


def test_every_study_has_a_page() -> None:
    assert all(callable(study.page) for study in catalogue.STUDIES.values())

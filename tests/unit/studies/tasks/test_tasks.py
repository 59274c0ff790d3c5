"""Steps of several tasks, the similarity of vectors apart, students, and what the page keeps."""

import itertools
import math
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor, nn
from transformers import BertConfig, BertModel

from studies.intents import study
from studies.intents.study import Labels
from studies.papers.kept import ends, with_interval
from studies.tasks import distillation, sets, steps, strategies
from studies.tasks.distillation import Taught
from studies.tasks.pages import page
from studies.tasks.pairs import mapped, siamese
from studies.tasks.result import StudyResult, load
from studies.tasks.steps import Spent, Task
from verso_training.heads import fitting
from verso_training.heads.modules import SequenceClassifier
from verso_training.heads.rows import RowSplit
from verso_training.heads.scoring import Pair
from verso_training.heads.signals import Interval
from verso_training.heads.token_classifier import TextTokens

TOKENIZER = Tokenizer.from_file(
    str(Path(__file__).parents[3] / "data" / "artifact-tiny" / "encoder_tokenizer.json")
)
NODES = st.sampled_from("abcdefgh")


def bert(layers: int = 2) -> BertModel:
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=600,
        hidden_size=16,
        num_hidden_layers=layers,
        num_attention_heads=2,
        intermediate_size=32,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    model = BertModel(config, add_pooling_layer=False)
    model.requires_grad_(requires_grad=False)
    model.encoder.requires_grad_(requires_grad=True)
    model.train(mode=False)
    return model


def task(name: str, module: nn.Module, count: int, *, epochs: int = 2) -> Task:
    """A task whose label stands in the text."""
    rng = np.random.default_rng(0)
    examples = [
        TextTokens([2, *map(int, rng.integers(5, 9, 6)), 10 + i % 2, 3], i % 2)
        for i in range(count)
    ]

    def losses(batch: Sequence[TextTokens]) -> dict[str, Tensor]:
        ids = torch.tensor([text.ids for text in batch])
        logits = module(ids, torch.ones_like(ids))[0]
        return {
            "class": nn.functional.cross_entropy(logits, torch.tensor([t.target for t in batch]))
        }

    return Task(name, module, examples, losses, 2, epochs, tokens_per_step=64)


@given(st.lists(st.tuples(NODES, NODES), max_size=12))
def test_pairs_that_share_a_text_are_in_one_component(edges: list[tuple[str, str]]) -> None:
    names = sets.components(edges)
    for (one, a), (other, b) in itertools.combinations(zip(edges, names, strict=True), 2):
        if set(one) & set(other):
            assert a == b
    # Nothing else is joined: nodes of a component are reached by its own edges.
    for name in set(names):
        own = [set(edge) for edge, n in zip(edges, names, strict=True) if n == name]
        reached = own.pop()
        while near := [edge for edge in own if edge & reached]:
            reached |= near[0]
            own.remove(near[0])
        assert not own
        assert name == min(reached)


def test_round_robin_takes_as_many_steps_as_the_tasks_alone() -> None:
    shared = bert()
    tasks = [
        task("large", SequenceClassifier(shared, classes=2), 200),
        task("small", SequenceClassifier(shared, classes=2), 40),
    ]
    alone = sum(len(steps.one_task(t)) for t in tasks)
    order = [t.name for t in steps.round_robin(tasks, seed=0)]
    assert alone <= len(order) < alone + 2
    first, last = Counter(order[: len(order) // 2]), Counter(order[len(order) // 2 :])
    assert last["small"] > first["small"] > 0


def test_every_example_comes_once_an_epoch() -> None:
    one = task("one", SequenceClassifier(bert(), classes=2), 50)
    batches = one.batches(seed=0)
    seen = [id(text) for _ in range(one.count() // 2) for text in next(batches)]
    assert sorted(seen) == sorted(id(text) for text in one.examples)


def test_tasks_on_one_encoder_train_it_and_their_own_layers() -> None:
    shared = bert()
    tasks = [task(n, SequenceClassifier(shared, classes=2), 64, epochs=12) for n in ("a", "b")]
    before = [parameter.clone() for parameter in shared.encoder.parameters()]
    embeddings = shared.embeddings.word_embeddings.weight.clone()

    def wrong() -> float:
        return float(torch.stack([t.losses(t.examples)["class"] for t in tasks]).sum().detach())

    start = wrong()
    rates = steps.Rates(3e-3, 3e-3)
    spent = steps.train(steps.round_robin(tasks, seed=0), rates=rates, seed=0, title="both")
    assert wrong() < 0.5 * start
    assert any(
        not torch.equal(a, b) for a, b in zip(before, shared.encoder.parameters(), strict=True)
    )
    assert torch.equal(embeddings, shared.embeddings.word_embeddings.weight)
    assert spent.steps == len(steps.round_robin(tasks, seed=0))
    assert not tasks[0].module.training


def test_the_same_seed_gives_the_same_weights() -> None:
    def trained() -> Tensor:
        one = task("one", SequenceClassifier(bert(), classes=2), 40)
        steps.train(steps.one_task(one), rates=steps.LORA, seed=3, title="one")
        found: Tensor = one.module.get_parameter("out.weight")
        return found

    assert torch.equal(trained(), trained())


def test_to_watch_a_training_changes_nothing_of_it() -> None:
    """Dropout's draws included; what watches sees the module as it is asked."""

    def trained(watched: dict[int, Callable[[], None]]) -> Tensor:
        one = task("one", module, 40)
        steps.train(steps.one_task(one), rates=steps.LORA, seed=3, title="one", watched=watched)
        found: Tensor = one.module.get_parameter("out.weight")
        return found

    module = SequenceClassifier(bert(), classes=2)
    plain = trained({})
    seen: list[bool] = []
    module = SequenceClassifier(bert(), classes=2)
    last = len(steps.one_task(task("one", module, 40)))
    watch = {step: lambda: seen.append(module.training) for step in (2, last, last + 1)}
    assert torch.equal(trained(watch), plain)
    assert seen == [False, False]


def test_stored_cosines_are_those_of_single_texts_up_to_rounding() -> None:
    module = siamese.Siamese(bert()).eval()
    rows = [
        Pair("the worker stops", "the gateway", 0.2),
        Pair("a", "the queue is loaded again", 0.9),
    ]
    tokens = siamese.tokenised(rows, TOKENIZER)
    found = siamese.stored_cosines(module, tokens, scale=100.0)
    for value, pair in zip(found, tokens, strict=True):
        vectors = []
        for ids in (pair.a, pair.b):
            one = torch.tensor([ids])
            states = module.bert(input_ids=one, attention_mask=torch.ones_like(one))
            vectors.append(states.last_hidden_state[0].mean(0).detach().numpy())
        u, v = (np.rint(100.0 * x / np.linalg.norm(x)) for x in vectors)
        expected = float(u @ v / np.linalg.norm(u) / np.linalg.norm(v))
        assert value == pytest.approx(expected, abs=1e-5)


def test_a_student_has_every_second_layer() -> None:
    whole = bert(6)
    kept = [whole.encoder.layer[i] for i in (0, 2, 4)]
    assert [*distillation.halved(whole).encoder.layer] == kept


@pytest.mark.parametrize("weight", [0.0, 0.75, 1.0])
def test_a_student_learns_from_labels_and_teacher_by_weight(weight: float) -> None:
    module = SequenceClassifier(bert(), classes=3, dropout=0.0).eval()
    teacher = np.array([2.0, -1.0, 0.5], np.float32)
    batch = [Taught([2, 7, 3], 1, teacher)]
    ids = torch.tensor([[2, 7, 3]])
    logits = module(ids, torch.ones_like(ids))[0][0].detach().numpy().astype(np.float64)

    def softened(z: NDArray[np.float64], t: float) -> NDArray[np.float64]:
        p: NDArray[np.float64] = np.exp(z / t - (z / t).max())
        return p / np.float64(p.sum())

    t = distillation.TEMPERATURE
    own = -math.log(softened(logits, 1.0)[1])
    p, q = softened(teacher.astype(np.float64), t), softened(logits, t)
    expected = (1 - weight) * own + weight * t * t * float((p * np.log(p / q)).sum())
    found = distillation.losses(module, weight=weight)(batch)["student"]
    assert float(found.detach()) == pytest.approx(expected, rel=1e-4)


def test_students_that_are_right_where_their_teacher_is_keep_all_of_it() -> None:
    teacher = np.arange(400) % 2 == 0
    same = distillation.kept_share([teacher, teacher], teacher)
    assert (same.value, same.low, same.high) == (100.0, 100.0, 100.0)
    half = distillation.kept_share([teacher, np.zeros(400, bool)], teacher)
    assert (half.value, half.low, half.high) == (50.0, 50.0, 50.0)
    others = distillation.kept_share([~teacher], teacher)
    assert others.low < others.value == 100.0 < others.high


def test_out_of_scope_is_no_answer_and_no_question() -> None:
    labels = Labels(("card", "oos", "rate"), {RowSplit.TEST: np.array([0, 1, 2, 2])}, 1)
    logits = np.array([[1, 9, 0], [0, 9, 0], [0, 9, 1], [1, 9, 0]], np.float32)
    assert study.accuracy(logits, labels, RowSplit.TEST) == pytest.approx(100 * 2 / 3)


def arrays(shift: float) -> dict[str, NDArray[np.generic]]:
    """Predictions that are right, but for a share of the sentences."""
    rng = np.random.default_rng(0)
    gold = rng.integers(0, 5, 400)
    said = np.where(rng.random(400) < shift, (gold + 1) % 5, gold)
    scores = rng.random(400)
    found: dict[str, NDArray[np.generic]] = {
        "sentiment_dev": np.eye(5)[said],
        "sentiment_dev_gold": gold,
    }
    found |= {"duplicates_test": scores, "duplicates_test_gold": (scores >= 0.5).astype(float)}
    for part in ("dev", "test"):
        found |= {f"similarity_{part}": scores, f"similarity_{part}_gold": scores}
    return found


def test_a_difference_has_its_interval() -> None:
    gap = strategies.difference(arrays(0.3), arrays(0.0), rounds=50)
    whole = strategies.figures(arrays(0.3))
    assert whole["mean"] == pytest.approx((whole["sentiment"] + 200) / 3)
    assert gap.value == pytest.approx((whole["sentiment"] - 100) / 3)
    assert gap.low < gap.value < gap.high < 0
    same = strategies.difference(arrays(0.3), arrays(0.3), rounds=5)
    assert (same.low, same.value, same.high) == (0.0, 0.0, 0.0)


def test_each_figure_and_their_mean_have_intervals() -> None:
    found = strategies.intervals(arrays(0.3), rounds=50)
    whole = strategies.figures(arrays(0.3))
    for name in ("sentiment", "mean"):
        assert found[f"{name}/low"] < whole[name] < found[f"{name}/high"]
    assert found["duplicates/low"] == found["duplicates/high"] == 100.0
    assert "similarity_test/low" not in found
    alone = {key: values for key, values in arrays(0.3).items() if key.startswith("sentiment")}
    assert strategies.intervals(alone, rounds=5).keys() == {"sentiment/low", "sentiment/high"}
    assert strategies.intervals({}, rounds=5) == {}


def outcome(name: str, figures: dict[str, float]) -> StudyResult:
    return StudyResult(name, figures, arrays(0.1), {"all": Spent(60.0, 10, 1000)})


def test_an_outcome_is_read_as_it_was_written(tmp_path: Path) -> None:
    made = outcome("lora", {"mean": 71.25})
    made.save(tmp_path)
    read = load(tmp_path, "lora")
    assert read is not None
    assert (read.figures, read.spent, read.date) == (made.figures, made.spent, made.date)
    assert np.array_equal(read.arrays["sentiment_dev"], made.arrays["sentiment_dev"])
    assert load(tmp_path, "full") is None


def test_the_page_gets_its_section_again_and_keeps_the_others() -> None:
    figures = strategies.figures(arrays(0.1))
    parts = {"sentiment": "sentiment_dev", "duplicates": "duplicates_", "similarity": "similarity_"}
    found = {}
    for strategy, (name, start) in itertools.product(("lora", "full"), parts.items()):
        own = {key: values for key, values in arrays(0.1).items() if key.startswith(start)}
        made = StudyResult(name, strategies.figures(own), own, {name: Spent(60.0, 10, 1000)})
        found[f"{strategy}-{name}"] = made
    first = page.section(found)
    figures |= strategies.intervals(arrays(0.1))
    row = " | ".join(
        with_interval(figures, k) for k in ("sentiment", "duplicates", "similarity_dev", "mean")
    )
    assert f"| {row} | 3 |" in first
    assert "+0.0 [+0.0, +0.0]" in first
    once = page.replaced("# Page\n\n## One\n\ntext\n\n## Two\n", first)
    assert page.replaced(once, first) == once
    assert page.kept(once) == first
    between = once.replace("## Two\n", "") + "\n## Two\n"
    again = page.replaced(between, page.section({"lora-sentiment": found["lora-sentiment"]}))
    assert again.startswith("# Page\n\n## One\n\ntext\n")
    assert again.endswith("## Two\n")
    assert "[+0.0, +0.0]" not in again
    assert page.replaced("# Page\n", "") == "# Page\n"


def test_the_objectives_of_a_map_have_their_table_without_other_studies() -> None:
    figures = {f"triplets_{part}_{seed}": 80.0 for part in ("dev", "test") for seed in range(3)}
    for part in ("dev", "test"):
        figures |= ends(f"triplets_{part}_mean", Interval(80.0, 79.0, 81.0))
    told = page.section({mapped.STUDY: StudyResult(mapped.STUDY, figures, {})})
    assert "\n| triplets | 80.0 [79.0, 81.0] | 80.0 [79.0, 81.0] |\n" in told


@pytest.mark.parametrize("length", [8, 25, 60])
def test_short_texts_are_not_mostly_padding(length: int) -> None:
    rng = Random(0)
    lengths = [max(3, round(rng.gauss(length, length / 2))) for _ in range(2000)]
    planned = fitting.plan(lengths, tokens=1024, rng=rng)
    assert sorted(i for batch in planned for i in batch) == [*range(2000)]
    padded = sum(len(batch) * max(lengths[i] for i in batch) for batch in planned)
    assert padded <= 1.2 * sum(lengths)

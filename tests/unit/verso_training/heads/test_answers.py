"""Readers: windows over contexts, the best span, marks, thresholds."""

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from verso_core.errors import QuestionTooLong
from verso_training.heads import backbone, fitting, modules, questions, reader, scoring
from verso_training.heads.modules import SpanHead
from verso_training.heads.questions import Question
from verso_training.heads.reader import Answer
from verso_training.heads.recipe import SpanLayers

TOKENIZER = Tokenizer.from_file(
    str(Path(__file__).parents[3] / "data" / "artifact-tiny" / "encoder_tokenizer.json")
)
CONTEXT = "The worker restarts the gateway. Then the queue answers, and the worker is loaded."


def windows(question: Question, *, max_tokens: int, all_windows: bool) -> list[questions.Window]:
    return list(
        questions.windows(
            [question], TOKENIZER, max_tokens=max_tokens, stride=4, all_windows=all_windows
        )
    )


@settings(max_examples=30, deadline=None)
@given(st.integers(24, 60))
def test_the_windows_cover_every_character_and_name_them_right(max_tokens: int) -> None:
    question = Question("1", "Who restarts?", CONTEXT, ("The worker",))
    made = windows(question, max_tokens=max_tokens, all_windows=True)
    covered = set()
    for window in made:
        assert len(window.ids) <= max_tokens
        assert len(window.ids) == window.context_from + len(window.offsets) + 1
        covered |= {i for a, b in window.offsets for i in range(a, b)}
    assert covered == {i for i, c in enumerate(CONTEXT) if not c.isspace()}


def test_every_occurrence_of_an_answer_is_right() -> None:
    question = Question("1", "Who restarts?", CONTEXT, ("worker",))
    (window,) = windows(question, max_tokens=120, all_windows=False)
    assert len(window.starts) == 2
    for start, end in zip(window.starts, window.ends, strict=True):
        first = window.offsets[start - window.context_from][0]
        last = window.offsets[end - window.context_from][1]
        assert CONTEXT[first:last] == "worker"


def test_a_question_without_an_answer_points_at_cls() -> None:
    (window,) = windows(Question("1", "Why?", CONTEXT, ()), max_tokens=120, all_windows=False)
    assert (window.starts, window.ends) == ([0], [0])


def test_training_takes_a_window_that_holds_the_answer() -> None:
    question = Question("1", "What is loaded?", CONTEXT, ("is loaded",))
    (window,) = windows(question, max_tokens=28, all_windows=False)
    assert window.starts != [0]


@given(st.integers(0, 2**32 - 1), st.integers(2, 14), st.integers(1, 6))
def test_the_best_span_is_the_best_of_all_pairs(seed: int, length: int, longest: int) -> None:
    rng = np.random.default_rng(seed)
    start, end = rng.normal(size=(2, length)).astype(np.float32)
    allowed = rng.random(length) < 0.7
    allowed[0] = True
    (found,) = modules.best_spans(start, end, allowed=allowed, longest=longest)
    every = [
        (start[a] + end[b], a, b)
        for a in range(length)
        for b in range(a, min(length, a + longest))
        if allowed[a] and allowed[b]
    ]
    assert found.score == pytest.approx(max(every)[0])
    assert allowed[found.start]
    assert found.end - found.start < longest


@pytest.mark.parametrize("layers", list(SpanLayers))
def test_every_head_gives_two_logits_for_each_token(layers: SpanLayers) -> None:
    start, end = SpanHead(layers, width=96).eval()(torch.randn(2, 5, 96))
    assert start.shape == end.shape == (2, 5)


def test_the_heads_have_the_widths_of_the_thesis_at_768() -> None:
    widths = {
        layers: [layer.out_features for layer in SpanHead(layers, width=768).hidden]
        for layers in SpanLayers
    }
    assert widths == {
        SpanLayers.VANILLA: [],
        SpanLayers.TANH_2: [384],
        SpanLayers.GELU_2: [256],
        SpanLayers.RELU_2_SKIP: [768],
        SpanLayers.RELU_4: [1024, 768, 200],
        SpanLayers.GELU_4_SKIP: [1024, 768, 384],
    }


def test_the_skip_adds_the_input_before_the_third_layer() -> None:
    head = SpanHead(SpanLayers.GELU_4_SKIP, width=12).eval()
    states = torch.randn(1, 3, 12)
    gelu = torch.nn.functional.gelu
    first, second, third = head.hidden
    expected = head.out(gelu(third(gelu(second(gelu(first(states)))) + states)))
    assert torch.allclose(torch.stack(head(states), -1), expected)


def test_marks_are_those_of_the_squad_script() -> None:
    assert reader.exact("The Cat!", ["cat"]) == 1.0
    assert reader.f1("the big cat", ["a big dog"]) == pytest.approx(0.5)
    assert reader.f1("", []) == 1.0
    assert reader.f1("cat", []) == 0.0
    assert reader.f1("cat", ["dog", "cat"]) == 1.0


def test_the_threshold_is_the_best_of_all() -> None:
    questions = [
        Question("1", "", "", ("a",)),
        Question("2", "", "", ()),
        Question("3", "", "", ("b",)),
    ]
    given_ = [Answer("a", 5.0, 0.0), Answer("x", 3.0, 0.0), Answer("b", 1.0, 0.0)]
    tau = reader.best_threshold(questions, given_)
    best = reader.marks(questions, given_, null_threshold=tau).f1.value
    for other in (-1.0, 0.5, 2.0, 4.0, 6.0):
        assert best >= reader.marks(questions, given_, null_threshold=other).f1.value
    strict = reader.marks(questions, given_, null_threshold=4.0)
    assert strict.refused.value == strict.right.value == 100.0
    assert strict.given.value == pytest.approx(100 / 3)
    assert math.isnan(reader.marks(questions, given_, null_threshold=9.0).right.value)


def test_of_the_answers_above_the_precise_threshold_enough_are_right() -> None:
    """Also of questions that it was not chosen on, nine times of ten."""
    rng = np.random.default_rng(4)

    def drawn(count: int) -> tuple[list[Question], list[Answer]]:
        margins = rng.normal(size=count)
        right = rng.random(count) < 1 / (1 + np.exp(-2 * margins))
        asked = [Question(str(n), "", "", ("cat",) if own else ()) for n, own in enumerate(right)]
        return asked, [Answer("cat", float(margin), 0.0) for margin in margins]

    every = drawn(20_000)
    margins = np.array([one.margin for one in every[1]])
    right = np.array([bool(one.answers) for one in every[0]])
    short = []
    for number in range(60):
        threshold = reader.precise_threshold(*drawn(1500))
        assert threshold is not None
        share = 100 * right[margins > threshold].mean()
        if number == 0:
            marks = reader.marks(*every, null_threshold=threshold)
            assert marks.right.value == pytest.approx(share)
        short.append(share < 100 * reader.PRECISION)
    assert np.mean(short) <= 0.2
    assert reader.precise_threshold(*drawn(2)) is None
    assert reader.precise_threshold([Question("1", "", "", ())] * 99, every[1][:99]) is None


def test_a_threshold_is_stricter_where_answers_of_a_document_are_wrong_together() -> None:
    rng = np.random.default_rng(5)
    documents, each = 8, 200
    margins = rng.normal(size=documents * each)
    worse = np.repeat([0.0, -1.6] * (documents // 2), each)
    right = rng.random(len(margins)) < 1 / (1 + np.exp(-(2 * margins + worse)))

    def asked(groups: list[str]) -> list[Question]:
        return [
            Question(str(n), "", "", ("cat",) if own else (), group)
            for n, (own, group) in enumerate(zip(right, groups, strict=True))
        ]

    answers = [Answer("cat", float(margin), 0.0) for margin in margins]
    apart = [str(n // each) for n in range(len(margins))]
    mixed = [str(n % documents) for n in range(len(margins))]
    strict, loose, alone = (
        reader.precise_threshold(asked(groups), answers)
        for groups in (apart, mixed, ["one"] * len(margins))
    )
    assert strict is not None
    assert loose is not None
    assert alone is not None
    assert strict > loose + 0.1
    assert loose >= alone


def test_what_corrects_an_answer_was_fitted_on_other_documents() -> None:
    rng = np.random.default_rng(6)
    count = 1200
    margins, cosines = rng.normal(size=count), rng.normal(size=count).astype(np.float32)
    right = rng.random(count) < 1 / (1 + np.exp(-(margins + cosines)))
    asked = [
        Question(str(n), "", "", ("cat",) if own else (), str(n % 3)) for n, own in enumerate(right)
    ]
    answers = [Answer("cat", float(margin), 0.0) for margin in margins]
    found = reader.corrected_by_others(asked, answers, cosines)
    assert found is not None
    rest = [n for n in range(count) if n % 3]
    known, others = [asked[n] for n in rest], [answers[n] for n in rest]
    relevance = reader.fit_relevance(known, others, cosines[rest])
    first = reader.corrected(answers[::3], cosines[::3], relevance)
    assert found[::3] == first
    one = [Question(row.key, "", "", row.answers, "one") for row in asked]
    assert reader.corrected_by_others(one, answers, cosines) is None


def test_a_larger_margin_means_a_larger_probability_that_the_answer_is_right() -> None:
    questions = [Question(str(n), "", "", ("cat",) if n % 3 else ()) for n in range(60)]
    answers = [Answer("cat" if n > 20 else "dog", n / 10, 0.0) for n in range(60)]
    fitted = reader.fit_margin(questions, answers)
    right = sum(n > 20 and n % 3 > 0 for n in range(60)) / 60
    chances = [1 / (1 + math.exp(-fitted.scale * a.margin - fitted.offset)) for a in answers]
    assert fitted.scale > 0
    assert sum(chances) / 60 == pytest.approx(right, abs=0.02)
    figures = reader.reliability(questions, answers, fitted)
    assert sum(n for name, n in figures.items() if name.endswith("/rows")) == 60
    assert 0 <= figures["confidence_error"] < 0.2


def test_the_margin_tells_what_can_be_answered() -> None:
    questions = [Question("1", "", "", ("a",)), Question("2", "", "", ())]
    answers = [Answer("a", 2.0, 0.0), Answer("b", 1.0, 0.0)]
    assert reader.answerable(questions, answers).value == 1.0
    assert np.isnan(reader.answerable(questions[:1], answers[:1]).value)


def _judged(told: float) -> tuple[list[Question], list[Answer], np.ndarray]:
    """Return questions, answers and cosines that tell the right ones from the wrong ones."""
    rng = np.random.default_rng(0)
    right = rng.random(400) < 0.5
    questions = [Question(str(n), "", "", ("cat",) if one else ()) for n, one in enumerate(right)]
    margins = right + rng.normal(size=400)
    answers = [Answer("cat", float(margin), 0.0) for margin in margins]
    return questions, answers, (told * right + 0.2 * rng.normal(size=400)).astype(np.float32)


def test_a_cosine_that_tells_right_answers_from_wrong_ones_moves_the_null_score() -> None:
    questions, answers, cosines = _judged(0.3)
    relevance = reader.fit_relevance(questions, answers, cosines)
    assert relevance is not None
    assert relevance.usual == pytest.approx(cosines.mean())
    moved = reader.corrected(answers, cosines, relevance)
    before, after = (reader.answerable(questions, one).value for one in (answers, moved))
    assert after > before
    assert np.mean([one.null for one in moved]) == pytest.approx(0.0, abs=1e-4)
    assert [one.score for one in moved] == [one.score for one in answers]


def test_a_cosine_that_says_the_contrary_or_few_answers_leave_the_null_score() -> None:
    questions, answers, cosines = _judged(-0.3)
    assert reader.fit_relevance(questions, answers, cosines) is None
    questions, answers, cosines = _judged(0.3)
    assert reader.fit_relevance(questions[:150], answers[:150], cosines[:150]) is None
    assert reader.corrected(answers, cosines, None) == answers


def test_the_sentence_of_an_answer_is_compared_with_its_question() -> None:
    question = Question("1", "Who restarts?", CONTEXT, ("the queue",))
    place = CONTEXT.index("the queue"), CONTEXT.index("the queue") + len("the queue")
    asked: list[str] = []

    def encode(texts: Sequence[str]) -> np.ndarray:
        asked.extend(texts)
        return np.array([[1.0, 0.0], [0.6, 0.8]], np.float32)

    cosines = reader.sentence_cosines([question], [Answer("the queue", 0.0, 0.0, place)], encode)
    assert asked == ["Who restarts?", CONTEXT.split(". ")[1]]
    assert cosines == pytest.approx([0.6])


def test_a_question_that_leaves_no_room_is_refused_by_name() -> None:
    question = Question("q7", "why " * 60, CONTEXT, ())
    with pytest.raises(QuestionTooLong, match="'q7': expected <= 13 tokens, got 180"):
        windows(question, max_tokens=32, all_windows=False)


def test_a_long_question_is_still_read_to_the_end() -> None:
    """Fewer tokens are left for the context than neighbouring windows would share."""
    question = Question("q7", "why " * 3, CONTEXT * 3, ())
    made = questions.windows([question], TOKENIZER, max_tokens=32, stride=24, all_windows=True)
    assert max(end for window in made for _, end in window.offsets) == len(CONTEXT * 3)


def test_an_article_of_one_paragraph_gets_made_up_questions_from_the_others() -> None:
    given = [
        Question(f"{n}", f"what is {word}?", f"This is {word}.", (word,), f"article {n}")
        for n, word in enumerate(("lost", "found", "kept"))
    ]
    for row in questions.mined(given, count=3):
        assert row.answers == ()
        own = next(one for one in given if one.question == row.question)
        assert own.answers[0] not in row.context


def test_pairs_are_cut_to_the_window_with_both_texts_in_it() -> None:
    (made,) = scoring.tokenised(
        [scoring.Pair("worker " * 60, "queue " * 60, 1.0)], TOKENIZER, max_tokens=32
    )
    assert len(made.ids) == 32
    assert 10 < made.second < 22


def test_spearman_is_scipys() -> None:
    from scipy.stats import spearmanr

    rng = np.random.default_rng(1)
    one, other = rng.integers(0, 9, 50).astype(float), rng.normal(size=50)
    assert scoring.spearman(one, other) == pytest.approx(spearmanr(one, other).statistic)


class _Toy(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(3))

    def losses(self, batch: object) -> dict[str, torch.Tensor]:
        return {"far": ((self.weight - 1.0) ** 2).sum()}


def test_a_run_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    examples = [questions.Window(i, [1] * 10, 1, [], [0], [0]) for i in range(64)]

    def run(folder: Path, epochs: int) -> _Toy:
        module = _Toy()
        budget = fitting.Budget(60.0, epochs, rate=0.05, tokens_per_step=40, warmup_steps=1)
        fitting.AdapterRun(
            module, budget, main=examples, losses=module.losses, folder=folder
        ).train(on_progress=lambda _: None, should_stop=lambda: False)
        return module

    once = run(tmp_path / "a", 2)
    again = run(tmp_path / "a", 2)  # nothing is left to do
    assert torch.equal(once.weight, again.weight)
    further = run(tmp_path / "a", 6)
    assert (further.weight - 1).abs().sum() < (once.weight - 1).abs().sum()


def test_an_adapter_of_other_shape_is_refused() -> None:
    with pytest.raises(KeyError):
        backbone.restore(_Toy(), {"other": torch.zeros(3)})


def test_questions_of_one_text_are_drawn_together() -> None:
    """Two texts, one of them all right and one all wrong: fifty questions know no more than two."""
    asked, given = [], []
    for text, own in (("one", "cat"), ("other", "dog")):
        for number in range(25):
            asked.append(Question(f"{text} {number}", "", text, ("cat",)))
            given.append(Answer(own, 1.0, 0.0))
    apart = [Question(row.key, "", row.key, row.answers) for row in asked]
    together, alone = (reader.marks(rows, given, null_threshold=0.0).f1 for rows in (asked, apart))
    assert together.value == alone.value == 50.0
    assert (together.low, together.high) == (0.0, 100.0)
    assert 30.0 < alone.low < 50.0 < alone.high < 70.0


def test_what_never_answering_would_reach_is_taken_off() -> None:
    asked = [Question(str(n), "", str(n), ("cat",) if n % 4 else ()) for n in range(40)]
    never = reader.marks(asked, [Answer("cat", -1.0, 0.0)] * 40, null_threshold=0.0)
    assert (never.f1.value, never.over_null.value) == (25.0, 0.0)
    assert math.isnan(never.right.value)
    always = reader.marks(asked, [Answer("cat", 1.0, 0.0)] * 40, null_threshold=0.0)
    assert always.over_null.value == pytest.approx(50.0)
    assert always.right.value == 75.0

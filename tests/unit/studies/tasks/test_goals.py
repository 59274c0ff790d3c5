"""Means of several readers, learning curves, and the section that sets goals beside figures."""

from pathlib import Path

import numpy as np
import pytest

from studies.tasks import curves, frozen, means
from studies.tasks.curves import Curve
from studies.tasks.pages import missed, page
from studies.tasks.pairs import apart
from studies.tasks.result import StudyResult
from studies.tasks.strategies import Alone, Strategy

GOLD = np.array([0.0, 1.0, 1.0, 0.0])
"""Of pairs; two readers that err on different ones are right together."""
ONE, OTHER = np.array([0.1, 0.9, 0.4, 0.1]), np.array([0.6, 0.9, 0.9, 0.1])


def answers(study: str, key: str, said: object, gold: object = GOLD) -> StudyResult:
    return StudyResult(study, {}, {key: np.asarray(said), f"{key}_gold": np.asarray(gold)})


def test_readers_that_err_elsewhere_are_right_together() -> None:
    found = {
        "lora-duplicates": answers("lora-duplicates", "duplicates_test", ONE),
        "frozen-duplicates": StudyResult(
            "frozen-duplicates", {}, {f"duplicates_test_{seed}": OTHER for seed in frozen.SEEDS}
        ),
    }
    made = means.duplicates(found)
    assert made is not None
    assert [*made.readers.values()] == [75.0, 75.0]
    assert made.together.value == 100.0
    assert means.duplicates({"lora-duplicates": found["lora-duplicates"]}) is None


def test_similarity_takes_the_mean_of_both_scores() -> None:
    gold, read, cosine = (np.tile(rows, 9) for rows in ([0, 1, 2, 3], [0, 2, 1, 3], [0, 1, 3, 2]))
    found = {
        "lora-similarity": answers("lora-similarity", "similarity_dev", read, gold),
        apart.COSINE.name: StudyResult(apart.COSINE.name, {}, {"dev": 0.9 * cosine}),
    }
    made = means.similarity(found)
    assert made is not None
    assert [*made.readers.values()] == pytest.approx([80.0, 80.0])
    assert made.together.value == pytest.approx(100.0)


def test_vectors_side_by_side_have_the_mean_of_the_cosines() -> None:
    gold, one, other = (np.tile(rows, 9) for rows in ([0, 1, 2, 3], [0, 2, 1, 3], [0, 1, 3, 2]))
    found = {
        apart.COSINE.name: answers(apart.COSINE.name, "test", one, gold),
        apart.RANKED.name: answers(apart.RANKED.name, "test", 0.9 * other, gold),
    }
    made = means.vectors(found)
    assert made is not None
    assert made.together.value == pytest.approx(100.0)
    assert means.vectors({apart.COSINE.name: found[apart.COSINE.name]}) is None


def test_sentiment_takes_the_mean_of_probabilities() -> None:
    sure, unsure = np.eye(5)[[0, 1]] * 9.0, np.eye(5)[[1, 1]] * 0.1
    found = {"lora-sentiment": answers("lora-sentiment", "sentiment_dev", unsure, [0, 1])}
    found["distillation"] = StudyResult("distillation", {}, {"taught_0": sure, "taught_1": sure})
    made = means.sentiment(found)
    assert made is not None
    assert [*made.readers.values()] == [50.0, 100.0]
    assert made.together.value == 100.0


def test_what_differs_from_the_usual_stands_in_a_studys_name() -> None:
    usual = Alone(Strategy.LORA, "sentiment")
    assert usual.study == "lora-sentiment"
    assert Alone(Strategy.LORA, "sentiment", seed=2, share=0.25).study == (
        "lora-sentiment-seed-2-rows-25"
    )


def test_a_straight_curve_tells_how_many_rows_a_goal_takes() -> None:
    curve = Curve("duplicates", {0.25: 80.0, 0.5: 81.0, 1.0: 82.0})
    assert curve.slope == pytest.approx(1.0)
    assert curve.doublings(85.0) == pytest.approx(3.0)
    assert curve.doublings(81.0) == 0.0
    assert Curve("flat", {0.5: 3.0, 1.0: 3.0}).doublings(4.0) == float("inf")


def sentiment_curve() -> dict[str, StudyResult]:
    """An adapter's figures on a quarter and on all of the rows: two points a doubling."""
    shares = {one.study: one.share for one in curves.ADAPTERS if one.name == "sentiment"}
    shares["lora-sentiment"] = 1.0
    return {
        name: StudyResult(name, {"sentiment": 48.0 + 2.0 * float(np.log2(share))}, {})
        for name, share in shares.items()
    }


def test_goals_of_all_pages_stand_together_with_their_distance(tmp_path: Path) -> None:
    (tmp_path / "search-quality.md").write_text(
        "## CACM\n\n| mode | nDCG@10 |\n|---|---:|\n| **hybrid: both** | **56.4** |\n"
    )
    told = missed.section(sentiment_curve(), tmp_path)
    assert "| Search: CACM, hybrid, nDCG@10 | 57.0 | 56.4 | 0.6 short |" in told
    assert "| SST-5, adapter | 44.0 |  | 48.0 | +2.0 | 2 times |" in told
    once = page.replaced("# Page\n", told) + "\n## Next\n"
    assert page.kept(once, missed.TITLE) == told
    assert page.replaced(once, told) == once
    assert missed.section({}, tmp_path) == ""


@pytest.mark.parametrize(
    ("value", "asked", "lower", "said"),
    [
        (86.0, 86.0, False, "yes"),
        (85.96, 86.0, False, "yes"),
        (85.7, 86.0, False, "0.3 short"),
        (8.7, 8.0, True, "0.7 over"),
        (7.0, 8.0, True, "yes"),
    ],
)
def test_a_distance_is_that_of_the_printed_figures(
    *, value: float, asked: float, lower: bool, said: str
) -> None:
    assert page.distance(value, asked, lower=lower) == said

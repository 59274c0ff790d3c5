"""Wrong passages are near, are not the right one and hold no answer."""

import random

from studies.quality import passages
from studies.quality.passages import Asked

NAMES = [f"{name} of the {kind}" for name in ("harbour", "bridge") for kind in "abcdefgh"]


def asked() -> list[Asked]:
    rows = [
        Asked(f"who built the {name}?", f"The {name} was built by mason {i}.", (f"mason {i}.",))
        for i, name in enumerate(NAMES)
    ]
    return [*rows, Asked("who built the bridge?", "The bridge: Mason 3. built it too.", ())]


def test_wrong_passages_hold_no_answer() -> None:
    groups = passages.among(asked(), wrong=3, rng=random.Random(0))
    answers = {row.question: row.answers for row in asked()}
    assert len(groups) == len(asked())
    for group in groups:
        assert len(set(group.wrong)) == 3
        assert group.right not in group.wrong
        for passage in group.wrong:
            assert not any(answer.lower() in passage.lower() for answer in answers[group.question])


def test_questions_without_enough_wrong_passages_are_left_out() -> None:
    assert passages.among(asked()[:3], wrong=3, rng=random.Random(0)) == []


def test_half_of_the_wrong_ones_are_from_the_nearest() -> None:
    others = [str(place) for place in range(40)]
    for seed in range(20):
        drawn = passages.drawn(others, wrong=5, rng=random.Random(seed))
        assert len(set(drawn)) == 5
        assert all(int(one) < 8 for one in drawn[:3])


def test_of_few_others_all_are_drawn() -> None:
    assert set(passages.drawn(["a", "b"], wrong=5, rng=random.Random(0))) == {"a", "b"}

import numpy as np

from studies.documents import gaps


def _drawn(count: int, *, shift: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return a signal and whether a label is right, which it tells but for a shift."""
    rng = np.random.default_rng(seed)
    values = rng.normal(1.0, 1.0, count)
    right = rng.random(count) < 1.0 / (1.0 + np.exp(-(values + shift)))
    return values.astype(np.float32), right


def test_a_project_that_errs_more_than_others_has_a_gap_and_the_others_a_small_one() -> None:
    parts = [_drawn(400, shift=0.0, seed=seed) for seed in range(4)]
    parts.append(_drawn(400, shift=-2.0, seed=9))
    values, right = (np.concatenate(one) for one in zip(*parts, strict=True))
    folds = np.repeat(["a", "b", "c", "d", "worse"], 400)
    found = gaps.of_source(values, right, folds)
    assert found["worse"].gap.low > found["worse"].chance
    assert all(abs(found[name].gap.value) < 20 for name in "abcd")
    assert found["worse"].rows == 400
    told = gaps.page({"java-test": found})
    assert "| `java-test` | worse | 400 |" in told


def test_folds_that_are_alike_have_gaps_as_chance_gives() -> None:
    parts = [_drawn(300, shift=0.0, seed=seed) for seed in range(8)]
    values, right = (np.concatenate(one) for one in zip(*parts, strict=True))
    found = gaps.of_source(values, right, np.repeat([*"abcdefgh"], 300))
    assert sum(abs(one.gap.value) > one.chance for one in found.values()) <= 2
    assert all(2 < one.chance < 8 for one in found.values())

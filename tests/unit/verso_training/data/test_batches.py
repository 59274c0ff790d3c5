"""Length-bucketed batches."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from verso_training.data import dataset
from verso_training.data.dataset import Dataset
from verso_training.data.sources import Chunk


@given(st.lists(st.integers(1, 127), min_size=1, max_size=300), st.integers(128, 4096))
def test_every_row_comes_once_and_no_batch_is_too_large(lengths: list[int], budget: int) -> None:
    rows = np.array(lengths, np.int64)
    planned = dataset.plan(rows, tokens_per_step=budget, rng=np.random.default_rng(0))
    assert sorted(np.concatenate(planned).tolist()) == list(range(len(lengths)))
    for batch in planned:
        longest = int(rows[batch].max()) + 1
        padded = -(-longest // 8) * 8
        assert len(batch) == 1 or len(batch) * padded <= budget


def test_targets_are_the_tokens_shifted_by_one() -> None:
    prepared = Dataset(
        [Chunk("ab", "f", "s"), Chunk("c", "f", "s")],
        np.array([5, 6, 7], np.uint16),
        np.array([0, 2, 3], np.int64),
        np.zeros((2, 4), np.float16),
    )
    batch = dataset.collate(prepared, np.array([0, 1]), bos=8, eos=9)
    assert batch.tokens[:, :3].tolist() == [[8, 5, 6], [8, 7, 9]]
    assert batch.targets[:, :3].tolist() == [[5, 6, 9], [7, 9, dataset.PADDING]]
    assert batch.tokens.shape == (2, 8)
    assert (batch.targets[:, 3:] == dataset.PADDING).all()

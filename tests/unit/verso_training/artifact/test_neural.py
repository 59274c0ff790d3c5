"""Chunks cut for the decoder's window."""

from functools import cache

from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from verso_training.artifact import neural
from verso_training.data import dataset


@cache
def small() -> Tokenizer:
    return dataset.fit(["one line of a log\n", "another line. And a sentence"], vocab=300)


@given(
    st.text(max_size=400) | st.lists(st.sampled_from(["a ", "b\n", "é", ". "])).map("".join),
    st.integers(16, 64),
)
def test_pieces_fit_the_window_and_join_to_the_text(text: str, window: int) -> None:
    pieces = list(neural.halved(text, small(), window=window))
    assert "".join(pieces) == text
    assert all(len(neural.ids(small(), piece)) < window for piece in pieces)

"""The decoder's tokenizer."""

from functools import cache

from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from verso_training.data import dataset


@cache
def small() -> Tokenizer:
    texts = ["the worker restarts at 12:34:56", "the keeper counts 7 records\n"] * 20
    return dataset.fit(texts, vocab=300)


@given(st.text())
def test_any_text_comes_back(text: str) -> None:
    (ids,) = dataset.encode(small(), [text])
    assert small().decode(ids, skip_special_tokens=False) == text


@given(st.text())
def test_no_text_spells_bos_or_eos(text: str) -> None:
    (ids,) = dataset.encode(small(), [text])
    assert all(0 <= token < 300 - dataset.SPECIAL_IDS for token in ids)


def test_every_digit_is_a_token_of_its_own() -> None:
    (ids,) = dataset.encode(small(), ["2026 17"])
    assert [small().decode([i]) for i in ids] == ["2", "0", "2", "6", " 1", "7"]

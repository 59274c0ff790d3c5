"""The decoder's tokenizer."""

from functools import cache

from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from verso_training import tokenizer


@cache
def small() -> Tokenizer:
    texts = ["the worker restarts at 12:34:56", "the keeper counts 7 records\n"] * 20
    return tokenizer.fit(texts, vocab=300)


@given(st.text())
def test_any_text_comes_back(text: str) -> None:
    (ids,) = tokenizer.encode(small(), [text])
    assert small().decode(ids, skip_special_tokens=False) == text


@given(st.text())
def test_no_text_spells_bos_or_eos(text: str) -> None:
    (ids,) = tokenizer.encode(small(), [text])
    assert all(0 <= token < 300 - tokenizer.SPECIAL_IDS for token in ids)


def test_every_digit_is_a_token_of_its_own() -> None:
    (ids,) = tokenizer.encode(small(), ["2026 17"])
    assert [small().decode([i]) for i in ids] == ["2", "0", "2", "6", " 1", "7"]

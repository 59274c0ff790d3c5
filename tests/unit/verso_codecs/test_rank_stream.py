"""The literal code reaches every token of a vocabulary and no other."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from verso_codecs import coder
from verso_codecs.rank_stream import literals


@given(vocab=st.integers(2, 600), data=st.data())
def test_any_token_comes_back(vocab: int, data: st.DataObject) -> None:
    weights = np.random.default_rng(vocab).random(vocab) + 0.01
    tree = literals.fit_tree(weights)
    token = data.draw(st.integers(0, vocab - 1))
    bits, chances = np.empty(16, np.uint8), np.empty(16, np.uint16)
    length = literals.put_literal(bits, chances, 0, token, tree, vocab)
    payload = coder.encode(bits[:length], chances[:length])
    state = np.zeros(coder.STATE_SIZE, np.int64)
    stored = np.frombuffer(payload or b"\0", np.uint8)
    coder.open_payload(state, stored, 0, len(payload))
    assert literals.take_literal(state, stored, tree, vocab) == token


@given(vocab=st.integers(2, 600), payload=st.binary(min_size=1, max_size=8))
def test_any_payload_gives_a_token_of_the_vocabulary(vocab: int, payload: bytes) -> None:
    tree = literals.fit_tree(np.ones(vocab))
    state = np.zeros(coder.STATE_SIZE, np.int64)
    coder.open_payload(state, np.frombuffer(payload, np.uint8), 0, len(payload))
    stored = np.frombuffer(payload, np.uint8)
    assert literals.take_literal(state, stored, tree, vocab) < vocab


@pytest.mark.parametrize("vocab", [2, 5, 256, 1000])
def test_a_token_costs_what_its_weight_says(vocab: int) -> None:
    weights = np.random.default_rng(0).random(vocab) + 0.1
    tree = literals.fit_tree(weights)
    bits, chances = np.empty(16, np.uint8), np.empty(16, np.uint16)
    for token in range(0, vocab, max(1, vocab // 20)):
        length = literals.put_literal(bits, chances, 0, token, tree, vocab)
        expected = -np.log2(weights[token] / weights.sum())
        assert coder.cost(bits[:length], chances[:length]) == pytest.approx(expected, abs=0.02)

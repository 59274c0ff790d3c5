"""The decoder's vocabulary gives the very bytes back, or says that it cannot."""

from __future__ import annotations

import json
import random

import fields
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

from verso_core.errors import ArtifactInvalid
from verso_worker.engine.vocabulary import Vocabulary


def _definition() -> bytes:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(r"\d"), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(["the engine reads the text back, byte for byte"] * 3, trainer)
    return tokenizer.to_str().encode()


_DEFINITION = _definition()
_SIZE = Tokenizer.from_buffer(_DEFINITION).get_vocab_size() + 2


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    return Vocabulary(_DEFINITION, size=_SIZE, max_tokens=128)


@given(text=st.text(max_size=30))
def test_tokens_give_the_text_back(vocabulary: Vocabulary, text: str) -> None:
    [tokens] = vocabulary.tokenise([text.encode()])
    assert tokens is not None
    assert vocabulary.text(tokens) == text.encode()


@given(rng=st.randoms(use_true_random=False), count=st.integers(1, 3))
def test_lines_of_values_come_back_where_they_fit(
    vocabulary: Vocabulary, rng: random.Random, count: int
) -> None:
    text = fields.line(rng, fields=count).encode()
    [tokens] = vocabulary.tokenise([text])
    if tokens is None:
        assert len(text) >= 127
    else:
        assert vocabulary.text(tokens) == text


@given(data=st.binary(max_size=60))
def test_bytes_that_are_not_utf8_have_no_tokens(vocabulary: Vocabulary, data: bytes) -> None:
    [tokens] = vocabulary.tokenise([data])
    try:
        data.decode()
    except UnicodeDecodeError:
        assert tokens is None
    else:
        assert tokens is not None
        assert vocabulary.text(tokens) == data


@pytest.mark.parametrize(("count", "fits"), [(127, True), (128, False), (100_000, False)])
def test_a_text_fits_a_record_with_room_for_the_end_token(
    vocabulary: Vocabulary, count: int, fits: bool
) -> None:
    [tokens] = vocabulary.tokenise([b"1" * count])
    assert (tokens is not None) == fits


def test_texts_that_cannot_be_coded_leave_the_others_in_place(vocabulary: Vocabulary) -> None:
    found = vocabulary.tokenise([b"\xff", b"the text", b"1" * 500, b""])
    assert [tokens is None for tokens in found] == [True, False, True, False]
    assert found[3] == []


@pytest.mark.parametrize("token", [_SIZE - 2, _SIZE - 1, _SIZE, -1])
def test_tokens_that_are_no_text_give_none(vocabulary: Vocabulary, token: int) -> None:
    assert vocabulary.text([1, token]) is None


def test_a_tokenizer_larger_than_the_decoder_is_refused() -> None:
    with pytest.raises(ArtifactInvalid, match="expected ids below"):
        Vocabulary(_DEFINITION, size=200, max_tokens=128)


def test_a_tokenizer_that_is_not_byte_level_is_refused() -> None:
    definition = json.loads(_DEFINITION)
    definition["model"] = {"type": "WordLevel", "vocab": {"a b": 0}, "unk_token": "a b"}
    with pytest.raises(ArtifactInvalid, match="byte alphabet"):
        Vocabulary(json.dumps(definition).encode(), size=300, max_tokens=128)


def test_bytes_that_are_no_tokenizer_are_refused() -> None:
    with pytest.raises(ArtifactInvalid, match=r"decoder_tokenizer\.json"):
        Vocabulary(b"{}", size=300, max_tokens=128)

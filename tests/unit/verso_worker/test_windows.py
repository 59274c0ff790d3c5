"""The tokens of a long context are those that it has as a whole."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from verso_worker.engine.windows import Windows

_DATA = Path(__file__).parents[2] / "data" / "artifact-tiny" / "encoder_tokenizer.json"
_WORDS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    found = Tokenizer.from_file(str(_DATA))
    found.no_padding()
    found.no_truncation()
    return found


@given(
    words=st.lists(_WORDS, min_size=1, max_size=30),
    between=st.sampled_from([" ", "\n", "  ", "\u00a0", "", " \u0301", "\u4e2d"]),
    times=st.integers(1, 300),
)
@example(words=["word", "c\u0301", "f\u00fcnf"], between=" \u0301", times=3000)
@example(words=["word"], between="", times=9000)  # nowhere to cut
def test_windows_of_any_context_hold_the_tokens_of_the_whole(
    tokenizer: Tokenizer, words: list[str], between: str, times: int
) -> None:
    context = between.join(words * times)
    rows = Windows(_DATA.read_bytes()).windows(b"what", context, max_tokens=64, stride=0)
    found = [
        (token, offset)
        for row in rows
        for token, offset in zip(row.ids[row.first :], row.offsets, strict=False)
    ]
    whole = tokenizer.encode(context, add_special_tokens=False)
    assert found == list(zip(whole.ids, whole.offsets, strict=True))

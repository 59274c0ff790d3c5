"""Templates that are one statement."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from verso_worker.rules.grouping.statements import (
    ALIKE,
    _Common,
    alike,
    joined,
    statements_of,
)
from verso_worker.rules.grouping.templates import PARAMETER

SENT = "<*> close, <*> bytes (<*> KB) sent, <*> bytes received, lifetime <*>"
PLAIN = "<*> close, <*> bytes sent, <*> bytes received, lifetime <*>"
OTHER = "<*> open through proxy <*> HTTPS"


def test_templates_of_nearly_the_same_words_are_one_statement() -> None:
    found = joined([SENT, OTHER, PLAIN])
    assert found[SENT] == found[PLAIN]
    assert found[OTHER] == OTHER
    words = found[SENT].split()
    assert [word for word in words if PARAMETER not in word] == [
        "close,", "bytes", "sent,", "bytes", "received,", "lifetime",
    ]  # fmt: skip


def test_what_no_other_template_resembles_stays() -> None:
    templates = [OTHER, "", "<*> <*>", "<*>"]
    assert joined(templates) == {template: template for template in templates}


def test_the_order_of_words_counts() -> None:
    assert alike(["a b c d e f g h i j", "j i h g f e d c b a"]) == []
    assert alike(["a b c d e f g h i j", "a b c d x e f g h i j"]) == [(0, 1)]


_MESSAGES = st.lists(
    st.lists(st.sampled_from(["task", "job", "NEW", "DONE", "to", "m_1"]), min_size=1, max_size=5)
    .map(" ".join), max_size=12,
)  # fmt: skip


@given(_MESSAGES, st.randoms(use_true_random=False))
def test_the_order_in_which_lines_are_read_is_nothing_to_their_statements(
    messages: list[str], random: Random
) -> None:
    other = random.sample(messages, len(messages))
    found = dict(zip(messages, statements_of(messages), strict=True))
    assert dict(zip(other, statements_of(other), strict=True)) == found


_LINES = st.lists(
    st.lists(st.sampled_from(["a", "b", "c", "d", PARAMETER]), max_size=12).map(" ".join),
    max_size=8,
    unique=True,
)


@given(_LINES)
def test_no_pair_is_missed_that_all_pairs_would_show(templates: list[str]) -> None:
    """The filter by rare words loses nothing: every pair has its longest common subsequence."""
    constants = [[w for w in one.split() if w != PARAMETER] for one in templates]
    expected = {
        (i, j)
        for j in range(len(templates))
        for i in range(j)
        if constants[j]
        and 2 * longest(constants[i], constants[j])
        >= ALIKE * (len(constants[i]) + len(constants[j]))
    }
    assert set(alike(templates)) == expected


_WORDS = st.lists(st.sampled_from("abc"), max_size=9)


@given(_WORDS, _WORDS)
def test_suffixes_have_as_many_words_in_common_as_the_usual_table_says(
    one: list[str], other: list[str]
) -> None:
    common = _Common.of(one, other)
    for i in range(len(one) + 1):
        for j in range(len(other) + 1):
            assert common.length(i, j) == longest(one[i:], other[j:])


def test_versions_of_a_long_text_are_one_statement_soon() -> None:
    """Each pair compared word by word would take minutes."""
    random = Random(7)
    text = [random.choice("abcdefgh") * (1 + n % 26) for n in range(500)]
    versions = [" ".join(text[:n] + text[n + 1 + n % 5 :]) for n in range(200)]
    assert len(set(joined(versions).values())) == 1


def longest(one: list[str], other: list[str]) -> int:
    """Return the length of the longest common subsequence, row by row."""
    row = [0] * (len(other) + 1)
    for word in one:
        before = row
        row = [0]
        for place, there in enumerate(other):
            row.append(before[place] + 1 if word == there else max(row[-1], before[place + 1]))
    return row[-1]

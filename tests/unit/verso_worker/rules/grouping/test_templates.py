"""Templates of log lines."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from verso_worker.rules.grouping.templates import Limits, Miner, frames_of


def mine(*lines: str) -> list[str]:
    miner = Miner()
    shapes = [miner.add(line) for line in lines]
    templates = miner.templates()
    return [templates[shape] for shape in shapes]


def test_what_is_a_parameter_everywhere_is_masked() -> None:
    assert mine(
        "connect 10.0.0.1:80 took 1.5 ms",
        "open /var/log/syslog.1 failed",
        "id 6f1ed002-ab55-9585-9014-ebf0951522d9 at 0x7f3A",
        "got deadbeef01 from db-7.example.org:5432 on Fri Jul 07",
    ) == [
        "connect <*> took <*> ms",
        "open <*> failed",
        "id <*> at <*>",
        "got <*> from <*> on <*>",
    ]


def test_words_of_few_kinds_are_told_apart_and_of_many_are_a_parameter() -> None:
    assert mine("the VM 12 was Started now", "the VM 13 was Stopped now") == [
        "the VM <*> was Started now",
        "the VM <*> was Stopped now",
    ]
    users = ["anna", "bob", "cyrus", "dora", "emil"]
    assert set(mine(*(f"session opened for user {user} now" for user in users))) == {
        "session opened for user <*> now"
    }


def test_lines_of_many_parameters_are_not_alike_for_that() -> None:
    words = ["one two", "red green", "up down", "left right", "hot cold"]
    assert len(set(mine(*(f"at 1 2 3 4 {word}" for word in words)))) == len(words)


def test_a_list_is_one_parameter_however_long_it_is() -> None:
    assert mine("took 1 2 3 steps", "took 1 2 steps") == ["took <*> steps"] * 2


def test_lines_that_begin_otherwise_are_never_joined() -> None:
    assert len(set(mine("alpha is up and well", "beta is up and well"))) == 2


def test_an_empty_line_is_a_template_of_its_own() -> None:
    assert mine("", " ", "x") == ["", "", "x"]


def test_a_word_too_long_to_be_one_is_a_parameter_and_costs_no_square_of_its_length() -> None:
    started = time.process_time()
    for word in ("a" * 200_000, "a." * 100_000, "/-" * 100_000, "aa:" * 70_000, "[0" * 100_000):
        assert mine(f"got {word} now") == ["got <*> now"]
    assert time.process_time() - started < 2.0


def test_thousands_of_different_texts_cost_no_square_of_their_number() -> None:
    """Each is compared with all before it, at once."""
    drawn = random.Random(7)
    words = [f"{a}{b}{c}" for a in "kmn" for b in "aeiou" for c in "dlrst"]
    lines = ["text: " + " ".join(drawn.choices(words, k=20)) for _ in range(6000)]
    started = time.process_time()
    assert len(set(mine(*lines))) == len(lines)
    assert time.process_time() - started < 6.0


def gelf(text: str, *, host: str = "web", level: str = "info") -> str:
    """Return a line of JSON with a text in it."""
    return f'{{"host":"{host}","short_message":"{text}","timestamp":1712,"level":"{level}"}}'


def sentences(count: int) -> list[str]:
    """Return sentences of which no two are alike."""
    drawn = random.Random(3)
    words = [f"{a}{b}{c}" for a in "kmn" for b in "aeiou" for c in "dlrst"]
    return [" ".join(drawn.choices(words, k=drawn.randint(4, 12))) for _ in range(count)]


def test_texts_in_one_frame_are_one_statement_once_they_are_many() -> None:
    miner = Miner(similar=0.8, words=16, limits=Limits(20, 30))
    texts = sentences(100)
    shapes = [miner.add(gelf(text)) for text in texts]
    found = [miner.templates()[shape] for shape in shapes]
    frame = '{"host":"web","short_message":"<*>","timestamp":<*>,"level":"info"}'
    assert found[:20] == [gelf(text).replace("1712", "<*>") for text in texts[:20]]
    assert set(found[20:]) == {frame}
    assert [miner.is_rest(shape) for shape in shapes] == [False] * 20 + [True] * 80
    # Of another level there are others; of both together there may be no more than 30.
    others = [miner.add(gelf(text, level="error")) for text in texts[20:]]
    assert [miner.is_rest(shape) for shape in others] == [False] * 10 + [True] * 70
    # What a known statement writes joins it.
    assert not miner.is_rest(miner.add(gelf(texts[3])))
    assert not miner.is_rest(miner.add("a line without a frame"))


def test_a_frame_has_keys_and_strings_of_one_word() -> None:
    assert frames_of('{"a b": "c d", "e":"f"} "g') == (
        '{"a b": "<*>", "e":"f"} "g',
        '{"a b": "<*>", "e":"<*>"} "<*>"',
    )
    assert frames_of(r'msg="he said \"no way\"" user="anna"') == (
        'msg="<*>" user="anna"',
        'msg="<*>" user="<*>"',
    )
    assert frames_of('open "cut off \\')[0] == 'open "<*>"'


def test_a_frame_is_found_in_time_that_grows_with_the_line() -> None:
    started = time.process_time()
    for line in (
        '"' * 200_001,
        '\\"' * 100_000,
        '"' + '\\"' * 100_000,
        '"a" ' * 50_000 + " " * 100_000,
    ):
        frames_of(line)
    assert time.process_time() - started < 2.0


_FRAMED = st.builds(
    gelf,
    st.lists(st.sampled_from(["red", "green", "1", '\\"', ":", "a=b"]), max_size=4).map(" ".join),
    host=st.sampled_from(["a", "b", "c d"]),
    level=st.sampled_from(["info", "error"]),
)


@given(st.lists(st.one_of(_FRAMED, st.text(alphabet='"\\ ab:{}', max_size=12)), max_size=60))
def test_no_frame_has_more_groups_than_it_may(lines: list[str]) -> None:
    """Whenever templates are asked for, and whatever the lines are."""
    miner, asked = (Miner(limits=Limits(3, 5)) for _ in range(2))
    shapes = [miner.add(line) for line in lines]
    for line in lines:
        asked.add(line)
        asked.templates()
    assert [asked.add(line) for line in lines] == shapes
    assert asked.templates() == miner.templates()
    by_frame: dict[str, set[int]] = {}
    for line, shape in zip(lines, shapes, strict=True):
        frame = frames_of(line)[1]
        if not miner.is_rest(shape) and frame != line and not any(map(str.isdigit, line)):
            by_frame.setdefault(frame, set()).add(miner.group(shape))
    assert all(len(groups) <= 5 for groups in by_frame.values())


def one_by_one(lines: Sequence[Sequence[str]], *, similar: float) -> list[int]:
    """Return the group of each line, by comparing it with one group after the other."""
    groups: list[list[str]] = []
    found = []
    for tokens in lines:
        best, agreed = -1, -1.0
        for number, group in enumerate(groups):
            if len(group) != len(tokens) or group[:1] != list(tokens[:1]):
                continue
            pairs = [(a, b) for a, b in zip(group, tokens, strict=True) if (a, b) != ("<*>",) * 2]
            share = sum(a == b for a, b in pairs) / len(pairs) if pairs else 1.0
            if share > agreed:
                best, agreed = number, share
        if agreed < similar:
            best = len(groups)
            groups.append(list(tokens))
        rows = zip(groups[best], tokens, strict=True)
        groups[best] = [a if a == b else "<*>" for a, b in rows]
        found.append(best)
    return found


@given(
    st.lists(
        st.lists(st.sampled_from(["a", "b", "c", "<*>"]), max_size=6).map(lambda row: ["x", *row]),
        unique_by=tuple,
        max_size=40,
    ),
    st.sampled_from([0.5, 0.6, 0.8]),
)
def test_a_line_joins_the_first_of_the_groups_that_agree_best(
    lines: list[list[str]], similar: float
) -> None:
    miner = Miner(similar=similar)
    shapes = [miner.add(" ".join(line)) for line in lines]
    assert [miner.group(shape) for shape in shapes] == one_by_one(lines, similar=similar)


@given(st.lists(st.text(max_size=60), max_size=30))
def test_any_lines_have_templates_and_equal_lines_the_same(lines: list[str]) -> None:
    found = mine(*lines, *lines)
    assert found[: len(lines)] == found[len(lines) :]
    assert mine(*lines, *lines) == found

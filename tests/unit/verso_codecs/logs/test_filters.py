"""Filters of values have no false negatives and few false positives."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verso_codecs.logs import filters
from verso_codecs.logs.parsing import Parsed, parse, split
from verso_codecs.logs.shapes import Shapes
from verso_core.errors import RecordCorrupt

PIECES = [
    b"10.251.7.244:50010", b"blk_-48751", b"4b4dd551-26d8-48e2-bd52-91793d2157bc", b"user=r00t",
    b"FF:F2:9F:16:EB:64:00:0D", b"0x7fed806eb5d", b"/var/log/x-12.log.", b"jk2", b"[", b"-7",
    b"\xc3\xa4123", b"proxy4.cse.cuhk.edu.hk", b"a", b"--", b"..", b"=", b"22",
]  # fmt: skip


def parsed_of(text: bytes) -> Parsed:
    """Parse a text's lines."""
    return parse(split(text), Shapes())


@given(st.lists(st.sampled_from(PIECES), max_size=8).map(b" ".join))
def test_what_a_line_holds_is_found_by_its_own_tokens(line: bytes) -> None:
    held = filters.build(parsed_of(line), first=0, count=1 if line else 0, block_lines=128)
    filters.check(held)
    for token in filters.tokens(line):
        assert filters.contains(held, token), token


@given(
    st.lists(st.lists(st.sampled_from(PIECES), max_size=4).map(b"".join), max_size=5),
    st.lists(st.sampled_from(PIECES), min_size=1, max_size=2).map(b"".join),
)
def test_a_line_has_a_value_as_a_whole(rows: list[bytes], asked: bytes) -> None:
    for token in filters.tokens(asked):
        expected = [token in filters.tokens(row) for row in rows]
        found = filters.lines_with(split(b"".join(row + b"\n" for row in rows)), token)
        assert found.tolist() == expected


@pytest.mark.parametrize(
    ("line", "tokens"),
    [
        (b"peer 10.2001:db8:0:0:0:0:2:1", [b"10.2001", b"db8"]),
        (b"\xff10\xffw.a.b1.c_d123.e.f x", [b"\xff10\xffw.a.b1.c", b"d123.e.f"]),
    ],
)
def test_a_value_that_begins_inside_the_token_of_another_is_held(
    line: bytes, tokens: list[bytes]
) -> None:
    assert filters.tokens(line) == tokens
    held = filters.build(parsed_of(line), first=0, count=1, block_lines=128)
    assert all(filters.contains(held, token) for token in tokens)


def test_a_value_is_not_found_in_a_longer_one() -> None:
    text = b"from 10.0.0.1\nfrom 10.0.0.198\nx10.0.0.1 and 10.0.0.1.\n210.0.0.1 -10.0.0.1-a\n"
    assert filters.lines_with(split(text), b"10.0.0.1").tolist() == [True, False, True, False]


def test_tokens_of_a_question() -> None:
    text = b"blk_-48751 to 10.251.7.244:50010, job-12. of root, 22 (v1) \xc3\xa41"
    assert filters.tokens(text) == [b"48751", b"10.251.7.244", b"50010", b"job-12", b"\xc3\xa41"]


def test_a_timestamp_in_a_question_is_no_value() -> None:
    line = b"2026-01-01T00:49:08Z sshd[2948]: closed 10.0.0.198\n17/06/09 20:10:42 job-7 of 2026-01"
    assert filters.tokens(line) == [b"2948", b"10.0.0.198", b"job-7", b"2026-01"]
    assert filters.tokens(b"") == []


def test_few_other_tokens_are_found() -> None:
    lines = b"".join(b"user u%d at 10.0.%d.7\n" % (number, number % 40) for number in range(128))
    held = filters.build(parsed_of(lines), first=0, count=128, block_lines=128)
    assert len(held) <= 5 + (168 * filters.BITS + 7) // 8
    wrong = sum(filters.contains(held, b"w%d" % number) for number in range(1000, 3000))
    assert wrong < 60
    empty = filters.build(parsed_of(b"no values\n"), first=0, count=1, block_lines=128)
    assert filters.find([empty, held, empty], b"10.0.39.7") == [1]


@given(st.integers(0, 3000), st.integers(0, 10**6))
def test_a_set_of_any_size_holds_what_was_put_in(count: int, first: int) -> None:
    names = [b"v1.%d" % number for number in range(first, first + count)]
    held = filters.build(parsed_of(b"\n".join(names)), first=0, count=count, block_lines=128)
    filters.check(held)
    assert len(held) <= 5 + (count * filters.BITS + 7) // 8
    joined = filters.join([held])
    assert all(filters.find_joined(joined, [name]) for name in names)


def test_of_a_large_set_one_of_64_others_is_found() -> None:
    lines = b"\n".join(b"v1.%d" % number for number in range(20_000))
    joined = filters.join([filters.build(parsed_of(lines), first=0, count=20_000, block_lines=128)])
    wrong = sum(filters.find_joined(joined, [b"w%d" % n]).item() > 0 for n in range(10_000))
    assert wrong < 1.6 * 10_000 / 64


RIBBON = bytes.fromhex(  # of 64 tokens, version 2
    "0201096389d40a4c5f6978be7dc306855a8820329a551fa659efd8dad2dffe01a9f510911006b4dd"
    "910ea2c7c33f5eac1b8abc3a90cf1cb6f5051b625681bea0dba1e3d61e669cbd3f7db631f8"
)


@given(st.lists(st.lists(st.integers(0, 30), max_size=6), min_size=1, max_size=12))
def test_the_block_of_a_value_is_told(rows: list[list[int]]) -> None:
    """Blocks of two lines; sixty values more, so that the set is a ribbon filter."""
    many = [b"w1.%d" % number for number in range(60)]
    lines = [b" ".join([b"x", *(b"v1.%d" % n for n in row)]) for row in rows] + [b" ".join(many)]
    parsed = parsed_of(b"\n".join(lines) + b"\n")
    held = filters.build(parsed, first=0, count=len(lines), block_lines=2)
    filters.check(held)
    joined = filters.join([held])
    for number in {n for row in rows for n in row}:
        blocks = {at // 2 for at, row in enumerate(rows) if number in row}
        told = filters.find_joined(joined, [b"v1.%d" % number]).item()
        assert told == (filters.ANY_BLOCK if len(blocks) > 1 else 1 + min(blocks))
        for row in rows:
            both = filters.find_joined(joined, [b"v1.%d" % n for n in (number, *row)]).item()
            assert both > 0 or number not in row


def test_blocks_beyond_those_that_can_be_named_are_any() -> None:
    lines = b"\n".join(b"v1.%d" % number for number in range(64))
    joined = filters.join([filters.build(parsed_of(lines), first=0, count=64, block_lines=1)])
    told = [filters.find_joined(joined, [b"v1.%d" % number]).item() for number in range(64)]
    assert told == [*range(1, 32), *[filters.ANY_BLOCK] * 33]


def test_without_values_every_block_is_meant() -> None:
    joined = filters.join([filters.build(parsed_of(b"u1.2\n"), first=0, count=1, block_lines=1)])
    assert filters.find_joined(joined, []).tolist() == [filters.ANY_BLOCK]


def test_filters_written_before_are_read() -> None:
    filters.check(RIBBON)
    joined = filters.join([RIBBON])
    told = {filters.find_joined(joined, [b"v1.%d" % number]).item() for number in range(64)}
    assert told == {filters.ANY_BLOCK}
    assert not filters.contains(RIBBON, b"u124")
    bloom = bytes.fromhex("0177dd1325a8b2b9e7d65bcbe1")  # of 8 tokens, version 1
    filters.check(bloom)
    assert all(filters.contains(bloom, b"10.0.%d.7" % number) for number in range(8))
    assert not filters.contains(bloom, b"u124")


def test_times_are_no_tokens() -> None:
    held = filters.build(parsed_of(b"2015-10-18 18:01:48,978 x"), first=0, count=1, block_lines=128)
    assert not filters.contains(held, b"2015-10-18")


@pytest.mark.parametrize("names", [2, 200])
def test_every_flipped_bit_is_found(names: int) -> None:
    lines = b"\n".join(b"user v1.%d" % number for number in range(names))
    held = filters.build(parsed_of(lines), first=0, count=names, block_lines=128)
    for at in range(8 * len(held)):
        damaged = bytearray(held)
        damaged[at // 8] ^= 1 << at % 8
        with pytest.raises(RecordCorrupt):
            filters.check(bytes(damaged))
    with pytest.raises(RecordCorrupt):
        filters.contains(b"", b"u123")

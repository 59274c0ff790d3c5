"""Lines, their shapes and their values."""

from __future__ import annotations

import re
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from verso_codecs.logs import blocks
from verso_codecs.logs.headers import message
from verso_codecs.logs.parsing import (
    HEX,
    LONG,
    NUMBER,
    TIME,
    UUID,
    WORD,
    Lines,
    Parsed,
    parse,
    split,
)
from verso_codecs.logs.shapes import ESCAPE, SLOT, STAMP, Shapes, masked
from verso_codecs.logs.stamps import STAMP_BYTES

UUID_TEXT = b"4b4dd551-26d8-48e2-bd52-91793d2157bc"
PIECES = [
    b"Jun 14 15:16:02", b"2005-06-03-15.42.50.363779", b"2015-10-18 18:01:48,978", b"[",
    b"03-17 16:13:38.811", b"17/06/09 20:10:40", b"Sun Dec 04 04:51:08 2005", b"] ", b"=", b": ",
    b"10/Oct/2000:13:55:36", b"081109 204005", b"Jun  4 5:16:02", b"Feb 30 15:16:02", b"0x1fe",
    b" ", UUID_TEXT, UUID_TEXT.upper(), b"FF:F2:9F:16:EB:64", b"/",
    b"fe80:0:0:0:c6b3:1ff:fecd:467f", b"10.251.73.220:50010", b"blk_-7483426835701512490",
    b"9223372036854775807", b"-", b".", b"\r", b"9223372036854775808", b"123456789012345678901",
    b"-007", b"-1", b"0", b"00", b"x=1", b"_", b"user=root", b"proxy.cse.cuhk.edu.hk:5070",
    b"82-68-222-194.dsl.in-addr.zen.co.uk", b"jk2", b"a", b"10ms", b"deadbe12", b"\x00", b"\x01",
    b"\x02", b"\x03", b"\xff\xfe", b"\n", b"1", b"1a" * 200,
]  # fmt: skip
LINES = st.lists(st.one_of(st.sampled_from(PIECES), st.binary(max_size=4)), max_size=12).map(
    b"".join
)


def lines_of(texts: list[bytes]) -> Lines:
    """Return lines of any bytes, line feeds among them."""
    ends = np.cumsum([0, *(len(text) for text in texts)], dtype=np.int64)
    return Lines(np.frombuffer(bytearray(b"".join(texts)), np.uint8), ends[:-1], ends[1:])


def rendered(parsed: Parsed, shapes: Shapes, number: int) -> bytes:
    """Put the values of a line into its shape, from the bytes where they were found."""
    row, out = shapes.row(int(parsed.shapes[number])), bytearray()
    slot, at = int(parsed.slot_bounds[number]), 0
    line = parsed.lines.line(number)
    position = int(parsed.lines.begins[number])
    while at < len(row):
        if row[at] in (SLOT, STAMP):
            begin = int(parsed.slots.begins[slot]) - position
            kind, size = parsed.slots.kinds[slot], int(parsed.slots.widths[slot])
            if kind == TIME:
                size = len(line) - begin - len(tail(parsed, row, at, slot, number))
            elif kind == NUMBER and parsed.slots.numbers[slot] < 0:
                begin, size = begin - 1, size + 1
            out += line[begin : begin + size]
            at += STAMP_BYTES if row[at] == STAMP else 0
            slot += 1
        else:
            at += row[at] == ESCAPE
            out.append(row[at])
        at += 1
    return bytes(out)


def tail(parsed: Parsed, row: bytes, at: int, slot: int, number: int) -> bytes:
    """Return what follows a timestamp: found by what follows it in the shape."""
    line = parsed.lines.line(number)
    begin = int(parsed.slots.begins[slot] - parsed.lines.begins[number])
    digits = int(parsed.slots.widths[slot])
    plain = {ord("Y"): 19, ord("y"): 17, ord("M"): 14, ord("S"): 15, ord("D"): 24}
    size = plain.get(row[at + 1], 20 if row[at + 1] == ord("A") else 13)
    return line[begin + size + (digits + 1 if digits else 0) :]


@given(st.lists(LINES, max_size=8))
def test_shapes_and_values_give_every_line_back(texts: list[bytes]) -> None:
    shapes = Shapes()
    parsed = parse(lines_of(texts), shapes)
    shapes.extend(parsed.new_rows)
    parsed.number(range(len(shapes)))
    assert [rendered(parsed, shapes, number) for number in range(parsed.count)] == texts


@given(st.lists(LINES, min_size=1, max_size=8))
def test_a_shape_is_new_once(texts: list[bytes]) -> None:
    shapes = Shapes()
    first = parse(lines_of(texts), shapes)
    assert len(set(first.new_rows)) == len(first.new_rows)
    shapes.extend(first.new_rows)
    again = parse(lines_of(texts), shapes)
    assert again.new_rows == []
    assert again.shapes.tolist() == [-1 - int(number) for number in first.shapes]


@given(st.binary(max_size=60))
def test_splitting_keeps_every_byte(payload: bytes) -> None:
    lines = split(payload)
    found = [lines.line(number) for number in range(lines.begins.size)]
    assert found == payload.split(b"\n")[: len(found)]
    assert b"\n".join(found) + b"\n" * payload.endswith(b"\n") == payload


@pytest.mark.parametrize(
    ("line", "kinds"),
    [
        (b"Jun 14 15:16:02 combo sshd[19937]: x", [TIME, NUMBER]),
        (b"blk_-7483426835701512490 terminating", [NUMBER]),
        (b"id " + UUID_TEXT, [UUID]),
        (b"chip FF:F2:9F:16:EB:64:00:0D up", [WORD]),
        (b"user=root tty=ssh", [WORD, WORD]),
        (b"chrome.exe - www.baidu.com:80 open", [WORD, NUMBER]),
        (b"stack @0x7fed806eb5d", [HEX]),
        (b"jk2 ssh2 10ms", [NUMBER, NUMBER, NUMBER]),
        (b"a" + b"1b" * 200, [LONG]),
        (b"no values at all", []),
        (b"", []),
    ],
)
def test_values_have_kinds(line: bytes, kinds: list[int]) -> None:
    assert parse(lines_of([line]), Shapes()).slots.kinds.tolist() == kinds


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (
            b"081109 203518 143 INFO dfs.DataNode$Xceiver: Receiving block blk_-16 src: /10.2.9.1",
            b"Receiving block blk_<*> src: /<*>",
        ),
        (
            b"Jun 14 15:16:02 combo sshd(pam_unix)[19937]: authentication failure; uid=0 tty=ssh",
            b"authentication failure; uid=<*> tty=<*>",
        ),
        (b"[Sun Dec 04 04:51:08 2005] [notice] jk2_init() ok", b"jk<*>_init() ok"),
        (
            b"03-17 16:13:38.820  1702  8671 D PowerManagerService: ready=true,flg=0x0",
            b"ready=<*>,flg=0x<*>",
        ),
        (b"2015-10-18 18:01:48,963 INFO [main] org.app.Master: Kind: 3", b"Kind: <*>"),
        (b"plain words", b"plain words"),
        (b"12", b"<*>"),
    ],
)
def test_a_message_is_the_line_without_its_header(line: bytes, text: bytes) -> None:
    shapes = Shapes(parse(lines_of([line]), Shapes()).new_rows)
    assert message(masked(shapes.row(0))) == text


def test_masked_text_shows_values_and_times() -> None:
    shapes = Shapes(parse(lines_of([b"Jun 14 15:16:02 from 10.1.2.3:80 \x01"]), Shapes()).new_rows)
    assert masked(shapes.row(0)) == b"<time> from <*> \x01"


def test_two_thousand_values_and_a_mebibyte_are_lines() -> None:
    texts = [b" ".join(b"%d" % number for number in range(2000)), b"x1y" * (1 << 20)]
    parsed = parse(lines_of(texts), Shapes())
    assert np.diff(parsed.slot_bounds).tolist() == [2000, 1]
    assert (parsed.shapes < 0).all()


@pytest.mark.parametrize("end", [b"abcde", b"zz", b"a1z", b""])
def test_groups_of_digits_that_are_no_address_cost_no_square_of_their_number(end: bytes) -> None:
    line = b"a:" * 200_000 + end
    started = time.process_time()
    parsed = parse(lines_of([line]), Shapes())
    assert time.process_time() - started < 2.0
    shapes = Shapes(parsed.new_rows)
    parsed.number([0])
    assert rendered(parsed, shapes, 0) == line


def test_lines_outside_of_the_payload_are_refused() -> None:
    data = np.zeros(4, np.uint8)
    with pytest.raises(ValueError, match="within the payload"):
        parse(Lines(data, np.array([2]), np.array([5])), Shapes())


def test_numbers_come_from_outside() -> None:
    parsed = parse(split(b"a\nb 1\na\n"), Shapes())
    assert parsed.shapes.tolist() == [-1, -2, -1]
    parsed.number([7, 3])
    assert parsed.shapes.tolist() == [7, 3, 7]
    with pytest.raises(ValueError, match="expected 2 numbers"):
        parsed.number([1])


def test_free_text_has_new_shapes() -> None:
    words = [
        b"the word %s is new" % re.sub(b"[0-9]", b"x", b"%d" % n).ljust(n, b"y") for n in range(30)
    ]
    assert (parse(lines_of(words), Shapes()).shapes < 0).all()
    known = Shapes(parse(split(b"n 1"), Shapes()).new_rows)
    assert (parse(lines_of([b"n %d" % n for n in range(30)]), known).shapes >= 0).all()
    assert blocks.MAX_LINES == 128

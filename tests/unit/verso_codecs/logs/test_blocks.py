"""Blocks give their lines back, or say that they are damaged."""

from __future__ import annotations

import random
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from verso_codecs.logs import blocks
from verso_codecs.logs.parsing import Lines, Parsed, parse, split
from verso_codecs.logs.shapes import Shapes
from verso_codecs.logs.tables import LEARNT_SHARE, Tables
from verso_codecs.logs.times import MISSING
from verso_core.errors import ArtifactInvalid, RecordCorrupt

WORDS = st.sampled_from(
    [
        *(b"Jun 14 15:16:%02d" % second for second in range(4)),
        *(b"2005-06-03-15.42.50.%06d" % fraction for fraction in (0, 363779, 999999)),
        *(b"%d" % number for number in (0, 1, -1, 7, 50010, 50011, 2**63 - 1, -(2**62), 10**18)),
        *(b"%04d" % number for number in (0, 7, 99, 100, 9999)),
        b"4b4dd551-26d8-48e2-bd52-91793d2157bc",
        b"4b4dd551-26d8-18e2-0d52-91793d2157bc",
        b"0x7fed806eb5d",
        b"user=root",
        b"FF:F2:9F:16:EB:64:00:0D",
        b"1a" * 200,
        b"999999999999999999999",
        b"\n",
        b"\x00\x01\x02\x03\xff",
        b"",
    ]
)
TEXTS = st.lists(
    st.lists(st.one_of(WORDS, st.binary(max_size=6)), max_size=5).map(b" ".join),
    min_size=1,
    max_size=12,
)


def lines_of(texts: list[bytes]) -> Lines:
    """Return lines of any bytes, line feeds among them."""
    ends = np.cumsum([0, *(len(text) for text in texts)], dtype=np.int64)
    return Lines(np.frombuffer(bytearray(b"".join(texts)), np.uint8), ends[:-1], ends[1:])


def server_lines(count: int, *, seed: int = 1) -> list[bytes]:
    """Make up lines of a server."""
    rng, second, lines = random.Random(seed), 0, []
    for number in range(count):
        second += rng.randrange(3)
        head = b"2024-05-06 07:%02d:%02d,%03d" % (
            second // 60 % 60,
            second % 60,
            rng.randrange(1000),
        )
        lines.append(
            rng.choice(
                [
                    b"%s INFO request %d of user=u%d took %d ms"
                    % (head, number, rng.randrange(9), rng.randrange(999)),
                    b"%s WARN disk %d of node-%03d is full" % (head, number % 3, number % 17),
                    b"%s INFO session %016x opened" % (head, rng.getrandbits(64)),
                ]
            )
        )
    return lines


def learnt(texts: list[bytes]) -> tuple[Parsed, Shapes]:
    """Return numbered lines and their shapes."""
    shapes = Shapes()
    parsed = parse(lines_of(texts), shapes)
    shapes.extend(parsed.new_rows)
    parsed.number(range(len(shapes)))
    return parsed, shapes


def texts_of(lines: Lines) -> list[bytes]:
    """Return the lines one by one."""
    return [lines.line(number) for number in range(lines.begins.size)]


@pytest.fixture(scope="module")
def fitted() -> tuple[Tables, Shapes]:
    """Tables of a server's lines."""
    parsed, shapes = learnt(server_lines(600))
    return Tables.fit([parsed], shapes, generation=3), shapes


@given(TEXTS)
def test_a_block_gives_its_lines_back(texts: list[bytes]) -> None:
    parsed, shapes = learnt(texts)
    tables = Tables.builtin()
    block = blocks.encode(parsed, shapes, tables, first=0, count=len(texts))
    lines = blocks.decode(block, shapes, tables)
    assert texts_of(lines) == texts
    assert lines.data.tobytes() == b"".join(text + b"\n" for text in texts)


@given(TEXTS)
def test_fitted_tables_code_any_lines(fitted: tuple[Tables, Shapes], texts: list[bytes]) -> None:
    tables, known = fitted
    shapes = Shapes([known.row(number) for number in range(len(known))])
    parsed = parse(lines_of(texts), shapes)
    before = len(shapes)
    shapes.extend(parsed.new_rows)
    parsed.number(range(before, len(shapes)))
    block = blocks.encode(parsed, shapes, tables, first=0, count=len(texts))
    assert texts_of(blocks.decode(block, shapes, tables)) == texts


def test_blocks_do_not_depend_on_one_another(fitted: tuple[Tables, Shapes]) -> None:
    tables, shapes = fitted
    texts = server_lines(300, seed=2)
    parsed = parse(lines_of(texts), shapes)
    assert not parsed.new_rows
    made = [
        blocks.encode(parsed, shapes, tables, first=first, count=min(128, 300 - first))
        for first in range(0, 300, 128)
    ]
    for number in (2, 0, 1, 1):
        lines = texts_of(blocks.decode(made[number], shapes, tables))
        assert lines == texts[128 * number : 128 * number + 128]
    again = blocks.encode(parsed, shapes, tables, first=0, count=128)
    assert again == made[0]


def test_fitted_tables_make_blocks_smaller(fitted: tuple[Tables, Shapes]) -> None:
    tables, shapes = fitted
    parsed = parse(lines_of(server_lines(128, seed=4)), shapes)
    small = blocks.encode(parsed, shapes, tables, first=0, count=128)
    plain = blocks.encode(parsed, shapes, Tables.builtin(), first=0, count=128)
    assert len(small) < 0.95 * len(plain)


def test_packed_tables_are_the_same_tables(fitted: tuple[Tables, Shapes]) -> None:
    tables, shapes = fitted
    packed = tables.pack()
    assert len(packed) <= 8192
    restored = Tables.unpack(packed, shapes)
    assert restored.generation == 3
    parsed = parse(lines_of(server_lines(128, seed=5)), shapes)
    block = blocks.encode(parsed, shapes, tables, first=0, count=128)
    assert blocks.encode(parsed, shapes, restored, first=0, count=128) == block
    assert texts_of(blocks.decode(block, shapes, restored)) == server_lines(128, seed=5)


def test_tables_of_few_lines_are_small() -> None:
    texts = server_lines(300)
    parsed, shapes = learnt(texts)
    tables = Tables.fit([parsed], shapes, generation=1)
    assert len(tables.pack()) <= sum(map(len, texts)) * LEARNT_SHARE


def test_packed_tables_keep_to_their_limit() -> None:
    parsed, shapes = learnt(server_lines(600))
    for limit in (0, 40, 1000):
        tables = Tables.fit([parsed], shapes, generation=1, limit_bytes=limit)
        assert len(tables.pack()) <= max(limit, 40)
        assert Tables.unpack(tables.pack(), shapes).pack() == tables.pack()


def test_damaged_tables_are_refused(fitted: tuple[Tables, Shapes]) -> None:
    tables, shapes = fitted
    packed = tables.pack()
    for at in range(0, 8 * len(packed), 97):
        damaged = bytearray(packed)
        damaged[at // 8] ^= 1 << at % 8
        with pytest.raises(ArtifactInvalid):
            Tables.unpack(bytes(damaged), shapes)
    with pytest.raises(ArtifactInvalid, match="shapes"):
        Tables.unpack(packed, Shapes())
    assert Tables.unpack(b"", shapes).generation == 0


def test_every_flipped_bit_of_a_block_is_found(fitted: tuple[Tables, Shapes]) -> None:
    tables, shapes = fitted
    parsed = parse(lines_of(server_lines(20, seed=6)), shapes)
    block = blocks.encode(parsed, shapes, tables, first=0, count=20, times=(5, 9))
    for at in range(8 * len(block)):
        damaged = bytearray(block)
        damaged[at // 8] ^= 1 << at % 8
        with pytest.raises(RecordCorrupt):
            blocks.decode(bytes(damaged), shapes, tables)


def test_a_payload_of_noise_ends(fitted: tuple[Tables, Shapes]) -> None:
    """The CRC apart: whatever the payload, decoding reads and writes within its arrays."""
    tables, shapes = fitted
    parsed = parse(lines_of(server_lines(30, seed=7)), shapes)
    block = blocks.encode(parsed, shapes, tables, first=0, count=30)
    rng = random.Random(8)
    for _ in range(300):
        damaged = bytearray(block[:-4])
        for _ in range(rng.choice((1, 3, 30))):
            damaged[rng.randrange(29, len(damaged))] = rng.randrange(256)
        if bytes(damaged) != block[:-4]:
            with pytest.raises(RecordCorrupt):
                blocks.decode(sealed(bytes(damaged)), shapes, tables)


def payload_of(texts: list[bytes]) -> int:
    """Return the bytes of a block's payload without its header, by tables that learnt nothing."""
    parsed, shapes = learnt(texts)
    block = blocks.encode(parsed, shapes, Tables.builtin(), first=0, count=len(texts))
    assert texts_of(blocks.decode(block, shapes, Tables.builtin())) == texts
    return blocks.payload_bytes(block)


def test_shapes_that_are_new_in_every_line_take_few_bytes() -> None:
    texts = [b"the step " + b"x" * number + b" ends" for number in range(128)]
    assert payload_of(texts) <= 16


def test_values_of_new_columns_are_coded_by_what_all_values_begin_with() -> None:
    rng = random.Random(9)
    texts = [b"r" + b"x" * n + b": ffffffff81%06x" % rng.getrandbits(24) for n in range(128)]
    assert payload_of(texts) <= 128 * 5  # three of them are random


def test_digits_of_a_long_value_take_half_a_byte() -> None:
    assert payload_of([random.Random(10).randbytes(4000).hex().encode()]) < 4000 * 1.06


def sealed(body: bytes) -> bytes:
    """Put a right CRC behind a wrong block."""
    return body + zlib.crc32(body).to_bytes(4, "little")


@given(st.binary(max_size=80))
def test_noise_is_no_block(noise: bytes) -> None:
    for block in (noise, sealed(noise), sealed(b"\x01" + noise), sealed(b"\x02" + noise)):
        with pytest.raises((RecordCorrupt, ValueError)):
            blocks.decode(block, Shapes([b"a"]), Tables.builtin())


@pytest.mark.parametrize(
    "times", [(MISSING, MISSING), (-5, 7), (10**18, 10**18), (1 - 2**63, 2**62)]
)
def test_a_header_says_what_was_stored(times: tuple[int, int]) -> None:
    parsed, shapes = learnt([b"a 1", b"b 22"])
    block = blocks.encode(
        parsed, shapes, Tables.builtin(), first=0, count=2, first_sequence=2**40, times=times
    )
    head = blocks.header(block)
    assert (head.generation, head.line_count, head.size_bytes, head.shape_count) == (0, 2, 9, 2)
    assert head.first_sequence == 2**40
    assert head.times == times
    assert len(head.digest) == 16
    blocks.check(block)


def test_other_shapes_or_tables_are_refused(fitted: tuple[Tables, Shapes]) -> None:
    tables, shapes = fitted
    parsed = parse(lines_of(server_lines(3)), shapes)
    block = blocks.encode(parsed, shapes, tables, first=0, count=3)
    with pytest.raises(ValueError, match="expected generation 3"):
        blocks.decode(block, shapes, Tables.builtin())
    with pytest.raises(ValueError, match="shapes"):
        blocks.decode(block, Shapes(), tables)


@pytest.mark.parametrize(("first", "count"), [(0, 0), (0, 129), (1, 3), (-1, 2)])
def test_lines_that_are_not_there_are_refused(first: int, count: int) -> None:
    parsed, shapes = learnt([b"a", b"b", b"c"])
    with pytest.raises(ValueError, match="lines"):
        blocks.encode(parsed, shapes, Tables.builtin(), first=first, count=count)


def test_shapes_without_a_number_are_refused() -> None:
    parsed = parse(split(b"a\n"), Shapes())
    with pytest.raises(ValueError, match="numbers of shapes"):
        blocks.encode(parsed, Shapes(), Tables.builtin(), first=0, count=1)


def test_long_lines_are_lines() -> None:
    texts = [
        b" ".join(b"%d" % (number * number) for number in range(2000)),
        b"x1y" * (1 << 19),
        b"\r" * (1 << 20),
        b"\x00" * (1 << 20),
        bytes(range(256)) * 64,
    ]
    parsed, shapes = learnt(texts)
    tables = Tables.builtin()
    block = blocks.encode(parsed, shapes, tables, first=0, count=len(texts))
    assert texts_of(blocks.decode(block, shapes, tables)) == texts

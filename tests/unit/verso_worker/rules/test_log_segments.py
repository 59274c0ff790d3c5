"""Which segments say that their times ascend."""

from __future__ import annotations

from datetime import UTC, datetime

from verso_worker.records import line_arrays
from verso_worker.records.segments import BLOCK_LINES, TimeSource
from verso_worker.rules.logs.segments import _ascends, read_times

START = 1_795_262_400
SOURCE = TimeSource("%Y-%m-%dT%H:%M:%S", 0, arrived_ns=(START + 10**6) * 10**9)


def row(second: int) -> bytes:
    return f"{datetime.fromtimestamp(START + second, UTC):%Y-%m-%dT%H:%M:%SZ} disk full".encode()


def ascends(rows: list[bytes]) -> bool:
    lines = line_arrays.of_rows(rows)
    return _ascends(lines, read_times(lines, SOURCE), SOURCE)


def test_times_that_never_go_back_ascend() -> None:
    assert ascends([row(n // 3) for n in range(2 * BLOCK_LINES + 5)])
    assert ascends([row(0)])


def test_one_line_that_is_earlier_than_the_line_before_is_enough() -> None:
    assert not ascends([*(row(n) for n in range(BLOCK_LINES)), row(BLOCK_LINES - 2)])


def test_lines_without_a_time_ascend_only_if_their_block_has_one() -> None:
    """Alone, a block without any time reads that of its arrival."""
    begin = [row(n) for n in range(BLOCK_LINES)]
    end = [row(n) for n in range(BLOCK_LINES, 2 * BLOCK_LINES)]
    assert ascends([*begin, b"  at main()", *end[1:]])
    assert not ascends([*begin, *[b"  at main()"] * BLOCK_LINES, *end])

"""Cursors of lists of lines."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from verso_core.jobs.logs.lines import (
    LineOrder,
    LinesParams,
    LinesRequest,
    read_cursor,
    write_cursor,
)


@pytest.mark.parametrize("streams", [40_000, 1_000_000])
def test_a_list_of_all_lines_goes_on_in_any_number_of_streams(streams: int) -> None:
    """Its pages are asked for within the platform; only what a caller sends has a limit."""
    places = {stream: 10_000 + stream % 777 for stream in range(streams)}
    cursor = write_cursor(LineOrder.OLDEST, places)
    assert LinesParams(collection="lines", cursor=cursor).cursor == cursor
    assert read_cursor(cursor, LineOrder.OLDEST) == places
    if streams == 40_000:
        assert LinesRequest(cursor=cursor).cursor == cursor
    else:
        with pytest.raises(ValidationError):
            LinesRequest(cursor=cursor)

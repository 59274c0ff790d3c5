"""Formats that a sender names are those that the codec of lines follows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verso_codecs.logs.times import TimeFormat
from verso_core.errors import RequestInvalid
from verso_core.jobs.logs.time_formats import AUTO, MAX_BYTES, NAMED, NONE, check, patterns

PARTS = st.sampled_from(["%d", "%m", "%b", "%Y", "%H", "%M", "%S", "%s", "%%", "%q", "%", ".", "é"])


@given(st.lists(PARTS, max_size=9).map("".join))
def test_what_is_accepted_can_be_followed_and_the_rest_cannot(pattern: str) -> None:
    try:
        TimeFormat(pattern)
        follows = "%" in pattern
    except ValueError:
        follows = False
    if follows:
        check(pattern)
    else:
        with pytest.raises(RequestInvalid, match="/time_format"):
            check(pattern)


@pytest.mark.parametrize("name", [AUTO, NONE, *NAMED])
def test_names_are_accepted(name: str) -> None:
    check(name)
    for pattern in patterns(name):
        check(pattern)
        TimeFormat(pattern)


@pytest.mark.parametrize("wrong", ["", "rfc3339", "%H:%M", "%d.%m. %H:%M %q", "%", "%s" + "é" * 32])
def test_others_are_refused(wrong: str) -> None:
    with pytest.raises(RequestInvalid, match="/time_format"):
        check(wrong)
    assert len(("%s" + "é" * 32).encode()) > MAX_BYTES

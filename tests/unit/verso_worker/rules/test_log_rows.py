"""Rows of a query of lines are JSON that gives the lines back."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from verso_codecs.logs.parsing import split
from verso_worker.rules.logs.rows import moments, rendered

TEXTS = st.binary(max_size=12).map(lambda data: data.replace(b"\n", b"\r"))
ENDS = (b"", b"o", b's{"a":[1]}')
LABELS = st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=2)


@given(st.lists(st.tuples(TEXTS, st.integers(0, 1), st.integers(0, 10**18))), LABELS)
def test_rows_are_json_of_the_lines(
    rows: list[tuple[bytes, int, int]], labels: dict[str, str]
) -> None:
    found = rendered(
        split(b"".join(text + b"\n" for text, _, _ in rows)),
        np.array([stream for _, stream, _ in rows], np.int64),
        np.arange(len(rows)),
        np.array([when for _, _, when in rows], np.int64),
        np.array([ENDS[when % 3] for _, _, when in rows], np.object_),
        {0: labels, 1: {}},
    )
    lines = found.split(b"\n")
    assert lines.pop() == b""
    assert len(lines) == len(rows)
    for n, (line, (text, stream, when)) in enumerate(zip(lines, rows, strict=True)):
        row = json.loads(line)
        assert row.pop("id") == f"{stream}:{n}"
        assert _ns(row.pop("time")) == when
        assert row.pop("labels", {}) == ({} if stream else labels)
        assert row.pop("time_from", None) == ("observed" if when % 3 == 1 else None)
        assert row.pop("attributes", None) == ({"a": [1]} if when % 3 == 2 else None)
        [(name, value)] = row.items()
        assert (value.encode() if name == "text" else base64.b64decode(value)) == text
        assert name == ("text" if _is_utf8(text) else "text_base64")


def test_times_have_the_digits_that_they_need() -> None:
    when = np.array([0, 1_500_000_000, 1_782_000_000_000_000_001, -1], np.int64)
    assert moments(when) == [
        "1970-01-01T00:00:00Z",
        "1970-01-01T00:00:01.5Z",
        "2026-06-21T00:00:00.000000001Z",
        "1969-12-31T23:59:59.999999999Z",
    ]


def _ns(moment: str) -> int:
    whole, _, rest = moment.removesuffix("Z").partition(".")
    seconds = int(datetime.fromisoformat(whole).replace(tzinfo=UTC).timestamp())
    return seconds * 10**9 + int(rest.ljust(9, "0") or 0)


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True

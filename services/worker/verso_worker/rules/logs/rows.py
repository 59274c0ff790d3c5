"""Lines as a query shows them: a row of JSON each, written without an object a line."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from itertools import repeat
from json.encoder import encode_basestring

import numpy as np
from numpy.typing import NDArray

from verso_codecs.logs.parsing import Lines
from verso_worker.records import line_arrays
from verso_worker.rules.logs.bodies import shown
from verso_worker.rules.logs.reading import Line

Numbers = NDArray[np.int64]
_SECOND_NS = 1_000_000_000


def rendered(
    lines: Lines,
    streams: Numbers,
    numbers: Numbers,
    when: Numbers,
    behind: NDArray[np.object_],
    labels: Mapping[int, Mapping[str, str]],
    *,
    more: str = "",
    beside: Sequence[str] | None = None,
) -> bytes:
    """Return lines as NDJSON.

    Args:
        lines: the lines.
        streams: of each line. Shape of this and those that follow: (lines,).
        numbers: of each line in its stream.
        when: the times, Unix nanoseconds.
        behind: what stands behind the body of each record, bytes; empty for plain lines.
        labels: of each stream.
        more: members that every row has, as JSON.
        beside: members of each row, as JSON.
    """
    ends = {stream: f"{more}{_labels(own)}" for stream, own in labels.items()}
    texts = line_arrays.rows(lines)
    places = streams.tolist(), numbers.tolist(), moments(when)
    rows = zip(*places, texts, behind.tolist(), beside or repeat(""), strict=False)
    return "".join(
        [
            f'{{"id":"{stream}:{number}","time":"{moment}",{_text(text)}{shown(end)}'
            f"{ends[stream]}{own}}}\n"
            for stream, number, moment, text, end, own in rows
        ]
    ).encode()


def row(line: Line, labels: Mapping[str, str]) -> str:
    """Return one line as a JSON object."""
    [moment] = moments(np.array([line.time_ns]))
    return (
        f'{{"id":"{line.stream}:{line.number}","time":"{moment}",{_text(line.text)}'
        f"{shown(line.end)}{_labels(labels)}}}"
    )


def moments(when: Numbers) -> list[str]:
    """Return times as RFC 3339, UTC, each with as many digits as it needs."""
    whole = np.datetime_as_string(when.view("datetime64[ns]"), unit="s").tolist()
    rest = (when % _SECOND_NS).tolist()
    return [
        f"{seconds}.{f'{ns:09d}'.rstrip('0')}Z" if ns else f"{seconds}Z"
        for seconds, ns in zip(whole, rest, strict=True)
    ]


def _text(data: bytes) -> str:
    try:
        return f'"text":{encode_basestring(data.decode())}'
    except UnicodeDecodeError:
        return f'"text_base64":"{base64.b64encode(data).decode("ascii")}"'


def _labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    return f',"labels":{json.dumps(labels, ensure_ascii=False, separators=(",", ":"))}'

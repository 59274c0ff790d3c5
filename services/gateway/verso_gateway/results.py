"""Results of slices as JSON values.

A text is given as ``text`` where its bytes are UTF-8 and as ``text_base64`` where they are not, so
that every byte survives JSON.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from typing import Any

from verso_core.jobs import Kind, Result
from verso_gateway import floats

Rendered = dict[str, Any]


def render(kind: Kind, result: Result, *, vectors_base64: bool = False) -> list[Rendered]:
    """Turn the items of one slice's result into JSON values, in order.

    Args:
        kind: kind of the job.
        result: what the worker committed.
        vectors_base64: give vectors as base64 of float32 (little endian), not as numbers.
    """
    special = {
        Kind.EMBED: _embedding,
        Kind.SEARCH: _hits,
        Kind.CLUSTER: _groups,
        Kind.ANSWER: _answers,
    }.get(kind, _document)
    return [
        special(item, result.blobs, vectors_base64) if item["ok"] else _failed(item)
        for item in result.items
    ]


def text_field(data: bytes) -> dict[str, str]:
    """Return the one field that carries a text."""
    try:
        return {"text": data.decode("utf-8")}
    except UnicodeDecodeError:
        return {"text_base64": base64.b64encode(data).decode("ascii")}


def total_timings(results: Iterable[Result]) -> dict[str, float]:
    """Sum the slices' timings by phase, ms."""
    total: dict[str, float] = {}
    for result in results:
        for phase, ms in result.timings_ms.items():
            total[phase] = round(total.get(phase, 0.0) + ms, 3)
    return total


def server_timing(timings_ms: Mapping[str, float]) -> str:
    """Write timings as a Server-Timing header (W3C Server Timing)."""
    return ", ".join(f"{phase};dur={ms:g}" for phase, ms in timings_ms.items())


def _failed(item: Mapping[str, Any]) -> Rendered:
    return {key: value for key, value in item.items() if key not in ("ok", "blob")}


def _plain(item: Mapping[str, Any]) -> Rendered:
    return {
        key: value
        for key, value in item.items()
        if key not in ("ok", "blob") and not (key == "error" and value is None)
    }


def _document(item: Mapping[str, Any], blobs: list[bytes], _: bool) -> Rendered:
    rendered = _plain(item)
    if item.get("blob") is not None:
        rendered.update(text_field(blobs[item["blob"]]))
    return rendered


def _embedding(item: Mapping[str, Any], blobs: list[bytes], vectors_base64: bool) -> Rendered:
    data = blobs[item["blob"]]
    vector = base64.b64encode(data).decode("ascii") if vectors_base64 else floats.unpack(data)
    return {**_plain(item), "embedding": vector}


def _hits(item: Mapping[str, Any], blobs: list[bytes], _: bool) -> Rendered:
    hits = [_record(_document(hit, blobs, False)) for hit in item["hits"]]
    return {**_plain(item), "hits": hits}


def _groups(item: Mapping[str, Any], blobs: list[bytes], _: bool) -> Rendered:
    groups = []
    for group in item["groups"]:
        shown = [_document(one, blobs, False) for one in group["representatives"]]
        groups.append({**group, "representatives": shown})
    return {**_plain(item), "groups": groups}


def _answers(item: Mapping[str, Any], blobs: list[bytes], _: bool) -> Rendered:
    answers = [_record(_document(answer, blobs, False)) for answer in item["answers"]]
    failed = [_record(dict(one)) for one in item["failed"]]
    return {**_plain(item), "answers": answers, "failed": failed}


def _record(rendered: Rendered) -> Rendered:
    """Name what stands in a record by the record and its document."""
    if "id" not in rendered:
        return rendered
    document, chunk = rendered.pop("id"), rendered["chunk"]
    return {"id": f"{document}#{chunk}", "document": document, **rendered}

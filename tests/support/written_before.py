"""What commit 77fee1d wrote: slices, results and data folders (tests/data/written-before)."""

from __future__ import annotations

import base64
import json
import lzma
import re
import shutil
import struct
import tarfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

RECEIVER = "127.43.7.15:8417"
_UTC = re.compile(r"(?<=\d)Z$")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")
FOLDER = Path(__file__).parents[1] / "data" / "written-before"


@dataclass(frozen=True)
class Recorded:
    """A slice: its frames, and what they hold as an independent reader found it.

    Attributes:
        name: what the slice shows.
        kind: kind of its job.
        payload: the frame that the gateway (or keeper, or trainer) wrote.
        result: the frame that the worker committed; None where the slice failed.
        payload_holds: header and blobs (base64) of the payload.
        result_holds: header and blobs (base64) of the result.
        request: the HTTP request; None where none made the slice.
        answer: the JSON that was answered to it.
    """

    name: str
    kind: str
    payload: bytes
    result: bytes | None
    payload_holds: dict[str, Any]
    result_holds: dict[str, Any] | None
    request: dict[str, Any] | None
    answer: Any


@cache
def slices() -> tuple[Recorded, ...]:
    """Return all recorded slices."""
    with lzma.open(FOLDER / "slices.jsonl.xz", "rt", encoding="ascii") as file:
        rows = [json.loads(line) for line in file]
    return tuple(
        Recorded(
            name=row["name"],
            kind=row["kind"],
            payload=base64.b64decode(row["payload"]),
            result=None if row["result"] is None else base64.b64decode(row["result"]),
            payload_holds=row["payload_holds"],
            result_holds=row["result_holds"],
            request=row.get("request"),
            answer=row.get("answer"),
        )
        for row in rows
    )


def holds(frame: bytes) -> dict[str, Any]:
    """Read a frame by its description, with no code of the product: header, blobs as base64."""
    magic, size = struct.unpack_from("<BI", frame)
    assert magic == 0x56
    (count,) = struct.unpack_from("<I", frame, 5 + size)
    sizes = struct.unpack_from(f"<{count}I", frame, 9 + size)
    at = 9 + size + 4 * count
    blobs = []
    for length in sizes:
        blobs.append(base64.b64encode(frame[at : at + length]).decode("ascii"))
        at += length
    assert at == len(frame)
    return {"header": json.loads(frame[5 : 5 + size]), "blobs": blobs}


def meaning(held: Mapping[str, Any], *, without_nulls: bool = False) -> Any:
    """Return a frame's header with blobs in the place of their numbers.

    Two frames of one meaning may number their blobs differently, and write the zone of a time as Z
    or +00:00.

    Args:
        held: header and blobs.
        without_nulls: leave keys out whose value is null.
    """
    blobs: Sequence[str] = held["blobs"]

    def inner(value: Any) -> Any:
        if isinstance(value, dict):
            return {
                key: blobs[one] if key == "blob" and one is not None else inner(one)
                for key, one in value.items()
                if not (without_nulls and one is None)
            }
        if isinstance(value, list):
            return list(map(inner, value))
        return _UTC.sub("+00:00", value) if isinstance(value, str) else value

    return inner(held["header"])


def unpack_folder(name: str, target: Path, *, receiver: str = RECEIVER) -> dict[str, Any]:
    """Unpack a recorded data folder into a new folder; returns what is to be found in it.

    Args:
        name: of the recording.
        target: the new folder.
        receiver: address of the webhooks' receiver, as long as the recorded one, in its place: what
            runs at the same time on this machine must not take the messages.
    """
    target.mkdir(parents=True)
    with tarfile.open(FOLDER / f"{name}.tar.xz") as archive:
        # Python 3.11.2, which Debian has, does not know the argument of extractall for it.
        archive.extraction_filter = getattr(tarfile, "data_filter", lambda member, _: member)
        archive.extractall(target)  # noqa: S202 - recorded here
    recorded, own = RECEIVER.encode("ascii"), receiver.encode("ascii")
    assert len(own) == len(recorded), receiver
    for file in (target / "valkey/appendonlydir").glob("*.incr.aof"):
        file.write_bytes(file.read_bytes().replace(recorded, own))
    text = (FOLDER / f"{name}.json").read_bytes().replace(recorded, own)
    expected: dict[str, Any] = json.loads(text)
    return expected


def shipped(folder: Path) -> Path:
    """Make the models that the recorded platforms were started with; returns the artifact.

    A tiny artifact beside a registry of the tiny heads of then, as a release ships them.
    """
    shutil.copytree(FOLDER.parent / "artifact-tiny", folder / "tiny")
    heads = {}
    for name in ("alike", "kinds-tokens", "qa"):
        made = shutil.copytree(FOLDER / "heads" / name, folder / "heads" / name)
        heads[name] = {"stable": next(made.iterdir()).name}
    registry = {"stable": "tiny", "heads": heads}
    (folder / "registry.json").write_text(json.dumps(registry), encoding="ascii")
    return folder / "tiny"


def check_same(found: Any, expected: Any, *, but: Collection[str] = (), at: str = "") -> None:
    """Assert that an answer says what was recorded; numbers may differ in their last digits.

    Args:
        found: what is answered now; it may have more keys.
        expected: what was recorded.
        but: keys that may say something else.
        at: where in the answer this is, for the message.
    """
    if isinstance(expected, dict):
        for key in expected.keys() - set(but):
            assert key in found, f"{at}/{key}"
            check_same(found[key], expected[key], but=but, at=f"{at}/{key}")
    elif isinstance(expected, list):
        assert len(found) == len(expected), (at, found)
        for place, (one, other) in enumerate(zip(found, expected, strict=True)):
            check_same(one, other, but=but, at=f"{at}/{place}")
    elif isinstance(expected, float) and not isinstance(found, str):
        assert found is not None, at
        assert abs(found - expected) <= 2e-4 * max(1.0, abs(expected)), (at, found, expected)
    elif isinstance(expected, str) and _TIME.fullmatch(expected):
        # a time is written in milliseconds now, and was in seconds or microseconds
        apart = datetime.fromisoformat(found) - datetime.fromisoformat(expected)
        assert abs(apart) < timedelta(seconds=1), (at, found, expected)
    else:
        assert found == expected, (at, found, expected)

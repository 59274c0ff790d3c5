"""Look for a body that a decoder of the feed cannot take, for a given time.

Bodies are requests as agents make them, with odd values in odd places, and damaged at random. Of
each decoder (bulk, NDJSON, OTLP and Loki in both forms, syslog, compressed bodies) this must hold:

- It returns records and errors of the platform, or raises such an error, within ``_LONGEST_S``.
- Every record becomes a line that reads back as its text and its attributes.
- A damaged row costs itself: the rows beside it decode as without it.

The seed is printed, and given again it repeats the run. Exits with 1 at the first failure, and
writes its body to ``fuzz-feed.bin``.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
import random
import sys
import time
import traceback
import zlib
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import cramjam
import fields
import zstandard
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from starlette.types import Message

from verso_core.errors import VersoError
from verso_core.jobs.logs.records import read_line
from verso_gateway.bodies.inflate import Inflate
from verso_gateway.feed import bulk, loki, mapping, otlp, syslog
from verso_gateway.feed.batch import batch_of
from verso_gateway.feed.records import Decoded, FieldMap, LogRecord

_LONGEST_S = 5.0
_MOST_BYTES = 1 << 20
_NOW = datetime(2026, 11, 23, tzinfo=UTC)
_NAMES = (
    *("message", "log", "msg", "body", "@timestamp", "time", "ts", "level", "severity", "host"),
    *("host.name", "service", "service.name", "app", "source", "log.file.path", "a", "a.b", ""),
    *("log.record.uid", "_id", "é", "\0", "x" * 300, "record.a", "body.a"),
)
_STRINGS = (
    *("", " ", "disk full", "disk\nfull", "\0", "\0 \1", "\ufeff", "é" * 200, "x" * 3000, "-1"),
    *("2026-11-23T03:46:06.123456789Z", "2026-02-30T00:00:00Z", "1795405566123456789", "1e400"),
    *("9" * 400, "nan", "0x10", '"', "\\", "\u2028", "{}", "null", "True", "b64=="),
)
_NUMBERS = (0, 1, -1, 2**31, 2**53, 2**63 - 1, 2**63, 2**64 - 1, -(2**63), 1.5, 1e300, -0.0)


def value(rng: random.Random, depth: int = 0) -> Any:
    """Make up a JSON value; sometimes it is nested very deep."""
    kind = rng.random()
    if depth == 0 and kind < 0.02:
        nested: Any = 1
        for _ in range(rng.choice((7, 8, 9, 120, 250, 260, 900))):
            nested = {"a": nested} if rng.random() < 0.7 else [nested]
        return nested
    if kind < 0.45 or depth > 4:
        return rng.choice(_STRINGS) if rng.random() < 0.7 else fields.field(rng)
    if kind < 0.65:
        return rng.choice((*_NUMBERS, True, False, None))
    if kind < 0.8:
        return [value(rng, depth + 1) for _ in range(rng.randrange(4))]
    return {rng.choice(_NAMES): value(rng, depth + 1) for _ in range(rng.randrange(6))}


def document(rng: random.Random) -> dict[str, Any]:
    """Make up a JSON object as a record."""
    found = {rng.choice(_NAMES): value(rng) for _ in range(rng.randrange(8))}
    return found | ({"message": rng.choice(_STRINGS)} if rng.random() < 0.6 else {})


def row(rng: random.Random) -> bytes:
    """Write a record as a row of JSON."""
    return json.dumps(document(rng), ensure_ascii=rng.random() < 0.5).encode()


def of_bulk(rng: random.Random) -> bytes:
    """Make up actions of Elasticsearch."""
    rows = []
    for _ in range(rng.randrange(1, 8)):
        name = rng.choice(("index", "create", "create", "update", "delete", "x"))
        about = {"_index": rng.choice(("shop", "shop-2026.11.23", "", 5)), "_id": value(rng)}
        about = {key: about[key] for key in about if rng.random() < 0.7}
        rows.append(json.dumps({name: about}).encode())
        if name != "delete" or rng.random() < 0.1:
            rows.append(row(rng))
    return b"\n".join(rows) + b"\n"


def any_value(rng: random.Random, depth: int = 0) -> dict[str, Any]:
    """Make up an AnyValue of OTLP's JSON."""
    if depth == 0 and rng.random() < 0.03:
        nested: dict[str, Any] = {"stringValue": "x"}
        for _ in range(rng.choice((9, 15, 20, 33, 60, 120))):
            if rng.random() < 0.5:
                nested = {"arrayValue": {"values": [nested]}}
            else:
                nested = {"kvlistValue": {"values": [{"key": "a", "value": nested}]}}
        return nested
    kind = rng.randrange(9)
    inner = [any_value(rng, depth + 1) for _ in range(rng.randrange(3))] if depth < 5 else []
    pairs = [{"key": rng.choice(_NAMES), "value": one} for one in inner]
    return (
        {"stringValue": rng.choice(_STRINGS)},
        {"boolValue": rng.choice((True, False))},
        {"intValue": rng.choice(("1", 5, str(2**63), "-9", "x", None, 1.5))},
        {"doubleValue": rng.choice((1.5, 3, "NaN"))},
        {"bytesValue": rng.choice(("AAEC", "/w==", "?"))},
        {"arrayValue": {"values": inner}},
        {"kvlistValue": {"values": pairs}},
        {},
        {"stringValue": "a", "intValue": 5},
    )[kind]


def attributes(rng: random.Random) -> list[Any]:
    """Make up attributes of OTLP's JSON."""
    return [{"key": rng.choice(_NAMES), "value": any_value(rng)} for _ in range(rng.randrange(5))]


def otlp_request(rng: random.Random) -> dict[str, Any]:
    """Make up a request of OTLP's JSON."""
    records = []
    for _ in range(rng.randrange(1, 5)):
        record: dict[str, Any] = {
            "timeUnixNano": rng.choice(("1795405566123456789", 5, "x", str(2**64), None, "٣")),
            "observedTimeUnixNano": rng.choice((0, 1795405566123456789, "7", "²")),
            "severityNumber": rng.choice((0, 9, 24, 25, -1, "9", 2**40)),
            "severityText": rng.choice(("INFO", "", 5)),
            "traceId": rng.choice(("5b8aa5a2d2c872e8321cf37308d69df2", "", None)),
            "eventName": rng.choice(("login", "")),
            "attributes": attributes(rng),
        }
        if rng.random() < 0.8:
            record["body"] = any_value(rng)
        records.append({key: record[key] for key in record if rng.random() < 0.8})
    scoped = {"scope": {"name": "app", "attributes": attributes(rng)}, "logRecords": records}
    part = {"resource": {"attributes": attributes(rng)}, "scopeLogs": [scoped]}
    return {"resourceLogs": [part] * rng.randrange(1, 3)}


def of_otlp_json(rng: random.Random) -> bytes:
    """Make up a request of OTLP in JSON."""
    return json.dumps(otlp_request(rng), ensure_ascii=rng.random() < 0.5).encode()


def of_otlp_protobuf(rng: random.Random) -> bytes:
    """Make up a request of OTLP in protobuf."""
    request = ExportLogsServiceRequest()
    part = request.resource_logs.add()
    for _ in range(rng.randrange(4)):
        _protobuf(rng, part.resource.attributes.add(key=_unicode(rng, _NAMES)).value)
    scoped = part.scope_logs.add()
    scoped.scope.name = _unicode(rng, _STRINGS)
    for _ in range(rng.randrange(1, 5)):
        record = scoped.log_records.add(
            time_unix_nano=rng.choice((0, 1, 1_795_405_566_123_456_789, 2**64 - 1)),
            severity_number=rng.choice((0, 9, 24, 25, 100)),
            severity_text=_unicode(rng, _STRINGS),
            trace_id=rng.randbytes(rng.choice((0, 3, 16))),
        )
        if rng.random() < 0.8:
            _protobuf(rng, record.body)
        for _ in range(rng.randrange(5)):
            _protobuf(rng, record.attributes.add(key=_unicode(rng, _NAMES)).value)
    return bytes(request.SerializeToString())


def _protobuf(rng: random.Random, into: AnyValue, depth: int = 0) -> None:
    """Make up an AnyValue of protobuf; sometimes as deep as protobuf allows."""
    deepest = 40 if rng.random() < 0.02 else 4
    match rng.randrange(7) if depth < deepest else 0:
        case 0:
            into.string_value = _unicode(rng, _STRINGS)
        case 1:
            into.bool_value = rng.random() < 0.5
        case 2:
            into.int_value = rng.choice((0, -1, 2**63 - 1, -(2**63)))
        case 3:
            into.double_value = rng.choice((1.5, float("nan"), float("inf"), -0.0))
        case 4:
            into.bytes_value = rng.randbytes(rng.randrange(20))
        case 5:
            into.array_value.SetInParent()
            for _ in range(rng.randrange(3)):
                _protobuf(rng, into.array_value.values.add(), depth + 1)
        case _:
            into.kvlist_value.SetInParent()
            for _ in range(rng.randrange(3)):
                pair = into.kvlist_value.values.add(key=_unicode(rng, _NAMES))
                _protobuf(rng, pair.value, depth + 1)


def _unicode(rng: random.Random, choices: Sequence[str]) -> str:
    return rng.choice(choices)


def of_loki_json(rng: random.Random) -> bytes:
    """Make up a push of Loki in JSON."""
    streams = []
    for _ in range(rng.randrange(1, 4)):
        times = ("1795405566123456789", "5", 5, "x", "-1", "9" * 30, None)
        values = [
            [rng.choice(times), rng.choice(_STRINGS), document(rng)][: rng.randrange(1, 4)]
            for _ in range(rng.randrange(5))
        ]
        labels = {rng.choice(_NAMES): rng.choice(("a", "", 5, "x" * 300)) for _ in range(3)}
        streams.append({"stream": rng.choice((labels, labels, [], None)), "values": values})
    return json.dumps({"streams": streams}).encode()


def of_loki_protobuf(rng: random.Random) -> bytes:
    """Make up a push of Loki in protobuf and Snappy."""
    push = loki.PUSH_REQUEST()
    for _ in range(rng.randrange(1, 4)):
        labels = rng.choice(
            ('{job="web", path="C:\\\\log"}', "{}", '{a="\\ud800\\x41"}', "{a=}", "", '{a="b",}')
        )
        stream = push.streams.add(labels=labels)
        for _ in range(rng.randrange(5)):
            entry = stream.entries.add(line=rng.choice(_STRINGS).encode())
            entry.timestamp.seconds = rng.choice((0, 1_795_405_566, -1, 2**62))
            entry.timestamp.nanos = rng.choice((0, 999_999_999, -5))
            for _ in range(rng.randrange(3)):
                pair = (_unicode(rng, _NAMES), _unicode(rng, _STRINGS))
                entry.structuredMetadata.add(name=pair[0], value=pair[1])
    return bytes(cramjam.snappy.compress_raw(damaged(rng, push.SerializeToString(), 0.3)))


def of_syslog(rng: random.Random) -> bytes:
    """Make up what comes over a connection of syslog."""
    messages = []
    for _ in range(rng.randrange(1, 6)):
        priority = rng.choice((13, 0, 191, 192, 999))
        if rng.random() < 0.5:
            pairs = "".join(
                f' {rng.choice(("a", "b", "tag"))}="{rng.choice(("x", chr(92) + chr(34), "é"))}"'
                for _ in range(rng.choice((0, 1, 3, 2000)))
            )
            data = rng.choice(("-", f"[id@1{pairs}]", f"[id@1{pairs}][x]", "[", "[a b]"))
            when = rng.choice(("2026-11-23T10:00:00.123456Z", "-", "2026-13-01T00:00:00Z"))
            text = f"<{priority}>1 {when} a app 7 - {data} {rng.choice(_STRINGS)}"
        else:
            when = rng.choice(("Nov 23 10:00:00", "Feb 29 00:00:00", "Xxx  1 25:61:61", ""))
            text = f"<{priority}>{when} host app[5]: {rng.choice(_STRINGS)}"
        message = text.encode("utf-8", "surrogatepass")
        counted = rng.random() < 0.5
        messages.append(b"%d %b" % (len(message), message) if counted else message + b"\n")
    return b"".join(messages)


def of_compressed(rng: random.Random) -> bytes:
    """Make up a compressed body; its first byte says how."""
    text = rng.choice(_STRINGS).encode() * rng.choice((1, 50, 5000))
    coding = rng.randrange(3)
    packed = (gzip.compress, zlib.compress, zstandard.compress)[coding](text)
    return bytes([coding]) + packed * rng.choice((1, 1, 3))


def damaged(rng: random.Random, body: bytes, share: float) -> bytes:
    """Return bytes, a share of the time with some changed, left out, repeated or put in."""
    if rng.random() >= share or not body:
        return body
    made = bytearray(body)
    for _ in range(rng.choice((1, 1, 2, 8))):
        at = rng.randrange(len(made) + 1)
        end = min(len(made), at + rng.choice((1, 2, 8, 64)))
        match rng.randrange(5):
            case 0:
                made[at:end] = b""
            case 1:
                made[at:at] = made[at:end] * rng.choice((1, 2, 50))
            case 2:
                made[at:at] = rng.choice(
                    (b"\0", b'"', b"{", b"[" * 300, b"}", b"\n", b"\xff", b"\\")
                )
            case 3:
                made[at:end] = rng.randbytes(end - at)
            case _:
                made = made[:at] or made
    return bytes(made)


def of_stream(body: bytes) -> list[Decoded]:
    """Return the records of a connection of syslog, whose bytes come in parts."""
    framer = syslog.Framer()
    rng = random.Random(len(body))
    found: list[bytes | VersoError] = []
    at = 0
    while at < len(body):
        size = rng.choice((1, 7, 100, 5000))
        found += framer.feed(body[at : at + size])
        at += size
    found += framer.end()
    return [
        syslog.parse(one, now=_NOW, offset_s=3600) if isinstance(one, bytes) else one
        for one in found
    ]


def inflated(body: bytes) -> list[Decoded]:
    """Inflate a body as the middleware does."""
    coding, rest = ("gzip", "deflate", "zstd")[body[0] % 3], body[1:]
    parts = [rest[n : n + 300] for n in range(0, len(rest), 300)] or [b""]
    sizes: list[int] = []

    async def receive() -> Message:
        part = parts.pop(0)
        return {"type": "http.request", "body": part, "more_body": bool(parts)}

    async def app(scope: Any, receive: Any, send: Any) -> None:
        while (message := await receive())["more_body"]:
            sizes.append(len(message["body"]))

    async def send(message: Message) -> None:
        pass

    scope = {
        "type": "http",
        "path": "/v1/logs",
        "headers": [(b"content-encoding", coding.encode())],
    }
    asyncio.run(Inflate(app)(scope, receive, send))
    if max(sizes, default=0) > 3 << 20:
        raise AssertionError(f"a piece of {max(sizes)} bytes")
    return []


_FIELDS = FieldMap().with_labels(["env", "a.b"])


def of_actions(body: bytes) -> list[Decoded]:
    """Return the records of actions."""
    return [action.decoded for action in bulk.decode(body, _FIELDS, index="shop")]


DECODERS: dict[str, tuple[Callable[[random.Random], bytes], Callable[[bytes], list[Decoded]]]] = {
    "bulk": (of_bulk, of_actions),
    "ndjson": (
        lambda rng: b"\n".join(row(rng) for _ in range(rng.randrange(1, 8))),
        lambda body: mapping.decode(body, _FIELDS),
    ),
    "otlp json": (of_otlp_json, lambda body: otlp.decode_json(body, _FIELDS)),
    "otlp protobuf": (of_otlp_protobuf, lambda body: otlp.decode_protobuf(body, _FIELDS)),
    "loki json": (of_loki_json, lambda body: loki.decode_json(body, _FIELDS)),
    "loki protobuf": (
        of_loki_protobuf,
        lambda body: loki.decode_protobuf(body, _FIELDS, most_bytes=_MOST_BYTES),
    ),
    "syslog": (of_syslog, of_stream),
    "compressed": (of_compressed, inflated),
}


def check(decoded: Sequence[Decoded]) -> None:
    """Check that records become lines that read back."""
    records = [(n, one) for n, one in enumerate(decoded) if isinstance(one, LogRecord)]
    batch = batch_of(records, {one.source: "logs" for _, one in records}, arrived_ns=7)
    by_position = dict(records)
    count = len(batch.repeated)
    for stream in batch.streams.values():
        for position, line in zip(stream.positions, stream.lines, strict=True):
            record, found = by_position[position], read_line(line)
            assert b"\n" not in line, "a line has a line feed"
            assert (found.text, found.attributes) == (record.text, record.attributes)
            assert isinstance(json.loads(found.attributes or b"{}"), dict)
            count += 1
    assert count == len(records)


def rows_apart(rng: random.Random) -> bytes | None:
    """Return a body of rows of which a damaged one changed another; None if there is none."""
    rows = [row(rng) for _ in range(5)]
    bad = damaged(rng, rows[2], 1.0).replace(b"\n", b"").replace(b"\r", b"")
    if not bad.strip():
        return None
    body = b"\n".join([*rows[:2], bad, *rows[3:]])
    plain, found = mapping.decode(b"\n".join(rows), _FIELDS), mapping.decode(body, _FIELDS)
    for n in (0, 1, 3, 4):
        one, other = plain[n], found[n]
        if repr(one) != repr(other):
            return body
    return None


def failure(rng: random.Random, name: str) -> tuple[bytes, str] | None:
    """Try one body of a decoder; return the body and what is wrong, or None."""
    make, decode = DECODERS[name]
    body = damaged(rng, make(rng), 0.5) or b"\0"
    began = time.monotonic()
    try:
        check(decode(body))
    except VersoError:
        pass
    except Exception:  # noqa: BLE001 - whatever it is, it is what is looked for
        return body, traceback.format_exc()
    if time.monotonic() - began > _LONGEST_S:
        return body, f"took {time.monotonic() - began:.1f} s"
    return None


def main() -> int:
    """Fuzz until the time is over."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 10**9)
    parser.add_argument("--only", choices=sorted(DECODERS))
    options = parser.parse_args()
    rng = random.Random(options.seed)
    names = [options.only] if options.only else list(DECODERS)
    end, count = time.monotonic() + 60 * options.minutes, 0
    while time.monotonic() < end:
        for name in names:
            if (found := failure(rng, name)) is not None:
                return _failed(options.seed, name, *found)
        if (wrong := rows_apart(rng)) is not None:
            return _failed(options.seed, "ndjson", wrong, "a damaged row changed another")
        count += 1
    print(f"seed {options.seed}: {count:,} bodies of each of {', '.join(names)}: no failure")
    return 0


def _failed(seed: int, name: str, body: bytes, what: str) -> int:
    Path("fuzz-feed.bin").write_bytes(body)
    print(f"seed {seed}: {name} fails on {len(body):,} bytes, in fuzz-feed.bin\n{what}")
    return 1


if __name__ == "__main__":
    sys.exit(main())

"""Messages of syslog and their frames."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verso_core.errors import TextTooLarge
from verso_gateway.feed.records import LogRecord
from verso_gateway.feed.syslog import MAX_MESSAGE_BYTES, Framer, parse

NOW = datetime(2026, 1, 1, 0, 0, 5, tzinfo=UTC)
NEW_YEAR_NS = 1_767_225_600_000_000_000
ESCAPES = {ord(character): f"\\{character}" for character in '"\\]'}
WORDS = st.from_regex(r"[!-~]{1,20}", fullmatch=True).filter(lambda text: text != "-")


def read(message: bytes, *, offset_s: int = 0) -> LogRecord:
    found = parse(message, now=NOW, offset_s=offset_s)
    assert isinstance(found, LogRecord)
    return found


def test_the_example_of_rfc_5424() -> None:
    record = read(
        b"<165>1 2003-10-11T22:14:15.003Z mymachine.example.com evntslog - ID47 "
        b'[exampleSDID@32473 iut="3" eventSource="Appli\\"cation" eventID="1011"][x@1] '
        b"\xef\xbb\xbfAn application event log entry..."
    )
    assert record.text == b"An application event log entry..."
    assert record.time_ns == 1_065_910_455_003_000_000
    assert record.labels == {
        "service": "evntslog", "host": "mymachine.example.com", "level": "notice",
        "facility": "local4",
    }  # fmt: skip
    assert json.loads(record.attributes) == {
        "message_id": "ID47",
        "exampleSDID@32473.iut": "3",
        "exampleSDID@32473.eventSource": 'Appli"cation',
        "exampleSDID@32473.eventID": "1011",
        "x@1": "",
    }


@given(
    st.integers(0, 191), WORDS, WORDS, WORDS, st.binary(max_size=50),
    st.dictionaries(st.from_regex(r"[a-z]{1,8}", fullmatch=True), st.text(max_size=20), max_size=3),
)  # fmt: skip
def test_messages_of_rfc_5424_are_read_as_they_were_written(
    priority: int, host: str, app: str, process: str, text: bytes, parameters: dict[str, str]
) -> None:
    written = "".join(f' {name}="{value.translate(ESCAPES)}"' for name, value in parameters.items())
    head = f"<{priority}>1 2026-01-01T00:00:00.5+00:00 {host} {app} {process} - [sd{written}] "
    record = read(head.encode() + text)
    assert record.text == text.removeprefix(b"\xef\xbb\xbf")
    assert record.time_ns == NEW_YEAR_NS + 500_000_000
    assert (record.labels["host"], record.labels["service"]) == (host, app)
    attributes = json.loads(record.attributes)
    assert attributes.pop("process_id") == process
    expected = {f"sd.{name}": value for name, value in parameters.items()} or {"sd": ""}
    assert attributes == expected


@pytest.mark.parametrize(
    ("message", "text", "service", "host", "time_ns"),
    [
        (b"<34>Jan  1 00:00:01 web su: 'su root' failed", b"'su root' failed", "su", "web", 1),
        (b"<13>Jan  1 00:00:01 user: hello", b"hello", "user", None, 1),
        (b"<13>Jan  1 00:00:01 web sshd[12]: a: b", b"a: b", "sshd", "web", 1),
        (b"<13>Dec 31 23:59:59 web no tag here", b"no tag here", None, "web", -1),
        (b"<13>2026-01-01T00:00:00.5+00:00 web app: x", b"x", "app", "web", 0.5),
        (b"<13>app: without a time", b"without a time", "app", None, None),
    ],
)
def test_messages_of_rfc_3164(
    message: bytes, text: bytes, service: str | None, host: str | None, time_ns: float | None
) -> None:
    record = read(message)
    assert record.text == text
    assert (record.labels.get("service"), record.labels.get("host")) == (service, host)
    expected = None if time_ns is None else NEW_YEAR_NS + int(time_ns * 10**9)
    assert record.time_ns == expected


def test_a_parameter_that_stands_again_has_a_list_of_values() -> None:
    """Also one that stands as often as a datagram holds: each is looked at once."""
    parameters = b' ip="a" port="1"' + b' ip="b"' * 9000
    record = read(b"<165>1 - host app - - [origin%b] x" % parameters)
    attributes = json.loads(record.attributes)
    assert attributes["origin.port"] == "1"
    assert attributes["origin.ip"] == ["a", *["b"] * 9000]


def test_rfc_3164_has_the_zone_that_is_set() -> None:
    record = read(b"<13>Jan  1 02:00:00 web app: x", offset_s=7200)
    assert record.time_ns == NEW_YEAR_NS


@pytest.mark.parametrize("message", [b"", b"hello", b"<999>x", b"<192>1 - - - - - -", b"\xff\0"])
def test_another_message_is_kept_as_it_came(message: bytes) -> None:
    record = read(message)
    assert (record.text, record.labels) == (message, {"malformed": "syslog"})


@given(st.binary(), st.sampled_from([b"", b"<34>", b"<34>1 ", b"<34>1 - h a p m [", b"<1>Jan  1 "]))
def test_any_bytes_are_a_record(message: bytes, head: bytes) -> None:
    record = read(head + message)
    assert (head + message).endswith(record.text)


MESSAGES = st.lists(st.binary(min_size=1).map(lambda data: b"<1>" + data.replace(b"\n", b" ")))


@given(MESSAGES, st.booleans(), st.lists(st.integers(1, 40)))
def test_frames_come_out_however_they_are_cut(
    messages: list[bytes], is_counted: bool, cuts: list[int]
) -> None:
    sent = b"".join(b"%d %b" % (len(one), one) if is_counted else one + b"\n" for one in messages)
    framer, at = Framer(), 0
    found: list[object] = []
    for size in [*cuts, max(1, len(sent))]:
        found += framer.feed(sent[at : at + size])
        at += size
    found += framer.end()
    assert found == messages


def test_a_line_feed_that_ends_a_counted_message_is_no_part_of_it() -> None:
    assert list(Framer().feed(b"6 <1>ab\n7 <1>a\nb\n")) == [b"<1>ab", b"<1>a\nb"]


def test_many_messages_of_one_chunk_come_in_order() -> None:
    messages = [b"<1>%d" % number for number in range(50_000)]
    assert list(Framer().feed(b"\n".join([*messages, b""]))) == messages


def test_a_message_without_a_line_end_ends_with_the_connection() -> None:
    framer = Framer()
    assert list(framer.feed(b"<1>a\n<1>b")) == [b"<1>a"]
    assert list(framer.end()) == [b"<1>b"]


@pytest.mark.parametrize("is_counted", [True, False])
def test_a_long_message_costs_itself(is_counted: bool) -> None:
    size, framer = MAX_MESSAGE_BYTES + 10, Framer()
    data = b"%d " % size + bytes(size) if is_counted else b"<1>" + bytes(size) + b"\n"
    data += b"5 <1>ab" if is_counted else b"<1>ab\n"
    found = [one for at in range(0, len(data), 4096) for one in framer.feed(data[at : at + 4096])]
    assert [isinstance(one, TextTooLarge) for one in found] == [True, False]
    assert found[1] == b"<1>ab"

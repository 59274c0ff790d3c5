"""Facts about strict JSON."""

from __future__ import annotations

import json
import math
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import Request
from starlette.types import Message

from verso_core.errors import RequestInvalid, VectorInvalid
from verso_core.jobs.documents import ListRequest
from verso_core.jobs.filters.compiled import matches
from verso_gateway.bodies import reading
from verso_gateway.bodies.reading import encodable, find_surrogate, parse, vector_bytes

_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(), inner, max_size=5),
    max_leaves=20,
)  # fmt: skip


@given(_VALUES)
def test_json_comes_back_as_it_was(value: object) -> None:
    assert parse(json.dumps(value).encode()) == value
    assert parse(json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")) == value


@given(st.binary())
def test_arbitrary_bytes_are_a_value_or_a_clear_error(data: bytes) -> None:
    try:
        parse(data)
    except RequestInvalid as error:
        assert error.detail  # noqa: PT017 - either outcome is right


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[NaN]",
        b"[Infinity]",
        b"[-Infinity]",
        b"[1e999]",
        b"[-1e999]",
        b'{"a": 1, "a": 2}',
        b'{"a": {"b": 1, "b": 1}}',
        b"[" * 100_000,
        b"9" * 5000,
        b'"\xff"',
        "{}".encode("utf-16"),
        b"\xef\xbb\xbf{}",
    ],
    ids=lambda data: repr(data[:16]),
)
def test_what_is_not_strict_json_is_refused(data: bytes) -> None:
    with pytest.raises(RequestInvalid):
        parse(data)


@pytest.mark.parametrize("data", [b'"\\ud800"', b'"\xed\xa0\x80"'])
def test_a_lone_surrogate_passes_to_be_judged_with_its_text(data: bytes) -> None:
    assert parse(data) == "\ud800"
    assert not encodable("\ud800")


@pytest.mark.parametrize(
    ("value", "pointer"),
    [
        ({"a": "b", "c": [1, "d"]}, None),
        ({"a": "\ud800"}, "/a"),
        ({"a/~": [{"b": 1}, {"c": "\ud800"}]}, "/a~1~0/1/c"),
        ({"a": {"\ud800": 1}}, "/a"),
    ],
)
def test_a_lone_surrogate_is_found_wherever_it_hides(value: object, pointer: str | None) -> None:
    assert find_surrogate(value) == pointer


def test_a_surrogate_pair_is_one_character() -> None:
    assert parse(b'"\\ud83d\\ude00"') == "\N{GRINNING FACE}"


@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False)))
def test_float32_numbers_come_back_as_they_were(values: list[float]) -> None:
    data = vector_bytes(values)
    assert list(struct.unpack(f"<{len(values)}f", data)) == values


def test_bytes_of_a_vector_are_little_endian() -> None:
    assert vector_bytes([1.0]) == bytes.fromhex("0000803f")


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e39])
def test_numbers_that_are_no_finite_float32_are_refused(value: float) -> None:
    with pytest.raises(VectorInvalid):
        vector_bytes([0.0, value])


def test_a_body_with_too_many_values_in_one_place_is_refused_unvalidated() -> None:
    most = [0] * reading.LONGEST_ARRAY
    assert reading.find_crowded({"a": [most, {"b": most}]}) is None
    assert reading.find_crowded({"a": [0, {"b/c": [*most, 0]}]}) == "/a/1/b~1c"
    assert reading.find_crowded({"a": dict.fromkeys(range(reading.LONGEST_ARRAY + 1))}) == "/a"


async def test_a_body_with_too_many_values_is_refused_before_it_is_parsed() -> None:
    few = b'{"a": [[1,2],"' + b"," * reading.MOST_VALUES + b'\\",","b"]}'
    assert "b" in (await reading.read_object(_json_request(few)))["a"]
    arrays = b",".join([b"[" + b",".join([b"1"] * 100) + b"]"] * (reading.MOST_VALUES // 100 + 1))
    many = b'{"a": [' + arrays + b"]}"
    with pytest.raises(RequestInvalid, match="values in the body"):
        await reading.read_object(_json_request(many))
    assert await reading.read_object(_json_request(many), most_values=reading.MOST_LISTED)
    most = b'{"documents": [' + b"{}," * reading.MOST_LISTED + b"{}]}"
    with pytest.raises(RequestInvalid, match="values in the body"):
        await reading.read_object(_json_request(most), most_values=reading.MOST_LISTED)


@pytest.mark.parametrize("operator", ["eq", "ne"])
@pytest.mark.parametrize("value", [5.0, 2.0**53, -1e308])
async def test_a_number_of_a_filter_keeps_its_type(operator: str, value: float) -> None:
    body = {"filter": {"field": "n", operator: value}, "limit": 10.0}
    read = await reading.read(_json_request(json.dumps(body).encode()), ListRequest)
    assert matches(read.filter, metadata={"n": value}, time=None, id="a") == (operator == "eq")
    assert read.limit == 10


def _json_request(body: bytes) -> Request:
    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    headers = [(b"content-type", b"application/json")]
    return Request({"type": "http", "method": "POST", "headers": headers}, receive)

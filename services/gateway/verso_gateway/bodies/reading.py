"""Request bodies as Python values, read strictly (RFC 8259).

What the standard parser would accept is refused: NaN and infinities, a key that occurs twice in an
object, unlimited nesting. Lone surrogates are accepted, so that only the text that has them is
refused.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
import struct
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NoReturn, TypeVar

import orjson
from pydantic import BaseModel, ValidationError
from starlette.requests import Request

from verso_core.errors import RequestInvalid, TextNotEncodable, VectorInvalid
from verso_core.jobs.filters.bounds import oversize
from verso_gateway import problems

JSON = "application/json"
LARGE_BYTES = 64 * 1024
"""A larger body takes milliseconds to read."""
LONGEST_ARRAY = 8192
"""Most values in an array or object of a body, apart from the documents of an ingest."""
MOST_VALUES = 16 * LONGEST_ARRAY
"""Most values in a whole body, likewise."""
MOST_LISTED = 1 << 20
"""Most values in a body with documents or examples: five of each of as many documents as there may
be. A body of 16 MiB may have eight times as many, and hold the interpreter for a fifth of a second
or, as objects, take 300 MiB."""
_COUNTED_AT_ONCE = 1024
_VALUES = re.compile(
    rb'(?:[^",]*+(?:"(?:[^"\\]++|\\.)*+"?[^",]*+)*+,){%d}' % _COUNTED_AT_ONCE, re.DOTALL
)
"""So many values, each with its comma. A string without an end reaches to the end of the bytes, so
that no byte is looked at twice."""
# Two, however many bodies come at once: each thread keeps the memory of the largest it has read.
_READERS = ThreadPoolExecutor(2, thread_name_prefix="bodies")
Model = TypeVar("Model", bound=BaseModel)
Value = TypeVar("Value")


def media_type(request: Request) -> str:
    """Return the media type of the body, lower case, without parameters."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def parse(data: bytes) -> Any:
    """Return the JSON value in UTF-8 bytes.

    Raises:
        RequestInvalid: the bytes are not strict JSON.
    """
    try:
        # surrogatepass: a surrogate written as three raw bytes is treated like its \\u escape
        text = data.decode("utf-8", "surrogatepass")
        return _DECODER.decode(text)
    except UnicodeDecodeError as exc:
        raise RequestInvalid(f"expected UTF-8, got byte {data[exc.start]:#04x}") from exc
    except json.JSONDecodeError as exc:
        raise RequestInvalid(f"malformed JSON: {exc.msg} at character {exc.pos}") from exc
    except RecursionError as exc:
        raise RequestInvalid("malformed JSON: nested too deeply") from exc
    except ValueError as exc:  # an integer of thousands of digits
        raise RequestInvalid("malformed JSON: a number out of range") from exc


def parse_bounded(data: bytes, most_values: int, *, what: str = "the body") -> Any:
    """Parse JSON unless it has more values: as Python objects they take thirty times its bytes.

    Raises:
        RequestInvalid: it has, or the bytes are not strict JSON.
    """
    if has_values(data, most_values):
        raise RequestInvalid(f"expected <= {most_values} values in {what}")
    return parse(data)


def has_values(data: bytes, count: int) -> bool:
    """Whether JSON has so many values, to the next multiple of ``_COUNTED_AT_ONCE``."""
    if data.count(b",") < count:  # most bodies: texts have commas too, but fewer
        return False
    position = 0
    for _ in range(count // _COUNTED_AT_ONCE):
        found = _VALUES.match(data, position)
        if found is None:
            return False
        position = found.end()
    return True


def vector_bytes(values: Sequence[float]) -> bytes:
    """Return numbers as float32, little endian. Shape: (D,) -> 4 D bytes.

    Raises:
        VectorInvalid: a number is not finite, or outside the range of float32.
    """
    try:
        data = struct.pack(f"<{len(values)}f", *values)
    except (OverflowError, struct.error) as exc:
        raise VectorInvalid("expected numbers within the range of float32") from exc
    if not all(map(math.isfinite, values)):
        raise VectorInvalid("expected finite numbers, got NaN or infinity")
    return data


async def off_loop(size: int, work: Callable[[], Value], *, above: int = LARGE_BYTES) -> Value:
    """Run work whose time grows with a size; for a large one in a thread, so that none waits.

    The interpreter lets the event loop run every few milliseconds meanwhile.
    """
    if size <= above:
        return work()
    return await asyncio.get_running_loop().run_in_executor(_READERS, work)


async def read_object(request: Request, *, most_values: int = MOST_VALUES) -> dict[str, Any]:
    """Return the body, a JSON object.

    Args:
        request: the request.
        most_values: most values in the body.

    Raises:
        RequestInvalid: the body has another media type, is malformed, has too many values, or is no
            object.
        BodyTooLarge: the body exceeds the limit.
    """
    if media_type(request) != JSON:
        raise RequestInvalid(f"expected Content-Type {JSON}, got '{media_type(request)}'")
    body = await request.body()
    value = await off_loop(len(body), partial(parse_bounded, body, most_values))
    if not isinstance(value, dict):
        raise RequestInvalid(f"expected a JSON object, got {type(value).__name__}")
    return value


async def read(request: Request, model: type[Model]) -> Model:
    """Return the body as its model.

    Raises:
        RequestInvalid, TextNotEncodable, BodyTooLarge: as :func:`read_object` and :func:`validate`.
    """
    return validate(request, await read_object(request), model=model)


def validate(request: Request, value: dict[str, Any], *, model: type[Model]) -> Model:
    """Return a body as its model.

    Raises:
        TextNotEncodable: a string holds a lone surrogate.
        RequestInvalid: the body does not fit the model.
            Either leaves a pointer to the fault in the request's state.
    """
    if (pointer := find_crowded(value)) is not None:
        request.state.pointer = pointer
        raise RequestInvalid(f"expected <= {LONGEST_ARRAY} values in {pointer!a}")
    if (pointer := find_surrogate(value)) is not None:
        request.state.pointer = pointer
        raise TextNotEncodable(f"lone surrogate in a string at {pointer!a}; send base64")
    if (passed := oversize(value.get("filter"))) is not None:
        place, expected = passed
        request.state.pointer = f"/filter{place}"
        raise RequestInvalid(f"/filter{place}: {expected}")
    try:
        return model.model_validate_json(_dumped(_integral(value)), strict=True)
    except ValidationError as exc:
        error, pointer = problems.from_validation(exc)
        request.state.pointer = pointer
        raise error from None  # the cause would quote the text


def _integral(value: dict[str, Any], *, depth: int = 2) -> dict[str, Any]:
    """Return an object whose numbers such as 10.0 are integers, as JSON has one type of number.

    The models' own fields are at most ``depth`` deep; metadata, whose types are kept, are deeper.
    So are a filter's values: an integer of 2**53 or more equals no float.
    """
    return {
        name: int(one)
        if isinstance(one, float) and one.is_integer()
        else _integral(one, depth=depth - 1)
        if isinstance(one, dict) and depth > 1 and name != "filter"
        else one
        for name, one in value.items()
    }


def _dumped(value: dict[str, Any]) -> bytes:
    """Return a value as JSON, in which pydantic's strict mode takes a string for an enum.

    On Python values that mode would refuse it, and without that mode "10" would be a number.
    """
    try:
        return orjson.dumps(value)
    except TypeError:  # an integer of more than 64 bits
        return json.dumps(value).encode("ascii")


def encodable(text: str) -> bool:
    """Whether a string names UTF-8 bytes, that is, holds no lone surrogate."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def find_crowded(value: object) -> str | None:
    """Return the pointer of an array or object with too many values, None without one.

    Validation keeps a copy of what it refuses for each form that the value might have had: hundreds
    of megabytes of a body of three.
    """
    open_values: list[tuple[str, object]] = [("", value)]
    while open_values:
        pointer, one = open_values.pop()
        rows: Iterable[tuple[object, object]]
        match one:
            case list():
                rows = enumerate(one)
            case dict():
                rows = one.items()
            case _:
                continue
        if len(one) > LONGEST_ARRAY:
            return pointer
        open_values += [
            (f"{pointer}/{problems.escaped(str(key))}", inner)
            for key, inner in rows
            if isinstance(inner, (list, dict))
        ]
    return None


def find_surrogate(value: object) -> str | None:
    """Return the pointer of a string (value or key) with a lone surrogate, None without one."""
    open_values: list[tuple[str, object]] = [("", value)]
    while open_values:  # no recursion: the value may be nested as deep as the parser allows
        pointer, one = open_values.pop()
        match one:
            case str() if not encodable(one):
                return pointer
            case list():
                # No pointers of values that can be told right at once: there may be a million.
                open_values += [
                    (f"{pointer}/{n}", inner)
                    for n, inner in enumerate(one)
                    if isinstance(inner, (list, dict))
                    or (isinstance(inner, str) and not encodable(inner))
                ]
            case dict():
                for key, inner in one.items():
                    if not encodable(key):
                        return pointer
                    open_values.append((f"{pointer}/{problems.escaped(key)}", inner))
    return None


def _refuse_constant(name: str) -> NoReturn:
    raise RequestInvalid(f"malformed JSON: {name} is not a number")


def _finite(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise RequestInvalid("malformed JSON: a number out of range")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise RequestInvalid("malformed JSON: a key stands twice in one object")
    return value


_DECODER = json.JSONDecoder(
    parse_constant=_refuse_constant, parse_float=_finite, object_pairs_hook=_unique
)

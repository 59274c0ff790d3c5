"""Request bodies as Python values, read strictly (RFC 8259).

What the standard parser would let pass is refused: NaN and infinities, a key that stands twice in
an object, nesting without end. Lone surrogates do pass, so that the one text that holds them can be
refused and its neighbours are not.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn, TypeVar

import orjson
from pydantic import BaseModel, ValidationError
from starlette.requests import Request

from verso_core.errors import RequestInvalid, TextNotEncodable
from verso_gateway import problems

JSON = "application/json"
LARGE_BYTES = 64 * 1024
"""A larger body takes milliseconds to read."""
Model = TypeVar("Model", bound=BaseModel)
Value = TypeVar("Value")


def media_type(request: Request) -> str:
    """Return the media type of the body, lower case, without parameters."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def parse(data: bytes) -> Any:
    """Read one JSON value from UTF-8 bytes.

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


async def off_loop(size_bytes: int, work: Callable[[], Value]) -> Value:
    """Do what takes time by the size of a body; a large one in a thread, where others do not wait.

    The interpreter gives the event loop its turn every few milliseconds meanwhile.
    """
    return work() if size_bytes <= LARGE_BYTES else await asyncio.to_thread(work)


async def read_object(request: Request) -> dict[str, Any]:
    """Read the body as a JSON object.

    Raises:
        RequestInvalid: another media type, malformed JSON, or no object.
        BodyTooLarge: it passes the limit.
    """
    if media_type(request) != JSON:
        raise RequestInvalid(f"expected Content-Type {JSON}, got '{media_type(request)}'")
    body = await request.body()
    value = await off_loop(len(body), partial(parse, body))
    if not isinstance(value, dict):
        raise RequestInvalid(f"expected a JSON object, got {type(value).__name__}")
    return value


def validate(request: Request, value: dict[str, Any], *, model: type[Model]) -> Model:
    """Check a body against its model.

    Raises:
        TextNotEncodable: a string holds a lone surrogate.
        RequestInvalid: the body does not fit the model.
            Either leaves a pointer to the fault in the request's state.
    """
    if (pointer := find_surrogate(value)) is not None:
        request.state.pointer = pointer
        raise TextNotEncodable(f"lone surrogate in a string at {pointer!a}; send base64")
    try:
        return model.model_validate_json(_dumped(_integral(value)), strict=True)
    except ValidationError as exc:
        error, pointer = problems.from_validation(exc)
        request.state.pointer = pointer
        raise error from None  # the cause would quote the text


def _integral(value: dict[str, Any], *, depth: int = 2) -> dict[str, Any]:
    """Return an object whose numbers such as 10.0 are integers, which JSON does not tell apart.

    So deep are the models' own fields; metadata, whose values keep their types, lie deeper.
    """
    return {
        name: int(one)
        if isinstance(one, float) and one.is_integer()
        else _integral(one, depth=depth - 1)
        if isinstance(one, dict) and depth > 1
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


def find_surrogate(value: object) -> str | None:
    """Return the pointer of a string (value or key) in ``value`` that names no bytes; else None."""
    open_values: list[tuple[str, object]] = [("", value)]
    while open_values:  # no recursion: the value may be nested as deep as the parser allows
        pointer, one = open_values.pop()
        match one:
            case str() if not encodable(one):
                return pointer
            case list():
                open_values += [(f"{pointer}/{n}", inner) for n, inner in enumerate(one)]
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

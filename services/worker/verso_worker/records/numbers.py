"""Numbers as the vector stores' engines give them back.

An engine keeps a payload as JSON and reads a number of it as its digits times a power of ten, in
float64. With more than fifteen digits that is rounded twice: of numbers with all their digits every
tenth comes back as the next one above or below, and a filter misses it. So a payload has only
numbers that come back as they were (:func:`kept_number`), and a number that does not beside them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

_MOST_TURNED = 6
"""Numbers of a payload of which the neighbours are tried."""


def kept_number(value: float) -> float:
    """Return the greatest number that an engine gives back as it was, and that is not above one.

    Nearly always it is the number itself, or the next one below.
    """
    while _given_back(value) != value:
        value = math.nextafter(value, -math.inf)
    return value


def alike(value: float) -> tuple[float, float]:
    """Return bounds of what an engine may hold for a number: the first one, and one above all.

    An earlier release gave it the number itself, which may come back as the one next to it.
    """
    low = kept_number(_stepped(value, -math.inf))
    high = above = _stepped(value, math.inf)
    while kept_number(above) <= high:
        above = math.nextafter(above, math.inf)
    return low, above


def neighbours(payload: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the payloads that an engine may have been given, if it gave back this one.

    Earlier releases gave engines numbers that do not come back as they were. Metadata that is kept
    as text as well was exact there, too.
    """
    metadata = payload.get("m") or {}
    names = [name for name, value in metadata.items() if isinstance(value, float)]
    time = payload.get("t")
    if len(names) >= _MOST_TURNED:
        return
    values = [metadata[name] for name in names] + ([] if time is None else [float(time)])
    for turned in product(*map(_around, values)):
        found = {**payload, "m": {**metadata, **dict(zip(names, turned, strict=False))}}
        yield found if time is None else {**found, "t": turned[-1]}


def _stepped(value: float, towards: float) -> float:
    """Return the number two steps away: it may be changed when it is put and when it is read."""
    return math.nextafter(math.nextafter(value, towards), towards)


def _around(value: float) -> tuple[float, float, float]:
    return value, math.nextafter(value, -math.inf), math.nextafter(value, math.inf)


def _given_back(value: float) -> float:
    """Return what an engine reads of the shortest digits of a number."""
    digits, _, exponent = repr(abs(value)).partition("e")
    whole, _, fraction = digits.partition(".")
    power = int(exponent or 0) - len(fraction)
    number = float(int(whole + fraction))
    if power < -308:
        number, power = number / 1e308, power + 308
    scale = float(f"1e{abs(power)}")
    return math.copysign(number * scale if power > 0 else number / scale, value)

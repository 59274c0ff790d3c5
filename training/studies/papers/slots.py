"""The least bits that a typed slot could take where a value stands.

Where a value of a known type stands (UUID, IPv4 address, time of day, date, seconds since 1970,
hexadecimal, whole number), the bytes' cost is replaced by the least that its type allows: digits at
log2(10), hexadecimal at 4 bits, an address at 32, a time at log2(86,400), a date at log2(366), and
a number close to one before it in the record at the bits of the difference. Nothing is charged for
saying that a slot is there, which type it has or how long it is: a real coder takes more.
"""

from __future__ import annotations

import math
import re

import numpy as np
from numpy.typing import NDArray

Costs = NDArray[np.float64]
"""Bits of each byte of a text. Shape: (bytes,)."""
_DAY_S, _YEAR_DAYS, _YEAR_S = 86_400, 366, 366 * 86_400

_SLOTS = re.compile(
    rb"(?P<uuid>[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})"
    rb"|(?P<address>\b\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}\b)"
    rb"|(?P<clock>\b\d\d:\d\d:\d\d\b)"
    rb"|(?P<date>\b\d{4}-\d\d-\d\d\b"
    rb"|\b(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) +\d{1,2}\b)"
    rb"|(?P<seconds>\b1[01]\d{8}\b)"
    rb"|(?P<hexadecimal>\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{6,}\b)"
    rb"|(?P<number>\d+)"
)
_FIXED = {
    "uuid": 122.0,
    "address": 32.0,
    "clock": math.log2(_DAY_S),
    "date": math.log2(_YEAR_DAYS),
    "seconds": math.log2(_YEAR_S),
}


def slotted(text: bytes, costs: Costs) -> tuple[float, float]:
    """Bits of a text with all slots at their type's least, and with those that gain by it."""
    always = either = float(costs.sum())
    before: list[int] = []
    for match in _SLOTS.finditer(text):
        found = float(costs[match.start() : match.end()].sum())
        least = _least(match, before)
        always += least - found
        either += min(least - found, 0.0)
    return always, either


def inside(text: bytes) -> NDArray[np.bool_]:
    """Return which bytes of a text stand in a slot. Shape: (bytes,)."""
    found = np.zeros(len(text), bool)
    for match in _SLOTS.finditer(text):
        found[match.start() : match.end()] = True
    return found


def _least(match: re.Match[bytes], before: list[int]) -> float:
    kind, value = str(match.lastgroup), match[0]
    if kind in _FIXED:
        return _FIXED[kind]
    if kind == "hexadecimal":
        return 4.0 * len(value)
    number = int(value)
    digits = len(value) * math.log2(10)
    near = min((abs(number - other) for other in before[-8:]), default=None)
    before.append(number)
    if near is None:
        return digits
    # Which of the eight numbers before, the sign, and the difference (Elias gamma).
    return min(digits, 4.0 + 2.0 * math.log2(near + 1) + 1.0)

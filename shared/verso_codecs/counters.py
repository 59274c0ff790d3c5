"""Counters of one byte: how often a decision went either way, the recent past counting most.

A state stands for (zeros, ones, last bit). Counting a bit adds one on its side, up to a bound that
is lower the more the other side holds; and what the other side holds beyond two shrinks to the
order of its logarithm, so that a decision which changed for good is soon believed (the
nonstationary states of PAQ6 and lpaq, Mahoney 2005 and 2007). State 0 means never seen.

The states are numbered in the order in which they are reached from state 0. The numbers are
part of the format of everything that was coded with them.
"""

from collections import deque

import numpy as np
from numpy.typing import NDArray

_BOUNDS = (40, 20, 10, 6, 5, 5)
"""Most that one side counts, by what the other side holds."""


def _following(state: tuple[int, int, int], bit: int) -> tuple[int, int, int]:
    counts = [state[0], state[1]]
    other = counts[1 - bit]
    if other > 2:
        other = other.bit_length()
    counts[1 - bit] = other
    counts[bit] = max(counts[bit], min(counts[bit] + 1, _BOUNDS[min(other, 5)]))
    counts[bit] = min(counts[bit], _BOUNDS[min(other, 5)])
    zeros, ones = counts
    return zeros, ones, bit if zeros and ones else 0


def _tables() -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    number = {(0, 0, 0): 0}
    queue = deque(number)
    following: list[tuple[int, int]] = []
    while queue:
        state = queue.popleft()
        pair = []
        for bit in (0, 1):
            reached = _following(state, bit)
            if reached not in number:
                number[reached] = len(number)
                queue.append(reached)
            pair.append(number[reached])
        following.append((pair[0], pair[1]))
    counts = np.array([state[:2] for state in number], np.int64)
    return np.array(following, np.uint8), counts


FOLLOWING, COUNTS = _tables()
"""The state after each bit, shape (states, 2), uint8; zeros and ones of a state, (states, 2)."""

STATE_COUNT = COUNTS.shape[0]

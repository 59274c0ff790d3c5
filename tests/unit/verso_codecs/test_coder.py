"""The coder gives decisions back, spends what they are worth, and survives any payload."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from verso_codecs import coder

CHANCES = st.one_of(st.integers(1, 65535), st.sampled_from([1, 2, 32768, 65534, 65535]))
DECISIONS = st.lists(st.tuples(st.integers(0, 1), CHANCES), max_size=400)


def decode(payload: bytes, chances: list[int]) -> tuple[list[int], int]:
    """Decode as many bits as there are chances; give them and the unread bytes."""
    state = np.zeros(coder.STATE_SIZE, np.int64)
    data = np.frombuffer(payload or b"\0", np.uint8)
    coder.open_payload(state, data, 0, len(payload))
    bits = [coder.decode_bit(state, data, chance) for chance in chances]
    return bits, coder.unread(state)


@settings(deadline=None)
@given(decisions=DECISIONS)
def test_decisions_come_back(decisions: list[tuple[int, int]]) -> None:
    bits = np.array([bit for bit, _ in decisions], np.uint8)
    chances = np.array([chance for _, chance in decisions], np.uint16)
    payload = coder.encode(bits, chances)
    assert decode(payload, [int(chance) for chance in chances]) == (list(bits), 0)
    assert not payload.endswith(b"\0")


def test_a_payload_costs_what_its_decisions_are_worth() -> None:
    rng = np.random.default_rng(1)
    chances = rng.integers(1, 65536, 100_000).astype(np.uint16)
    bits = (rng.random(100_000) * 65536 < chances).astype(np.uint8)
    ideal = coder.cost(bits, chances)
    assert ideal <= 8 * len(coder.encode(bits, chances)) <= 1.0005 * ideal + 16


def test_short_payloads_pad_less_than_half_a_byte_on_average() -> None:
    rng = np.random.default_rng(2)
    excess = []
    for _ in range(1000):
        chances = rng.integers(1, 65536, 40).astype(np.uint16)
        bits = (rng.random(40) * 65536 < chances).astype(np.uint8)
        excess.append(len(coder.encode(bits, chances)) - coder.cost(bits, chances) / 8)
    assert np.mean(excess) < 0.5


def test_improbable_bits_at_a_narrow_interval_do_not_overflow() -> None:
    chances = np.tile(np.array([1, 65535, 32768], np.uint16), 3000)
    bits = np.tile(np.array([1, 0, 0], np.uint8), 3000)
    assert decode(coder.encode(bits, chances), [int(c) for c in chances])[0] == list(bits)


@given(payload=st.binary(max_size=40), chances=st.lists(CHANCES, max_size=200))
def test_any_payload_decodes_to_something(payload: bytes, chances: list[int]) -> None:
    bits, unread = decode(payload, chances)
    assert set(bits) <= {0, 1}
    assert 0 <= unread <= len(payload)


def test_appended_bytes_are_noticed() -> None:
    bits, chances = np.ones(20, np.uint8), np.full(20, 30000, np.uint16)
    payload = coder.encode(bits, chances)
    assert decode(payload + b"\x01" * 8, [30000] * 20)[1] > 0


def test_probabilities_are_never_certain() -> None:
    assert list(coder.probability([0, 1, 2], 2)) == [1, 32768, 65535]

"""A sealed file shows every change of itself."""

from __future__ import annotations

import json

import pytest

from verso_core.manifest import UNSEALED, intact, seal

TEXT = seal(json.dumps({"digest": UNSEALED, "hashes": ["0" * 64, "f" * 64], "at": 1e-5}))


def test_what_was_sealed_is_intact() -> None:
    assert intact(TEXT.encode(), json.loads(TEXT)["digest"])


def test_every_flipped_bit_shows() -> None:
    """In the file with the digest that was read from it, and so in the digest as well."""
    digest = json.loads(TEXT)["digest"]
    for bit in range(8 * len(TEXT)):
        data = bytearray(TEXT.encode())
        data[bit // 8] ^= 1 << bit % 8
        try:
            read = json.loads(data)["digest"]
        except (ValueError, KeyError):
            continue
        assert not intact(bytes(data), read)
        assert read != digest or not intact(bytes(data), digest)


def test_a_file_without_a_digest_was_never_sealed() -> None:
    assert intact(b"{}", None)


@pytest.mark.parametrize("text", ["{}", UNSEALED + UNSEALED])
def test_there_is_one_place_for_the_digest(text: str) -> None:
    with pytest.raises(ValueError, match="one place"):
        seal(text)

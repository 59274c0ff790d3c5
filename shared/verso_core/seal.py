"""The seal of a JSON file: a digest that it holds of all its other bytes.

A file that names the hashes of others must not be trusted blindly itself. Its ``digest`` is the
SHA-256 of the file with :data:`UNSEALED` in the digest's place, so that whatever byte changes
shows, white space and the digest included. It tells damage from intact, not friend from foe: who
can write the file can seal it anew.
"""

from __future__ import annotations

import hashlib

UNSEALED = "5ea1" * 16
"""What stands in the place of a digest until the text is sealed."""


def seal(text: str) -> str:
    """Put the digest into a text in which :data:`UNSEALED` stands once."""
    if text.count(UNSEALED) != 1:
        raise ValueError("expected one place for a digest")
    return text.replace(UNSEALED, _digest(text.encode()))


def intact(data: bytes, digest: str | None) -> bool:
    """Whether a file is as it was sealed; one that has no digest never was."""
    return digest is None or _digest(data.replace(digest.encode(), UNSEALED.encode(), 1)) == digest


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()

"""Time-ordered ids for documents whose sender gave none.

An id is a UUID of version 7 (RFC 9562, section 5.7) as 32 hexadecimal digits: the milliseconds at
which its request arrived, then random bits. The ids of one request follow each other, so they are
in the order of its documents (section 6.2, method 2).

Nothing of the content enters an id, so equal texts stay documents of their own.

Documents that go to several ledgers get other ids if their request has an idempotency key: each
follows from the key, the place in the request and the text. If one ledger refuses its part, the
whole request is sent again, and what another one took in is written again, not beside.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Callable, Iterator
from itertools import count

_VERSION = 7 << 76
_VARIANT = 2 << 62
_LOW_BITS = 62
_SPARE = 1 << (_LOW_BITS - 1)
"""The last 62 bits start in their lower half, so that no request of any size overflows them."""


def new_ids() -> Iterator[str]:
    """Yield the ids of one request, growing, without end."""
    milliseconds, random_a = time.time_ns() // 1_000_000, secrets.randbits(12)
    first = milliseconds << 80 | _VERSION | random_a << 64 | _VARIANT | secrets.randbelow(_SPARE)
    return (f"{number:032x}" for number in count(first))


NewId = Callable[[bytes], str]
"""Returns the id of the next document without one; the text is given."""


def ids_in_order() -> NewId:
    """Return what gives the ids of one request, whatever its texts."""
    ids = new_ids()
    return lambda _: next(ids)


def ids_of_key(tenant: str, idempotency_key: str) -> NewId:
    """Return what gives the same ids for the same request."""
    places = count()
    key = hashlib.blake2b(f"{tenant}\n{idempotency_key}".encode(), digest_size=32).digest()

    def new_id(text: bytes) -> str:
        made = hashlib.blake2b(f"{next(places)}\n".encode(), key=key, digest_size=16)
        made.update(text)
        return made.hexdigest()

    return new_id

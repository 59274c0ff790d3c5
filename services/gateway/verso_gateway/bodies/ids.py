"""Time-ordered ids for documents whose sender gave none.

An id has 20 digits of base 62, since each of its bytes is kept with the document. They are a number
of 117 bits: the milliseconds since 1970 at which its request arrived (43 bits, until 2248), then 74
random bits, as many as a UUID of version 7 has (RFC 9562, section 5.7). The ids of one request
follow each other, so they are in the order of its documents, by bytes as well (section 6.2, method
2).

Nothing of the content enters an id, so equal texts stay documents of their own.

Documents that go to several ledgers get other ids if their request has an idempotency key: each
follows from the key, the place in the request and the text. If one ledger refuses its part, the
whole request is sent again, and what another one took in is written again, not beside.
"""

from __future__ import annotations

import hashlib
import secrets
import string
import time
from collections.abc import Callable, Iterator
from itertools import count

ID_CHARACTERS = 20
_DIGITS = string.digits + string.ascii_uppercase + string.ascii_lowercase  # as bytes are ordered
_RANDOM_BITS = 74
_SPARE = 1 << (_RANDOM_BITS - 1)
"""Random bits start in their lower half, so that no request of any size overflows them."""


def new_ids() -> Iterator[str]:
    """Yield the ids of one request, growing, without end."""
    milliseconds = time.time_ns() // 1_000_000
    first = milliseconds << _RANDOM_BITS | secrets.randbelow(_SPARE)
    return map(_written, count(first))


NewId = Callable[[bytes], str]
"""Returns the id of the next document without one; the text is given."""


def ids_in_order() -> NewId:
    """Return what gives the ids of one request, whatever its texts."""
    ids = new_ids()
    return lambda _: next(ids)


def ids_of_key(tenant: str, idempotency_key: str) -> NewId:
    """Return what gives the same ids for the same request, each 32 hexadecimal digits.

    Other ids would be in other partitions: a request that an earlier release has accepted, in whole
    or in part, would not be known when it is sent again.
    """
    places = count()
    key = hashlib.blake2b(f"{tenant}\n{idempotency_key}".encode(), digest_size=32).digest()

    def new_id(text: bytes) -> str:
        made = hashlib.blake2b(f"{next(places)}\n".encode(), key=key, digest_size=16)
        made.update(text)
        return made.hexdigest()

    return new_id


def _written(number: int) -> str:
    """Return a number of up to 117 bits as the digits of an id."""
    digits = []
    for _ in range(ID_CHARACTERS):
        number, digit = divmod(number, len(_DIGITS))
        digits.append(_DIGITS[digit])
    return "".join(reversed(digits))

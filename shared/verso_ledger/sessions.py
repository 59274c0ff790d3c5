"""Sessions of browsers: the hash of each one's token, and of the API key that it stands for."""

from __future__ import annotations

from typing import cast

from redis.asyncio import Redis

from verso_ledger.connection import translated
from verso_ledger.keys import key


class Sessions:
    """Sessions, which expire by themselves.

    Every method raises LedgerUnavailable when Redis does not answer or refuses.
    """

    def __init__(self, client: Redis) -> None:
        self._redis = client

    async def put(self, token_hash: str, digest: bytes, *, lasts_s: int) -> None:
        """Keep a session for ``lasts_s`` seconds; ``digest`` is the API key's."""
        with translated():
            await self._redis.set(key("session", token_hash), digest.hex(), ex=lasts_s)

    async def get(self, token_hash: str) -> bytes | None:
        """Return the digest of a session's API key; None of one that has ended."""
        with translated():
            found = cast("bytes | None", await self._redis.get(key("session", token_hash)))
        return None if found is None else bytes.fromhex(found.decode())

    async def drop(self, token_hash: str) -> None:
        """End a session."""
        with translated():
            await self._redis.delete(key("session", token_hash))

"""The ledger's steps: Lua files beside this module, which the server runs whole or not at all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from functools import cache
from importlib.resources import files
from typing import Any

import redis
from redis.asyncio import Redis

from verso_core import tracing
from verso_ledger.codec import Arg
from verso_ledger.connection import translated
from verso_ledger.keys import lua_table
from verso_ledger.models import Policy

_MAY_GROW = frozenset({"accept", "collection_put", "generation_add", "reserve", "stage"})
"""Steps that are refused once the server's memory is full; all others only let work finish."""

SHARED = ("prelude", "entries", "segments")
"""Files that stand before every step."""


class Scripts:
    """Runs the ledger's steps by name over a blocking client; safe from any thread.

    Args:
        client: the connection to Redis.
        policy: the numbers the steps go by; every process on one ledger uses the same.
    """

    def __init__(self, client: redis.Redis, policy: Policy | None = None) -> None:
        self.client = client
        self.policy = policy or Policy()
        self._scripts: dict[str, Any] = {}

    def run(self, step: str, args: Sequence[Arg]) -> Any:
        """Run a step and return its reply.

        Raises:
            LedgerUnavailable: Redis did not answer or refused.
        """
        with tracing.inner(f"ledger {step}"), translated():
            return self.prepared(step)(args=args)

    def prepared(self, step: str) -> Any:
        """Return a step as redis-py's script object, for pipelines."""
        if step not in self._scripts:
            self._scripts[step] = self.client.register_script(source(step, self.policy))
        return self._scripts[step]


class AsyncScripts:
    """Runs the ledger's steps by name over an asynchronous client."""

    def __init__(self, client: Redis, policy: Policy | None = None) -> None:
        self._client = client
        self._policy = policy or Policy()
        self._scripts: dict[str, Any] = {}

    async def run(self, step: str, args: Sequence[Arg]) -> Any:
        """Run a step and return its reply.

        Raises:
            LedgerUnavailable: Redis did not answer or refused.
        """
        if step not in self._scripts:
            self._scripts[step] = self._client.register_script(source(step, self._policy))
        with translated():
            return await self._scripts[step](args=args)


@cache
def source(step: str, policy: Policy) -> str:
    """Return the whole text of one step: header, shared files, body.

    A script with the ``allow-oom`` flag runs above ``maxmemory`` too: a full ledger must be able to
    finish the work it holds, or it would stay full.
    """
    flags = "" if step in _MAY_GROW else " flags=allow-oom"
    folder = files(__package__) / "lua"
    parts = [(folder / f"{name}.lua").read_text(encoding="utf-8") for name in (*SHARED, step)]
    return f"#!lua{flags}\n{lua_table()}{_policy_table(policy)}" + "\n".join(parts)


def _policy_table(policy: Policy) -> str:
    rows = []
    for item in fields(policy):
        value = getattr(policy, item.name)
        text = "{" + ",".join(map(str, value)) + "}" if isinstance(value, tuple) else str(value)
        rows.append(f"{item.name}={text}")
    return "local P={" + ",".join(rows) + "}\n"

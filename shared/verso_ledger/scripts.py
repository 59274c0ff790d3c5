"""The ledger's steps: Lua files beside this module, which the server runs whole or not at all.

With replicas, a step that somebody relies on returns only when so many of them have it:

1. Step, a publication that nobody receives, and ``WAIT`` go to the server in one exchange.
2. ``WAIT`` waits for what its own connection wrote. A step that is repeated writes nothing the
   second time, although the first may not have reached a replica; the publication is replicated
   like a write, so ``WAIT`` then waits for all that was written before it.
3. If too few replicas answer in time, nothing was acknowledged: the step may be repeated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from functools import cache
from importlib.resources import files
from typing import Any

import redis
from redis.asyncio import Redis
from redis.exceptions import NoScriptError

from verso_core import tracing
from verso_core.errors import LedgerUnavailable
from verso_ledger.codec.scalars import Arg
from verso_ledger.connection import translated
from verso_ledger.keys import key, lua_table
from verso_ledger.models import Policy

_MAY_GROW = frozenset(
    {"accept", "collection_put", "generation_add", "move_put", "reserve", "stage"}
)
"""Steps that are refused once the server's memory is full; all others only let work finish."""

_UNCONFIRMED = frozenset(
    {
        *("count", "depths", "entry", "identities", "log_count", "note", "progress", "reap"),
        *("renew", "move_units", "move_digests", "move_open", "move_unmark", "move_waits"),
        *("position", "rolled"),
    }
)
"""Steps that read, or whose loss in a failover costs work and nothing else."""

_WAIT_MS = 1000
"""Time in which replicas confirm a step; below a gateway's patience with its ledger."""

SHARED = ("prelude", "entries", "segments")
"""Files that stand before every step."""


class Replicas:
    """Makes a pipeline's writes wait for replicas.

    Args:
        count: replicas that must have a write before it is acknowledged; 0 for none.
    """

    def __init__(self, count: int) -> None:
        self.count = count

    def ask(self, pipe: Any) -> None:
        """Add to a pipeline, after its writes, what waits for replicas."""
        if self.count:
            pipe.publish(key("replicated"), b"")
            pipe.execute_command("WAIT", self.count, _WAIT_MS)

    def check(self, replies: list[Any]) -> list[Any]:
        """Return the replies of a pipeline's own commands.

        Raises:
            LedgerUnavailable: too few replicas have its writes.
            ResponseError: the server has become a replica itself.
        """
        if not self.count:
            return replies
        *own, _, reached = replies
        if isinstance(reached, Exception):
            raise reached
        if int(reached) < self.count:
            raise LedgerUnavailable(f"expected {self.count} replicas to confirm, got {reached}")
        return own

    def awaited_by(self, step: str) -> bool:
        """Whether a step waits for replicas."""
        return self.count > 0 and step not in _UNCONFIRMED


class Scripts:
    """Runs the ledger's steps by name over a blocking client; safe from any thread.

    Args:
        client: the connection to Redis.
        policy: the numbers the steps go by; every process on one ledger uses the same.
        replicas: replicas that must have a step before it returns.
    """

    def __init__(
        self, client: redis.Redis, policy: Policy | None = None, *, replicas: int = 0
    ) -> None:
        self.client = client
        self.policy = policy or Policy()
        self.replicas = Replicas(replicas)
        self._scripts: dict[str, Any] = {}

    def run(self, step: str, args: Sequence[Arg]) -> Any:
        """Run a step and return its reply.

        Raises:
            LedgerUnavailable: Redis did not answer or refused, or too few replicas have the step.
        """
        with tracing.inner(f"ledger {step}"), translated():
            script = self.prepared(step)
            if not self.replicas.awaited_by(step):
                return script(args=args)
            try:
                return self._confirmed(script, args)
            except NoScriptError:
                self.client.script_load(script.script)
                return self._confirmed(script, args)

    def prepared(self, step: str) -> Any:
        """Return a step as redis-py's script object, for pipelines."""
        if step not in self._scripts:
            self._scripts[step] = self.client.register_script(source(step, self.policy))
        return self._scripts[step]

    def _confirmed(self, script: Any, args: Sequence[Arg]) -> Any:
        with self.client.pipeline(transaction=False) as pipe:
            pipe.evalsha(script.sha, 0, *args)
            self.replicas.ask(pipe)
            replies = pipe.execute(raise_on_error=False)
        return _reply(replies, self.replicas)


class AsyncScripts:
    """Runs the ledger's steps by name over an asynchronous client; ``replicas`` as in Scripts."""

    def __init__(self, client: Redis, policy: Policy | None = None, *, replicas: int = 0) -> None:
        self._client = client
        self._policy = policy or Policy()
        self.replicas = Replicas(replicas)
        self._scripts: dict[str, Any] = {}

    async def run(self, step: str, args: Sequence[Arg]) -> Any:
        """Run a step and return its reply.

        Raises:
            LedgerUnavailable: Redis did not answer or refused, or too few replicas have the step.
        """
        script = self._prepared(step)
        with translated():
            if not self.replicas.awaited_by(step):
                return await script(args=args)
            try:
                return await self._confirmed(script, args)
            except NoScriptError:
                await self._client.script_load(script.script)
                return await self._confirmed(script, args)

    async def run_each(self, step: str, calls: Sequence[Sequence[Arg]]) -> list[Any]:
        """Run a step with each of these arguments in one exchange, and return its replies.

        Other callers' steps may come between.

        Raises:
            LedgerUnavailable: Redis did not answer or refused one, or too few replicas have them.
        """
        script = self._prepared(step)
        with translated():
            try:
                return await self._exchanged(script, calls, waits=self.replicas.awaited_by(step))
            except NoScriptError:
                await self._client.script_load(script.script)
                return await self._exchanged(script, calls, waits=self.replicas.awaited_by(step))

    async def _exchanged(
        self, script: Any, calls: Sequence[Sequence[Arg]], *, waits: bool
    ) -> list[Any]:
        async with self._client.pipeline(transaction=False) as pipe:
            for args in calls:
                pipe.evalsha(script.sha, 0, *args)
            if waits:
                self.replicas.ask(pipe)
            replies = await pipe.execute(raise_on_error=False)
        if failed := [one for one in replies[: len(calls)] if isinstance(one, Exception)]:
            raise failed[0]
        return self.replicas.check(replies) if waits else replies

    def _prepared(self, step: str) -> Any:
        if step not in self._scripts:
            self._scripts[step] = self._client.register_script(source(step, self._policy))
        return self._scripts[step]

    async def _confirmed(self, script: Any, args: Sequence[Arg]) -> Any:
        async with self._client.pipeline(transaction=False) as pipe:
            pipe.evalsha(script.sha, 0, *args)
            self.replicas.ask(pipe)
            replies = await pipe.execute(raise_on_error=False)
        return _reply(replies, self.replicas)


def _reply(replies: list[Any], replicas: Replicas) -> Any:
    """Return a step's reply; a step that failed is not waited for."""
    if isinstance(replies[0], Exception):
        raise replies[0]
    return replicas.check(replies)[0]


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

"""Webhooks in the ledger: addresses that receive the ends of jobs, and the outbox of messages.

A message is written in the same step as the end of its job, so every end has exactly one. The
keeper sends it until the receiver has accepted it or the attempts are used up.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, cast

from redis.asyncio import Redis

from verso_core.errors import QueueFull, WebhookUnknown
from verso_core.webhooks import new_secret
from verso_ledger.codec import scalars
from verso_ledger.connection import translated
from verso_ledger.keys import key
from verso_ledger.scripts import AsyncScripts, Scripts

MAX_WEBHOOKS = 100
IN_FLIGHT = 2
"""Attempts in flight of one webhook."""
IN_FLIGHT_OF_TENANT = 4
"""Attempts in flight of one tenant's webhooks."""
OLD_SECRET_S = 24 * 3600
"""How long a secret before the present one signs as well, seconds."""
_OLDER = 8
"""Most secrets before the last two that sign as well."""


@dataclass(frozen=True, slots=True)
class Webhook:
    """An address that receives the ends of jobs.

    ``old_secret`` signs as well until ``old_until``, and so does each of ``older`` until its time:
    a rotation may be sent again whose answer was lost. Times are Unix seconds.
    """

    id: str
    url: str
    secret: str
    created: float
    old_secret: str | None = None
    old_until: float = 0.0
    older: tuple[tuple[str, float], ...] = ()

    def secrets(self, now: float) -> list[str]:
        """Return the secrets that are valid, the newest first."""
        return [self.secret, *(secret for secret, _ in self.before(now))]

    def before(self, now: float) -> tuple[tuple[str, float], ...]:
        """Return the secrets before the present one that sign as well, each with until when."""
        old = ((self.old_secret, self.old_until),) if self.old_secret else ()
        return tuple((secret, until) for secret, until in (*old, *self.older) if now < until)

    def dump(self) -> str:
        """Write it as it is stored, without a field of no use that earlier releases cannot read."""
        row = asdict(self)
        return json.dumps(row if self.older else _without_older(row), separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class Message:
    """The message of one job's end. ``attempts``: made so far. Times are Unix seconds."""

    token: str
    tenant: str
    webhook: Webhook
    job_id: str
    kind: str
    status: str
    ended: float
    created: float
    items: int
    n_ok: int
    n_err: int
    code: str
    detail: str
    attempts: int

    @property
    def id(self) -> str:
        """Name the message, the same at every attempt."""
        return f"msg_{self.job_id}_{round(self.ended * 1000)}"


class WebhookMessages:
    """The outbox of webhook messages, as the sender uses it."""

    def __init__(self, scripts: Scripts) -> None:
        self._run = scripts.run

    def take(
        self, n: int = 32, *, busy: Mapping[str, int] | None = None, lease_s: float = 60.0
    ) -> list[Message]:
        """Take messages that are due; one that is not reported on comes again.

        Of each webhook and each tenant no more are taken than it may have in flight; ``busy``
        counts those in flight already, by webhook and by tenant.
        """
        counts: list[scalars.Arg] = [part for row in (busy or {}).items() for part in row]
        args = [n, round(lease_s * 1000), IN_FLIGHT, IN_FLIGHT_OF_TENANT, *counts]
        return [_message(row) for row in self._run("hook_take", args)]

    def delivered(self, message: Message) -> None:
        """Report that the receiver accepted a message."""
        self._run("hook_done", [message.token])

    def failed(self, message: Message, reason: str, *, delay_s: float | None) -> None:
        """Report a failed attempt: the next is due after ``delay_s``; None gives the message up."""
        delay = -1 if delay_s is None else round(delay_s * 1000)
        self._run("hook_failed", [message.token, message.attempts, delay, reason[:200]])


class Webhooks:
    """A tenant's webhooks, as the gateway manages them."""

    def __init__(self, client: Redis, scripts: AsyncScripts) -> None:
        self._redis = client
        self._run = scripts.run
        self._replicas = scripts.replicas

    async def all(self, tenant: str) -> list[Webhook]:
        """Return a tenant's webhooks, the oldest first."""
        with translated():
            rows = await cast("Any", self._redis.hvals(key("webhooks", tenant)))
        return sorted((_webhook(row) for row in rows), key=lambda hook: (hook.created, hook.id))

    async def get(self, tenant: str, hook_id: str) -> Webhook:
        """Return a webhook.

        Raises:
            WebhookUnknown: the tenant has none of this id.
        """
        return _webhook(await self._stored(tenant, hook_id))

    async def add(self, tenant: str, url: str) -> Webhook:
        """Create a webhook.

        Raises:
            QueueFull: the tenant has as many as it may.
        """
        hook = Webhook(f"wh_{uuid.uuid4().hex}", url, new_secret(), time.time())
        if not await self._put(tenant, hook, expected=""):
            raise QueueFull(f"expected at most {MAX_WEBHOOKS} webhooks")
        return hook

    async def rotate(
        self,
        tenant: str,
        hook_id: str,
        *,
        first: Callable[[Webhook], Awaitable[None]] | None = None,
    ) -> Webhook:
        """Replace a webhook's secret; those before sign as well for a day.

        Args:
            tenant: whose it is.
            hook_id: its id.
            first: what is done with the new webhook before it is stored; if that fails, it is not.

        Raises:
            WebhookUnknown: the tenant has none of this id.
        """
        while True:
            stored = await self._stored(tenant, hook_id)
            old = _webhook(stored)
            now = time.time()
            new = replace(
                old,
                secret=new_secret(),
                old_secret=old.secret,
                old_until=now + OLD_SECRET_S,
                older=old.before(now)[:_OLDER],
            )
            if first is not None:
                await first(new)
            if await self._put(tenant, new, expected=stored):
                return new

    async def remove(self, tenant: str, hook_id: str) -> None:
        """Remove a webhook; its waiting messages are dropped.

        Raises:
            WebhookUnknown: the tenant has none of this id.
        """
        await self._stored(tenant, hook_id)
        await self.drop(tenant, hook_id)

    async def drop(self, tenant: str, hook_id: str) -> None:
        """Remove a webhook if there is one of this id."""
        with translated():
            async with self._redis.pipeline(transaction=False) as pipe:
                pipe.hdel(key("webhooks", tenant), hook_id)
                self._replicas.ask(pipe)
                self._replicas.check(await pipe.execute())

    async def copy(self, tenant: str, hook: Webhook) -> None:
        """Store a webhook as another ledger has it."""
        with translated():
            async with self._redis.pipeline(transaction=False) as pipe:
                pipe.hset(key("webhooks", tenant), hook.id, hook.dump())
                self._replicas.ask(pipe)
                self._replicas.check(await pipe.execute())

    async def replay(self, tenant: str, hook_id: str) -> int:
        """Grant messages that were given up new attempts; return their number.

        Raises:
            WebhookUnknown: the tenant has none of this id.
        """
        await self._stored(tenant, hook_id)
        return int(await self._run("hook_replay", [tenant, hook_id]))

    async def _put(self, tenant: str, hook: Webhook, *, expected: bytes | str) -> bool:
        args: list[scalars.Arg] = [tenant, hook.id, hook.dump(), expected, MAX_WEBHOOKS]
        return bool(await self._run("hook_put", args))

    async def _stored(self, tenant: str, hook_id: str) -> bytes:
        with translated():
            row = await cast("Any", self._redis.hget(key("webhooks", tenant), hook_id))
        if row is None:
            raise WebhookUnknown("expected the id of one of your webhooks")
        return cast("bytes", row)


def _webhook(row: bytes) -> Webhook:
    found = json.loads(row)
    older = ((secret, until) for secret, until in found.pop("older", ()))
    return Webhook(**found, older=tuple(older))


def _without_older(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != "older"}


def _message(row: Sequence[Any]) -> Message:
    values = [scalars.text(value) for value in row[3:]]
    job, st, at, kind, items, ok, err, made, code, detail, attempts = values
    return Message(
        token=scalars.text(row[0]),
        tenant=scalars.text(row[2]),
        webhook=_webhook(row[1]),
        job_id=job,
        kind=kind,
        status=st,
        ended=int(at) / 1000,
        created=int(made) / 1000,
        items=int(items),
        n_ok=int(ok),
        n_err=int(err),
        code=code,
        detail=detail,
        attempts=int(attempts),
    )

"""The webhooks of a tenant on all ledgers."""

from __future__ import annotations

from functools import partial

from verso_core.errors import LedgerUnavailable, WebhookUnknown
from verso_ledger.async_client import AsyncLedger
from verso_ledger.events.webhooks import Webhook
from verso_ledger.ledgers.router import Ledgers


class WebhooksOfAll:
    """A tenant's webhooks, which each ledger has: the end of a job is written with its messages.

    The home ledger says which there are. A change is made on the others first, so that a webhook
    that is listed is known to each of them.
    """

    def __init__(self, ledgers: Ledgers) -> None:
        self._ledgers = ledgers

    async def all(self, tenant: str) -> list[Webhook]:
        """Return a tenant's webhooks, the oldest first."""
        return await self._ledgers.home.webhooks.all(tenant)

    async def add(self, tenant: str, url: str) -> Webhook:
        """Create a webhook.

        Raises:
            QueueFull: the tenant has as many as it may.
            LedgerUnavailable: a ledger does not answer; no webhook is made.
        """
        if not self._ledgers.several:
            return await self._ledgers.home.webhooks.add(tenant, url)
        made = await self._ledgers.home.webhooks.add(tenant, url)
        try:
            await self._copy(tenant, made)
        except LedgerUnavailable:
            await self._ledgers.home.webhooks.remove(tenant, made.id)
            raise
        return made

    async def rotate(self, tenant: str, hook_id: str) -> Webhook:
        """Replace a webhook's secret; the old one signs as well for a day.

        Raises:
            WebhookUnknown: the tenant has none of this id.
            LedgerUnavailable: a ledger does not answer; the secret before signs still.
        """
        copied = partial(self._copy, tenant)
        return await self._ledgers.home.webhooks.rotate(tenant, hook_id, first=copied)

    async def remove(self, tenant: str, hook_id: str) -> None:
        """Remove a webhook; its waiting messages are dropped.

        Raises:
            WebhookUnknown: the tenant has none of this id.
            LedgerUnavailable: a ledger does not answer; the webhook is still listed.
        """
        for one in self._others:
            await one.webhooks.drop(tenant, hook_id)
        await self._ledgers.home.webhooks.remove(tenant, hook_id)

    async def replay(self, tenant: str, hook_id: str) -> int:
        """Grant messages that were given up new attempts; return their number.

        Raises:
            WebhookUnknown: the tenant has none of this id.
        """
        await self._ledgers.home.webhooks.get(tenant, hook_id)

        async def replayed(ledger: AsyncLedger) -> int:
            try:
                return await ledger.webhooks.replay(tenant, hook_id)
            except WebhookUnknown:  # it is older than this ledger, which no job has told of it
                return 0

        return sum((await self._ledgers.each(replayed)).values())

    @property
    def _others(self) -> list[AsyncLedger]:
        return self._ledgers.all[1:]

    async def _copy(self, tenant: str, hook: Webhook) -> None:
        for one in self._others:
            await one.webhooks.copy(tenant, hook)

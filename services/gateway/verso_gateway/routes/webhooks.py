"""``/v1/webhooks``: addresses that are notified of the ends of jobs that name them."""

from __future__ import annotations

from fastapi import Request
from starlette.responses import Response

from verso_core.jobs.job import WebhookList, WebhookReplayed, WebhookRequest, WebhookView
from verso_core.jobs.models import moment
from verso_core.webhooks import target_of
from verso_gateway import openapi, responses
from verso_gateway.access import guarded
from verso_gateway.bodies import reading
from verso_gateway.context import context_of
from verso_ledger import Webhook

router = guarded("webhooks")


@router.post(
    "/v1/webhooks",
    name="webhook_create",
    operation_id="createWebhook",
    status_code=201,
    responses=openapi.responses(WebhookView, status=201),
    openapi_extra=openapi.body(WebhookRequest),
)
async def create(request: Request) -> Response:
    """Create a webhook. Its secret is shown here and never again."""
    asked = await reading.read(request, WebhookRequest)
    context = context_of(request)
    target_of(asked.url, context.settings.webhook_networks)
    made = await context.webhooks.add(request.state.tenant, asked.url)
    return responses.json_response(_view(made, secret=True), status=201)


@router.get(
    "/v1/webhooks",
    name="webhooks",
    operation_id="listWebhooks",
    responses=openapi.responses(WebhookList),
)
async def listed(request: Request) -> Response:
    """List the caller's webhooks, without their secrets."""
    found = await context_of(request).webhooks.all(request.state.tenant)
    return responses.json_response(WebhookList(webhooks=tuple(map(_view, found))))


@router.delete(
    "/v1/webhooks/{webhook_id}",
    name="webhook_delete",
    operation_id="deleteWebhook",
    status_code=204,
)
async def delete(request: Request, webhook_id: str) -> Response:
    """Remove a webhook; messages that wait for it are dropped."""
    await context_of(request).webhooks.remove(request.state.tenant, webhook_id)
    return Response(status_code=204)


@router.post(
    "/v1/webhooks/{webhook_id}/rotate",
    name="webhook_rotate",
    operation_id="rotateWebhook",
    responses=openapi.responses(WebhookView),
)
async def rotate(request: Request, webhook_id: str) -> Response:
    """Replace a webhook's secret; for a day messages are signed with the old one as well."""
    hook = await context_of(request).webhooks.rotate(request.state.tenant, webhook_id)
    return responses.json_response(_view(hook, secret=True))


@router.post(
    "/v1/webhooks/{webhook_id}/replay",
    name="webhook_replay",
    operation_id="replayWebhook",
    responses=openapi.responses(WebhookReplayed),
)
async def replay(request: Request, webhook_id: str) -> Response:
    """Send failed messages again; they keep their ids."""
    count = await context_of(request).webhooks.replay(request.state.tenant, webhook_id)
    return responses.json_response(WebhookReplayed(messages=count))


def _view(hook: Webhook, *, secret: bool = False) -> WebhookView:
    shown = {"secret": hook.secret} if secret else {}
    return WebhookView(id=hook.id, url=hook.url, created=moment(hook.created), **shown)

"""Webhooks over HTTP: make, list, rotate, remove, name with a job."""

from __future__ import annotations

from collections.abc import Callable

import httpx2
import pytest
from tests.integration.verso_gateway.conftest import FakeWorker, Gateway, post

URL = "https://example.org/hook"


def test_a_webhook_is_made_listed_rotated_and_removed(
    client: httpx2.Client, worker: FakeWorker
) -> None:
    made = post(client, "/v1/webhooks", {"url": URL})
    assert made.status_code == 201
    hook = made.json()
    assert hook["secret"].startswith("whsec_")
    [listed] = client.get("/v1/webhooks").json()["webhooks"]
    assert listed == {key: hook[key] for key in ("id", "url", "created")}
    rotated = client.post(f"/v1/webhooks/{hook['id']}/rotate").json()
    assert rotated["secret"] not in ("", hook["secret"])
    placed = post(client, "/v1/embed", {"texts": ["a"]}, Verso_Webhook=hook["id"])
    assert placed.status_code == 200
    assert worker.ledger.maintenance.backlog().to_send == 1
    assert client.post(f"/v1/webhooks/{hook['id']}/replay").json() == {"messages": 0}
    assert client.delete(f"/v1/webhooks/{hook['id']}").status_code == 204
    gone = client.post(f"/v1/webhooks/{hook['id']}/rotate")
    assert (gone.status_code, gone.json()["code"]) == (404, "webhook_unknown")


@pytest.mark.parametrize("url", ["http://example.org/", "https://127.0.0.1/", "https://a:22/", 7])
def test_an_address_that_nothing_may_be_sent_to_is_refused(
    client: httpx2.Client, url: object
) -> None:
    answer = post(client, "/v1/webhooks", {"url": url})
    assert (answer.status_code, answer.json()["code"]) == (422, "request_invalid")


def test_a_job_that_names_no_webhook_of_its_tenant_is_not_accepted(client: httpx2.Client) -> None:
    answer = post(client, "/v1/embed", {"texts": ["a"]}, Verso_Webhook="wh_" + "0" * 32)
    assert (answer.status_code, answer.json()["code"]) == (404, "webhook_unknown")
    assert client.get("/v1/jobs").json()["jobs"] == []


def test_an_operator_opens_private_networks(
    valkey_url: str, start_gateway: Callable[..., Gateway]
) -> None:
    opened = start_gateway(valkey_url, webhook_allow="127.0.0.0/8").client
    assert post(opened, "/v1/webhooks", {"url": "http://127.0.0.1:9/"}).status_code == 201
    assert post(opened, "/v1/webhooks", {"url": "http://10.0.0.1:9/"}).status_code == 422

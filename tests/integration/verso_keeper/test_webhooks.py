"""Webhooks from a job's end to a real HTTP receiver."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import trustme
from tests.wire import Item, cut

from verso_core import webhooks
from verso_core.errors import WebhookUnknown
from verso_core.jobs import Kind, Queue
from verso_core.webhooks import networks
from verso_keeper.webhooks import NotSent, WebhookSender, post
from verso_ledger import AsyncLedger, Ledger, NewJob

LOOPBACK = networks("127.0.0.0/8")


@dataclass
class Receiver:
    """What came in, and what is answered: statuses in order, then 204.

    ``early``: statuses of the responses before each.
    """

    url: str
    answers: list[int] = field(default_factory=list)
    seen: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    pause_s: float = 0.0
    early: tuple[int, ...] = ()


@contextmanager
def receiving(tls: ssl.SSLContext | None = None) -> Iterator[Receiver]:
    """Listen on this machine, over TLS where a context is given."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            found.seen.append(({k.lower(): v for k, v in self.headers.items()}, body))
            status = found.answers.pop(0) if found.answers else 204
            try:
                for early in found.early:
                    self.send_response_only(early)
                    self.send_header("Link", "</style.css>; rel=preload")
                    self.end_headers()
                if found.pause_s:  # a byte now and then, so that no read ever waits for long
                    for byte in b"HTTP/1.1 204 No Content":
                        self.wfile.write(bytes([byte]))
                        self.wfile.flush()
                        time.sleep(found.pause_s)
                self.send_response(status)
                self.send_header("Location", found.url)
                self.send_header("Content-Length", "0")
                self.end_headers()
            except OSError:
                pass

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    server = Listener(("127.0.0.1", 0), Handler)
    where = f"127.0.0.1:{server.server_address[1]}"
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
        where = f"localhost:{server.server_address[1]}"
    found = Receiver(f"http{'s' if tls else ''}://{where}/hook?a=b")
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield found
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class Listener(ThreadingHTTPServer):
    """Says nothing of callers that turn away, as those must who do not trust a certificate."""

    def handle_error(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as found:
        yield found


@pytest.fixture
def ledger(valkey_url: str) -> Iterator[Ledger]:
    found = Ledger.from_url(valkey_url)
    yield found
    found.close()


@pytest.fixture
async def front(valkey_url: str) -> AsyncIterator[AsyncLedger]:
    found = AsyncLedger.from_url(valkey_url)
    yield found
    await found.close()


@pytest.fixture
def sender(ledger: Ledger) -> Iterator[WebhookSender]:
    found = WebhookSender(
        ledger.webhooks, allowed=LOOPBACK, delays_s=(0.0, 0.0), timeout_s=60.0, round_s=60.0
    )
    yield found
    found.close()


def ended_job(ledger: Ledger, hook: str | None, tenant: str = "default") -> str:
    """Have a job end that names a webhook."""
    slices = list(cut(Kind.EMBED, {}, [Item({}, b"secret text")]))
    job = NewJob(
        kind=Kind.EMBED, queue=Queue.INTERACTIVE, slices=slices, webhook=hook, tenant=tenant
    )
    job_id = ledger.jobs.accept(job).job_id
    [lease] = ledger.leases.claim(Queue.INTERACTIVE, owner="w")
    ledger.leases.commit(lease, b"r", ok=1, errors=0)
    return job_id


def told(ledger: Ledger, status: str) -> int:
    return ledger.maintenance.backlog().totals.get(f"hooks:{status}", 0)


async def test_the_end_of_a_job_is_told_once_and_signed(
    ledger: Ledger, front: AsyncLedger, sender: WebhookSender, receiver: Receiver
) -> None:
    hook = await front.webhooks.add("default", receiver.url)
    job = ended_job(ledger, hook.id)
    ended_job(ledger, None)
    assert ledger.maintenance.backlog().to_send == 1
    assert (sender.step(), sender.step()) == (1, 0)
    [(headers, body)] = receiver.seen
    message_id, stamp = headers["webhook-id"], int(headers["webhook-timestamp"])
    assert headers["webhook-signature"] == webhooks.sign(
        hook.secret, body, message_id=message_id, timestamp=stamp
    )
    assert abs(stamp - time.time()) < 60
    content = json.loads(body)
    assert (content["type"], content["data"]["id"]) == ("job.succeeded", job)
    assert (content["data"]["ok"], content["data"]["error"]) == (1, None)
    assert b"secret text" not in body
    assert ledger.maintenance.backlog().to_send == 0
    assert told(ledger, "sent") == 1


async def test_a_failed_attempt_is_made_again_with_the_same_id_then_given_up_then_replayed(
    ledger: Ledger, front: AsyncLedger, sender: WebhookSender, receiver: Receiver
) -> None:
    hook = await front.webhooks.add("default", receiver.url)
    ended_job(ledger, hook.id)
    receiver.answers = [500, 302, 429]  # a redirect is not followed
    for _ in range(3):
        assert sender.step() == 1
        await asyncio.sleep(0.01)
    assert sender.step() == 0
    assert (told(ledger, "failed"), told(ledger, "dead")) == (3, 1)
    assert len(receiver.seen) == 3
    assert await front.webhooks.replay("default", hook.id) == 1
    assert sender.step() == 1
    assert len({headers["webhook-id"] for headers, _ in receiver.seen}) == 1
    assert told(ledger, "sent") == 1


async def test_responses_before_the_final_one_are_read_over(
    ledger: Ledger, front: AsyncLedger, sender: WebhookSender, receiver: Receiver
) -> None:
    hook = await front.webhooks.add("default", receiver.url)
    for early, answer in (((103,), 204), ((102, 100, 103), 200), ((103,), 500)):
        ended_job(ledger, hook.id)
        receiver.early, receiver.answers = early, [answer]
        assert sender.step() == 1
    assert (told(ledger, "sent"), told(ledger, "failed")) == (2, 1)


async def test_410_gives_a_message_up_at_once(
    ledger: Ledger, front: AsyncLedger, sender: WebhookSender, receiver: Receiver
) -> None:
    hook = await front.webhooks.add("default", receiver.url)
    ended_job(ledger, hook.id)
    receiver.answers = [410]
    sender.step()
    assert told(ledger, "dead") == 1


async def test_nothing_reaches_a_private_address_that_is_not_allowed(
    ledger: Ledger, front: AsyncLedger, receiver: Receiver
) -> None:
    """The name is judged by what it stands for when the message is sent."""
    port = receiver.url.rpartition(":")[2]
    for url in (receiver.url, f"https://localhost/{port}", "https://host.invalid/"):
        hook = await front.webhooks.add("default", url)
        ended_job(ledger, hook.id)
    careful = WebhookSender(ledger.webhooks, delays_s=(), timeout_s=1.0, round_s=60.0)
    assert careful.step() == 3
    careful.close()
    assert receiver.seen == []
    assert told(ledger, "dead") == 3


async def test_a_receiver_that_drips_is_cut_off(
    ledger: Ledger, front: AsyncLedger, receiver: Receiver
) -> None:
    sender = WebhookSender(
        ledger.webhooks, allowed=LOOPBACK, delays_s=(0.0, 0.0), timeout_s=1.0, round_s=60.0
    )
    hook = await front.webhooks.add("default", receiver.url)
    ended_job(ledger, hook.id)
    receiver.pause_s = 0.2  # 23 bytes take 4.6 s, and an attempt may take one
    sender.step()
    sender.close()
    assert told(ledger, "failed") == 1


async def test_a_secret_signs_for_a_day_though_its_rotation_is_sent_again(
    ledger: Ledger, front: AsyncLedger, sender: WebhookSender, receiver: Receiver
) -> None:
    first = await front.webhooks.add("default", receiver.url)
    lost = await front.webhooks.rotate("default", first.id)
    new = await front.webhooks.rotate("default", first.id)
    assert new == await front.webhooks.get("default", first.id)
    assert new.secrets(time.time()) == [new.secret, lost.secret, first.secret]
    assert new.secrets(lost.old_until) == [new.secret, lost.secret]
    assert new.secrets(new.old_until) == [new.secret]
    ended_job(ledger, first.id)
    sender.step()
    [(headers, _)] = receiver.seen
    assert len(headers["webhook-signature"].split(" ")) == 3
    for _ in range(20):
        new = await front.webhooks.rotate("default", first.id)
    assert len(new.secrets(time.time())) == 10


async def test_a_new_secret_signs_beside_the_old_one(
    ledger: Ledger, front: AsyncLedger, sender: WebhookSender, receiver: Receiver
) -> None:
    old = await front.webhooks.add("default", receiver.url)
    new = await front.webhooks.rotate("default", old.id)
    assert new.secret != old.secret
    assert new.secrets(new.old_until + 1) == [new.secret]
    ended_job(ledger, old.id)
    sender.step()
    [(headers, body)] = receiver.seen
    about = {"message_id": headers["webhook-id"], "timestamp": int(headers["webhook-timestamp"])}
    assert headers["webhook-signature"].split(" ") == [
        webhooks.sign(secret, body, **about)  # type: ignore[arg-type]
        for secret in (new.secret, old.secret)
    ]


async def test_what_was_to_be_told_goes_with_its_webhook(
    ledger: Ledger, front: AsyncLedger, sender: WebhookSender, receiver: Receiver
) -> None:
    hook = await front.webhooks.add("default", receiver.url)
    ended_job(ledger, hook.id)
    await front.webhooks.remove("default", hook.id)
    assert sender.step() == 0
    assert ledger.maintenance.backlog().to_send == 0
    with pytest.raises(WebhookUnknown):
        ended_job(ledger, hook.id)
    with pytest.raises(WebhookUnknown):
        await front.webhooks.rotate("default", hook.id)


async def test_a_message_that_was_being_sent_when_the_keeper_died_is_sent_again(
    ledger: Ledger, front: AsyncLedger, sender: WebhookSender, receiver: Receiver
) -> None:
    hook = await front.webhooks.add("default", receiver.url)
    ended_job(ledger, hook.id)
    assert len(ledger.webhooks.take(lease_s=0.01)) == 1
    await asyncio.sleep(0.02)
    assert sender.step() == 1
    assert len(receiver.seen) == 1


@pytest.mark.parametrize("flaw", [None, "unknown issuer", "another name", "expired", "plain"])
async def test_over_tls_only_a_certificate_of_the_name_is_spoken_to(
    ledger: Ledger,
    front: AsyncLedger,
    flaw: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The connection goes to an address that was looked up; the certificate must be the name's."""
    known, other = trustme.CA(), trustme.CA()
    known.cert_pem.write_to_path(tmp_path / "known.pem")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "known.pem"))
    issuer = other if flaw == "unknown issuer" else known
    name = "example.org" if flaw == "another name" else "localhost"
    until = datetime.now(UTC) + timedelta(days=-1 if flaw == "expired" else 1)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    issuer.issue_cert(name, not_after=until).configure_cert(tls)
    sender = WebhookSender(
        ledger.webhooks,
        allowed=networks("127.0.0.0/8, ::1"),
        delays_s=(),
        timeout_s=60.0,
        round_s=60.0,
    )
    with receiving(None if flaw == "plain" else tls) as receiver:
        url = receiver.url.replace("http://127.0.0.1", "https://localhost")
        hook = await front.webhooks.add("default", url)
        ended_job(ledger, hook.id)
        assert sender.step() == 1
        seen = list(receiver.seen)
    sender.close()
    if flaw is None:
        [(headers, body)] = seen
        assert headers["webhook-signature"] == webhooks.sign(
            hook.secret, body, message_id=headers["webhook-id"],
            timestamp=int(headers["webhook-timestamp"]),
        )  # fmt: skip
        assert told(ledger, "sent") == 1
    else:
        assert seen == []
        assert (told(ledger, "sent"), told(ledger, "dead")) == (0, 1)


@contextmanager
def silent() -> Iterator[tuple[str, socket.socket]]:
    """Take connections and never answer; yield the address, and the socket that listens."""
    with socket.create_server(("127.0.0.1", 0), backlog=512) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}/", server


def taken(server: socket.socket) -> int:
    """Return how many connections wait to be accepted, which closes them."""
    server.setblocking(False)
    count = 0
    with suppress(BlockingIOError):
        while True:
            server.accept()[0].close()
            count += 1
    return count


async def test_a_silent_receiver_does_not_delay_another_tenants_message(
    ledger: Ledger, front: AsyncLedger, receiver: Receiver
) -> None:
    """Neither by its attempts in flight nor by what waits in front."""
    sender = WebhookSender(ledger.webhooks, allowed=LOOPBACK, timeout_s=60.0, round_s=0.1)
    with silent() as (url, _):
        quiet = await front.webhooks.add("a", url)
        for _ in range(150):
            ended_job(ledger, quiet.id, tenant="a")
        prompt = await front.webhooks.add("b", receiver.url)
        ended_job(ledger, prompt.id, tenant="b")
        assert sender.step() == 3  # two of the silent one's, and the other's
        while not receiver.seen:
            sender.step()
        assert sender.step() == 0  # no third attempt beside the two in flight
        sender.close()


async def test_a_tenant_has_four_attempts_in_flight(ledger: Ledger, front: AsyncLedger) -> None:
    sender = WebhookSender(ledger.webhooks, allowed=LOOPBACK, timeout_s=60.0, round_s=0.1)
    with silent() as (url, _):
        for _ in range(5):
            hook = await front.webhooks.add("a", url)
            for _ in range(2):
                ended_job(ledger, hook.id, tenant="a")
        assert (sender.step(), sender.step()) == (4, 0)
        sender.close()


async def test_after_three_timeouts_attempts_fail_unmade(
    ledger: Ledger, front: AsyncLedger
) -> None:
    sender = WebhookSender(ledger.webhooks, allowed=LOOPBACK, timeout_s=2.0, round_s=60.0)
    with silent() as (url, server):
        hook = await front.webhooks.add("default", url)
        for _ in range(12):
            ended_job(ledger, hook.id)
        sender.step()
        sender.step()
        made = taken(server)
        while sender.step():
            pass
        assert (made, taken(server)) == (4, 0)
        assert told(ledger, "failed") == 12
        sender.close()


def test_a_name_that_is_not_resolved_in_time_ends_the_attempt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The resolver is the system's own, and its silence cannot be had for a test."""
    over = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: over.wait(120))
    target = webhooks.target_of("https://example.org/")
    with pytest.raises(NotSent, match="in time"):
        post(target, b"", headers={}, allowed=(), timeout_s=0.2)
    over.set()

"""Webhooks: signatures as the standard has them, and addresses that nothing is sent to."""

from __future__ import annotations

import ipaddress
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks import Webhook, WebhookVerificationError

from verso_core import webhooks
from verso_core.errors import RequestInvalid
from verso_core.webhooks import Target, networks, permitted, target_of

HTTPS = Target(tls=True, host="example.org", port=443, path="/")


def test_a_signature_is_that_of_the_standards_own_example() -> None:
    """The example of the reference libraries' test suites."""
    found = webhooks.sign(
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        b'{"test": 2432232314}',
        message_id="msg_p5jXN8AQM9LWM0D4loKWxJek",
        timestamp=1614265330,
    )
    assert found == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_every_valid_secret_signs() -> None:
    old, new = webhooks.new_secret(), webhooks.new_secret()
    assert old != new
    found = webhooks.headers([new, old], b"{}", message_id="m", timestamp=7)
    assert found["webhook-signature"].split(" ") == [
        webhooks.sign(secret, b"{}", message_id="m", timestamp=7) for secret in (new, old)
    ]
    assert (found["webhook-id"], found["webhook-timestamp"]) == ("m", "7")


@given(body=st.text(st.characters(codec="utf-8")), message_id=st.from_regex(r"msg_[0-9a-f]{8}"))
def test_the_standards_own_library_accepts_every_signature(body: str, message_id: str) -> None:
    secrets = [webhooks.new_secret(), webhooks.new_secret()]
    now = int(time.time())
    found = webhooks.headers(secrets, body.encode(), message_id=message_id.strip(), timestamp=now)
    for secret in secrets:  # while a secret is rotated, messages are signed with both
        Webhook(secret).verify(body, dict(found), json_parse=False)
    with pytest.raises(WebhookVerificationError):
        Webhook(secrets[0]).verify(body + "x", dict(found), json_parse=False)


def test_a_secret_that_is_none_is_refused() -> None:
    with pytest.raises(RequestInvalid):
        webhooks.sign("whsec_???", b"", message_id="m", timestamp=7)


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "127.1.2.3", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254",
     "100.64.0.1", "0.0.0.1", "255.255.255.255", "224.0.0.1", "192.0.2.1", "198.18.0.1",
     "240.0.0.1",
     "::", "::1", "fe80::1", "fc00::1", "fd12::1", "fec0::1", "ff02::1", "2001:db8::1",
     "::ffff:127.0.0.1", "::ffff:169.254.169.254", "::127.0.0.1", "64:ff9b::a9fe:a9fe",
     "64:ff9b::7f00:1", "64:ff9b:1::1", "2002:7f00:1::1", "2002:a00:1::", "2001:0:53aa:64c::1"],
)  # fmt: skip
def test_no_message_goes_to_an_address_that_is_not_public(address: str) -> None:
    assert not permitted(ipaddress.ip_address(address), HTTPS, ())


@pytest.mark.parametrize("address", ["93.184.216.34", "2606:2800:220:1::1", "64:ff9b::5db8:d822"])
def test_a_public_address_is_reached_by_tls_on_443_only(address: str) -> None:
    one = ipaddress.ip_address(address)
    assert permitted(one, HTTPS, ())
    assert not permitted(one, Target(tls=False, host="h", port=443, path="/"), ())
    assert not permitted(one, Target(tls=True, host="h", port=22, path="/"), ())


@given(st.ip_addresses(v=4))
def test_an_embedded_address_is_judged_as_what_it_embeds(inner: ipaddress.IPv4Address) -> None:
    for outer in (f"::ffff:{inner}", f"64:ff9b::{inner}"):
        assert permitted(ipaddress.ip_address(outer), HTTPS, ()) == permitted(inner, HTTPS, ())


def test_an_allowed_network_is_reached_in_any_way() -> None:
    allowed = networks("127.0.0.0/8, fd00::/8")
    plain = Target(tls=False, host="h", port=8080, path="/")
    assert permitted(ipaddress.ip_address("127.0.0.1"), plain, allowed)
    assert permitted(ipaddress.ip_address("fd00::1"), plain, allowed)
    assert not permitted(ipaddress.ip_address("10.0.0.1"), plain, allowed)
    assert target_of("http://127.0.0.1:8080/a?b=c", allowed).path == "/a?b=c"
    with pytest.raises(ValueError, match="x"):
        networks("x")


@pytest.mark.parametrize(
    "url",
    ["http://example.org/", "https://example.org:8443/", "ftp://example.org/", "https:///a", "x",
     "https://user@example.org/", "https://example.org/#a", "https://127.0.0.1/", "https://[::1]/",
     "https://[::ffff:10.0.0.1]/", "https://example.org/a b", "https://exämple.org/",
     "https://example.org:x/", "https://" + "a" * 2048, "https://[::1/"],
)  # fmt: skip
def test_an_address_that_leads_nowhere_good_is_refused_when_it_is_given(url: str) -> None:
    with pytest.raises(RequestInvalid):
        target_of(url)


def test_a_good_address_is_read() -> None:
    assert target_of("https://example.org/a?b=c") == Target(True, "example.org", 443, "/a?b=c")
    assert target_of("https://example.org").path == "/"

"""Stories of keys: sign in, be refused what the key does not allow, sign out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import BrowserContext, Page, expect
from tests.e2e.conftest import ARTIFACT
from tests.e2e.console.conftest import LOOKS, MAIL, Look, looked

from verso_client import Client, Document
from verso_core import api_keys
from verso_core.api_keys import Scope, mint

if TYPE_CHECKING:
    from tests.e2e.conftest import Platform


@pytest.fixture(scope="module")
def keys() -> dict[str, str]:
    """The secrets of the keys, by name."""
    return {}


@pytest.fixture(scope="module")
def guarded(
    new_platform: Callable[..., Platform],
    keys: dict[str, str],
    tmp_path_factory: pytest.TempPathFactory,
) -> Platform:
    """A platform that asks for keys."""
    path = tmp_path_factory.mktemp("keys") / "api-keys"
    for name, scope in (("reader", Scope.READ), ("sender", Scope.INGEST), ("chief", Scope.ADMIN)):
        keys[name], key = mint(name, scopes=[scope])
        api_keys.add(path, key)
    platform = new_platform()
    platform.artifact = ARTIFACT
    platform.options = ["--api-keys", str(path)]
    platform.start()
    with Client(platform.url, api_key=keys["chief"]) as client:
        client.create_collection("open")
        client.ingest([Document(MAIL, id="mail")])
    return platform


@pytest.fixture(params=LOOKS)
def look(
    guarded: Platform, new_context: Callable[..., BrowserContext], request: pytest.FixtureRequest
) -> Iterator[Look]:
    """A page before the platform that asks for keys."""
    width, theme = request.param
    found = looked(new_context(width, theme), guarded.url, width, theme)
    found.allow("401", "403")
    yield found
    found.check()


def sign_in(page: Page, secret: str) -> None:
    page.get_by_label("API key").fill(secret)
    page.get_by_role("button", name="Sign in").click()


def test_a_read_only_key_reads_and_is_refused_the_rest(look: Look, keys: dict[str, str]) -> None:
    page = look.open("/console/documents?collection=default")
    sign_in(page, "vk_wrong")
    expect(page.get_by_text("the API key is not known here")).to_be_visible()
    look.accessible()
    look.shot("sign-in")
    sign_in(page, keys["reader"])
    expect(page.get_by_role("link", name="mail")).to_be_visible()
    page.reload()  # the session is a cookie, which scripts cannot read
    expect(page.get_by_role("link", name="mail")).to_be_visible()
    assert page.evaluate("document.cookie") == ""
    refused = page.evaluate(
        "fetch('/v1/collections/default', {method: 'DELETE'}).then(a => a.json())"
    )
    assert refused["code"] == "forbidden"
    if look.width < 500:
        page.get_by_role("button", name="Menu").click()
    expect(page.get_by_text("reader")).to_be_visible()
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("heading", name="Sign in to Verso")).to_be_visible()


def test_a_page_that_a_key_does_not_allow_says_which_scope_is_missing(
    look: Look, keys: dict[str, str]
) -> None:
    page = look.open("/console")
    sign_in(page, keys["sender"])
    expect(page.get_by_text("Your key does not allow this")).to_be_visible()
    expect(page.locator("main")).to_contain_text(
        "It needs the scope read; the key sender has ingest"
    )
    look.accessible()
    look.shot("no-permission")

"""Stories of a reader: ask, find no answer, read the exact text, by keyboard, past a restart."""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable
from typing import TYPE_CHECKING
from urllib.parse import quote

import httpx2
import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect
from tests.e2e.console.conftest import DISKS, MAIL, TIMEOUT_MS, Look, looked, planes

from verso_client import Document

if TYPE_CHECKING:
    from pathlib import Path

    from tests.e2e.conftest import Platform

QUESTION = "When does the certificate of the mail server expire?"
FIRST_PAGE_BYTES = 150_000


def asked(question: str, collection: str = "notes", **more: str) -> str:
    rest = "".join(f"&{name}={quote(value)}" for name, value in more.items())
    return f"/console/search?q={quote(question)}&collection={collection}{rest}"


def ask(page: Page, question: str) -> None:
    field = page.get_by_role("searchbox")
    field.fill(question)
    field.press("Enter")


def test_a_question_is_answered_in_the_exact_text_of_its_source(look: Look) -> None:
    page = look.open("/console")
    expect(page.get_by_role("searchbox")).to_be_focused()
    page.get_by_label("Collection", exact=True).select_option("notes")
    look.accessible()
    look.shot("start")
    ask(page, QUESTION)
    answer = page.get_by_role("region", name="Answer", exact=True)
    expect(answer.locator(".answer-text")).to_have_text("3 May 2027")
    source = answer.locator("blockquote").first
    expect(source.locator("mark.answer").first).to_have_text("3 May 2027")
    expect(page.get_by_role("region", name="Passages")).to_contain_text(MAIL)
    look.accessible()
    look.shot("answer")
    expect(page).to_have_url(re.compile("q=When"))
    page.reload()  # the address is the whole state
    expect(page.locator(".answer-text")).to_have_text("3 May 2027")


def test_the_tutorial_ends_with_a_question_answered_in_the_browser(
    stage: Platform, new_context: Callable[..., BrowserContext]
) -> None:
    """With what the steps before have ingested; the page shows this picture."""
    with stage.client() as client:
        client.ingest([Document(MAIL, id="mail"), Document("a text of your own", id="mine")])
    look = looked(new_context(), stage.url)
    page = look.open("/console")
    page.get_by_label("Collection", exact=True).select_option("default")
    ask(page, "When does the certificate expire?")
    expect(page.locator(".answer-text")).to_have_text("3 May 2027")
    page.get_by_role("searchbox").blur()
    page.set_viewport_size({"width": 1200, "height": 600})
    look.shot("tutorial")
    page.locator(".answer-card .source").first.click()
    expect(page.locator("[data-exact] mark")).to_have_text("3 May 2027")
    look.check()


def test_no_answer_is_an_answer(look: Look) -> None:
    page = look.open(asked("Who won the football match in Madrid?"))
    card = page.get_by_role("region", name="No answer")
    expect(card).to_contain_text("None of the nearest passages answers this question")
    expect(page.get_by_role("region", name="Passages")).to_be_visible()
    look.accessible()
    look.shot("no-answer")


def test_the_exact_text_is_read_with_the_answer_marked(look: Look, tmp_path: Path) -> None:
    page = look.open(asked(QUESTION))
    page.locator(".answer-card .source").first.click()
    expect(page.locator("[data-exact] mark")).to_have_text("3 May 2027")
    assert page.locator("[data-exact]").evaluate("e => e.textContent") in (MAIL, planes())
    expect(page.get_by_text("exact, every byte checked")).to_be_visible()
    look.accessible()
    look.shot("document")


def test_what_the_vector_alone_says_stands_beside_the_exact_text(look: Look) -> None:
    page = look.open("/console/documents?collection=notes&id=mail&view=draft")
    guess, exact = (page.locator(".draft-columns pre").nth(n) for n in (0, 1))
    expect(exact).to_have_text(MAIL)
    expect(guess).not_to_have_text(MAIL)
    expect(page.get_by_text("each from those before it")).to_be_visible()
    expect(page.get_by_text("With the vector, which a search needs")).to_be_visible()
    look.accessible()
    look.shot("draft")


def test_what_looks_like_html_and_every_plane_is_shown_exactly(look: Look) -> None:
    text = planes()
    at = text.index("3 May 2027")
    place = f"&start={at}&end={at + len('3 May 2027')}"
    page = look.open(f"/console/documents?collection=notes&id=planes{place}")
    shown = page.locator("[data-exact]")
    expect(shown.locator("mark")).to_have_text("3 May 2027")
    assert shown.evaluate("e => e.textContent") == text
    assert page.title() == "planes · Verso"
    assert not page.locator("main script").count()
    look.accessible()
    look.shot("planes")


def test_bytes_that_are_no_text_are_shown_as_bytes_and_downloaded(look: Look) -> None:
    page = look.open("/console/documents?collection=notes&id=binary")
    page.get_by_role("button", name="Show the bytes").click()
    expect(page.locator("pre.bytes")).to_contain_text("00000010  10 11 12")
    look.accessible()
    with page.expect_download() as started:
        page.get_by_role("button", name="Download").click()
    assert started.value.path().read_bytes() == bytes(range(256))


def test_long_words_and_other_directions_leave_the_page_as_it_is(
    look: Look, stage: Platform
) -> None:
    metadata = {"k" * 90: "v" * 300, "\u202ehost": "a"}
    hebrew = "\u05d4\u05e1\u05d9\u05e1\u05de\u05d4 \u05e9\u05dc \u05d4\u05e0\u05ea\u05d1 1234"
    with stage.client() as client:
        client.create_collection("long")
        client.ingest([Document(hebrew, id="w" * 256, metadata=metadata)], collection="long")
    page = look.open(asked("w" * 10_000, "long", **{"as": "search"}))
    text = page.locator(".hit .exact")
    expect(text).to_have_text(hebrew)
    if look.width < 500:
        page.get_by_text("Narrow the search").click()
    expect(page.get_by_role("checkbox", name=re.compile("vvv"))).to_be_visible()
    assert text.evaluate("e => getComputedStyle(e).unicodeBidi") == "plaintext"
    fits = "() => document.documentElement.scrollWidth <= innerWidth"
    assert page.evaluate(fits)
    look.shot("long")
    page.locator(".hit-title").click()
    expect(page.locator("[data-exact]")).to_have_text(hebrew)
    assert page.evaluate(fits)
    look.shot("long-document")
    page.go_back()
    ask(page, "x" * 10_000)
    expect(page).to_have_url(re.compile("xxx"))
    ask(page, "")
    expect(page.get_by_role("heading", name="Asked before")).to_be_visible()
    assert page.evaluate(fits)
    look.shot("long-start")


def test_a_facet_narrows_the_search(look: Look) -> None:
    page = look.open(asked("who does what", **{"as": "search"}))
    if look.width < 500:
        page.get_by_text("Narrow the search").click()
    page.get_by_role("checkbox", name=re.compile("bert")).check()
    expect(page.get_by_role("region", name="Passages").locator("article")).to_have_count(1)
    expect(page.get_by_role("region", name="Passages")).to_contain_text(DISKS)
    expect(page.get_by_role("checkbox", name=re.compile("anna"))).to_be_visible()
    look.shot("facets")
    page.get_by_title("Remove this condition").click()
    expect(page.get_by_role("region", name="Passages").locator("article")).not_to_have_count(1)
    look.accessible()


def test_everything_works_by_keyboard(look: Look) -> None:
    page = look.open("/console/documents?collection=notes")
    expect(page.get_by_role("table")).to_be_visible()
    look.accessible()
    look.shot("documents")
    page.keyboard.press("g")
    page.keyboard.press("s")
    expect(page.get_by_role("searchbox")).to_be_focused()
    page.keyboard.type(QUESTION)
    page.keyboard.press("Enter")
    expect(page.locator(".answer-text")).to_have_text("3 May 2027")
    page.get_by_role("searchbox").blur()
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("k")
    page.keyboard.press("Enter")
    expect(page.locator("[data-exact]")).to_contain_text("3 May 2027")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keyboard")).to_be_visible()
    look.accessible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_every_request_is_shown_as_curl_and_as_python(look: Look) -> None:
    page = look.open(asked(QUESTION))
    expect(page.locator(".answer-text")).to_have_text("3 May 2027")
    page.get_by_role("button", name="API").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text(f"curl -sS \\\n  '{look.url}/v1/answer'", use_inner_text=True)
    dialog.get_by_role("tab", name="Python").first.click()
    expect(dialog).to_contain_text(f'client.answer("{QUESTION}", collection="notes"')
    look.accessible()
    look.shot("samples")


def test_states_have_pages_of_their_own(look: Look) -> None:
    look.allow("404")
    page = look.open("/console/documents?collection=notes&id=nothing")
    expect(page.get_by_text("There is no such document")).to_be_visible()
    look.accessible()
    page = look.open("/console/nowhere")
    expect(page.get_by_text("There is no such page")).to_be_visible()
    look.accessible()
    page = look.open(asked("anything", collection="nowhere"))
    expect(page.get_by_text("There is no collection “nowhere”")).to_be_visible()
    look.accessible()
    look.shot("no-collection")


def test_a_restart_of_the_gateway_is_survived(
    stage: Platform, new_context: Callable[..., BrowserContext]
) -> None:
    look = looked(new_context(), stage.url)
    look.allow_broken_connections()
    page = look.open(asked("When does the canteen open?"))
    expect(page.locator(".answer-text")).to_contain_text("noon")
    stage.kill("gateway")
    ask(page, QUESTION)
    expect(page.locator(".answer-text")).to_have_text("3 May 2027")
    expect(page.get_by_text("The platform does not answer")).to_have_count(0)
    look.check()


def test_the_theme_is_chosen_and_kept(
    stage: Platform, new_context: Callable[..., BrowserContext]
) -> None:
    look = looked(new_context(), stage.url)
    page = look.open("/console")
    light = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.get_by_role("radio", name="Dark").check(force=True)
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert dark != light
    page.reload()
    expect(page.get_by_role("searchbox")).to_be_visible()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == dark
    look.check()


def test_the_first_page_takes_at_most_150_kb_compressed(
    stage: Platform, new_context: Callable[..., BrowserContext]
) -> None:
    """Scripts, styles and HTML until the page is shown; figures are of the answers' bodies."""
    look = looked(new_context(), stage.url)
    look.open("/console")
    expect(look.page.get_by_role("searchbox")).to_be_visible()
    paths = {url.removeprefix(stage.url) for url in look.asked if "/console" in url}
    assert len(paths) > 10
    with httpx2.Client(
        base_url=stage.url, headers={"Accept-Encoding": "gzip"}, timeout=60
    ) as client:
        sizes = {}
        for path in paths:
            with client.stream("GET", path) as answer:
                assert answer.headers["content-encoding"] == "gzip"
                body = b"".join(answer.iter_raw())
            assert gzip.decompress(body)
            sizes[path] = len(body)
    assert sum(sizes.values()) <= FIRST_PAGE_BYTES, sizes


def test_an_outline_is_shown_before_any_script_has_run(stage: Platform, chromium: Browser) -> None:
    with chromium.new_context(java_script_enabled=False) as context:
        context.set_default_timeout(TIMEOUT_MS)
        page = context.new_page()
        page.goto(f"{stage.url}/console")
        expect(page.get_by_role("banner").get_by_text("Verso")).to_be_visible()
        expect(page.get_by_role("status")).to_contain_text("Loading")


@pytest.mark.parametrize("path", ["/console", "/console/search?q=a", "/console/no/such/page"])
def test_every_address_of_the_console_is_the_page_with_its_policy(
    stage: Platform, path: str
) -> None:
    with httpx2.Client(base_url=stage.url, timeout=60) as client:
        answer = client.get(path)
        assert (answer.status_code, answer.headers["content-type"][:9]) == (200, "text/html")
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert (
            client.get(path, headers={"If-None-Match": answer.headers["etag"]}).status_code == 304
        )
        [script] = re.findall(r'src="(/console/static/[^"]+/app/main.js)"', answer.text)
        module = client.get(script)
        assert "immutable" in module.headers["cache-control"]
        assert module.headers["x-content-type-options"] == "nosniff"
        old = re.sub(r"/static/\w+/", "/static/0123456789abcdef/", script)
        assert client.get(old).status_code == 404
        leads = client.get("/", headers={"Accept": "text/html"})
        assert (leads.status_code, leads.headers["location"]) == (303, "/console")

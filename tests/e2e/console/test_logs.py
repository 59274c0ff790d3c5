"""Stories of a reader of logs: what is new, what came around it, what comes now; 100,000 lines."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import BrowserContext, Page, expect
from tests.e2e.console.conftest import LOOKS, Look, looked
from tests.e2e.console.logs_sample import NEW, many_lines, send_day, send_line

from verso_core.jobs import CollectionKind
from verso_ledger import keys

if TYPE_CHECKING:
    from tests.e2e.conftest import Platform

MANY = 100_000
ROWS_IN_PAGE = 300
LOGS = "/console/logs?collection=web"
TWO_LOOKS = pytest.mark.parametrize("look", [LOOKS[0], LOOKS[-1]], indirect=True)


@pytest.fixture(scope="session")
def logs(stage: Platform) -> Platform:
    """The platform of the stories, with a day of lines."""
    with stage.client() as client:
        client.create_collection("web", kind=CollectionKind.LOGS)
        send_day(client, "web", end_s=time.time())
    return stage


@pytest.fixture
def log_look(logs: Platform, look: Look) -> Look:
    """A page before the platform that has lines."""
    return look


@pytest.fixture
def desktop(logs: Platform, new_context: Callable[..., BrowserContext]) -> Iterator[Look]:
    """A wide page before the platform that has lines."""
    found = looked(new_context(), logs.url)
    yield found
    found.check()


def rows(page: Page) -> int:
    return page.locator(".log-row").count()


def test_a_new_statement_is_found_and_read(log_look: Look) -> None:
    page = log_look.open(LOGS)
    expect(page.locator(".log-row").first).to_be_visible()
    expect(page.get_by_text("1,451 lines").first).to_be_visible()
    log_look.accessible()
    log_look.shot("logs")
    page.get_by_role("tab", name="Statements").click()
    table = page.get_by_role("table")
    expect(table).to_contain_text("placed for")
    log_look.accessible()
    log_look.shot("statements")
    page.get_by_label("Which statements").select_option("1h")
    expect(table.locator("tbody tr")).to_have_count(1)
    expect(table).to_contain_text("degraded")
    log_look.accessible()
    log_look.shot("new-statements")
    table.get_by_role("link").click()
    expect(page.locator(".log-row")).to_have_count(1)
    expect(page.locator(".log-text")).to_contain_text(NEW)
    page.reload()  # the address is the whole state
    expect(page.locator(".log-row")).to_have_count(1)
    expect(page.get_by_role("list", name="What is chosen")).to_contain_text("degraded")
    expect(page.locator(".bars-chart .series-1 rect")).to_have_count(1)
    log_look.shot("of-a-statement")


@TWO_LOOKS
def test_a_line_is_read_with_those_around_it(log_look: Look) -> None:
    page = log_look.open(f"{LOGS}&q=refused&where=service%3Dshop")
    expect(page.locator(".log-row mark").first).to_have_text("refused")
    expect(page.get_by_text("40 lines with the text")).to_be_visible()
    page.locator(".log-row").nth(5).click()
    dialog = page.get_by_role("dialog")
    expect(dialog.locator(".line-text mark")).to_have_text("refused")
    expect(dialog.locator(".line-around li")).to_have_count(11)
    expect(dialog.locator(".line-around li[aria-current]")).to_contain_text("refused")
    log_look.accessible()
    log_look.shot("line")
    statement = dialog.get_by_role("link", name="payment of order <*> was refused: card expired")
    expect(statement).to_be_visible()
    assert re.search(r"[?&]statement=\d+(&|$)", str(statement.get_attribute("href")))
    dialog.get_by_role("button", name="20 before and after").click()
    expect(dialog.locator(".line-around li")).to_have_count(41)
    dialog.locator(".line-around a").first.click()
    expect(dialog.locator(".line-around li").first).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(page).not_to_have_url(re.compile("line="))


@TWO_LOOKS
def test_a_log_collection_is_asked(log_look: Look) -> None:
    page = log_look.open("/console/search?collection=web&q=Which+array+is+degraded%3F")
    card = page.locator(".answer-card")
    expect(card.get_by_role("heading")).to_have_text("Answer")
    hits = page.get_by_role("region", name="Passages")
    expect(hits.get_by_text("raid: array").first).to_be_visible()
    log_look.accessible()
    log_look.shot("asked-logs")
    hits.locator(".hit-lines a").first.click()
    expect(page.get_by_role("dialog").locator(".line-text")).to_be_visible()


@TWO_LOOKS
def test_how_long_lines_are_kept_is_changed(log_look: Look, logs: Platform) -> None:
    page = log_look.open("/console/collections/web")
    field = page.get_by_label("Days kept")
    for days, kept in (("30", 30), ("", None)):
        field.fill(days)
        # The toast of the change before may still be there, so the answer is waited for.
        with page.expect_response(lambda answer: answer.request.method == "PATCH"):
            page.get_by_role("button", name="Save").click()
        expect(page.get_by_text("The settings are changed.").last).to_be_visible()
        expect(page.get_by_role("button", name="Save")).to_be_disabled()
        with logs.client() as client:
            assert client.stats("web").retention_days == kept


@TWO_LOOKS
def test_labels_narrow_what_is_seen(log_look: Look) -> None:
    page = log_look.open(LOGS)
    if log_look.width < 1000:
        page.get_by_role("button", name="Labels").click()
    labels = page.get_by_role("complementary", name="Labels")
    labels.get_by_role("button", name=re.compile("^warning")).click()
    expect(page.get_by_text("210 lines").first).to_be_visible()
    labels.get_by_role("button", name="Without service=auth").click()
    expect(page.get_by_text("90 lines").first).to_be_visible()
    expect(page.get_by_role("heading", name="90 lines")).to_be_visible()
    assert set(page.locator(".log-level").all_inner_texts()) == {"warning"}
    log_look.accessible()
    log_look.shot("labels")
    page.get_by_role("button", name="Clear").click()
    expect(page.get_by_text("1,451 lines").first).to_be_visible()


def test_a_range_of_times_is_brushed(desktop: Look) -> None:
    page = desktop.open(LOGS)
    chart = page.get_by_role("group", name=re.compile("Lines over time"))
    box = chart.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + 40)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.7, box["y"] + 50, steps=5)
    expect(page.locator(".bars-tooltip")).to_be_visible()
    desktop.shot("brush")
    page.mouse.up()
    expect(page.get_by_role("button", name="Show all times")).to_be_visible()
    assert re.search(r"from=\d+&to=\d+", page.url)
    expect(page.get_by_text("1,451 lines")).to_have_count(0)
    page.get_by_role("button", name="Show all times").click()
    expect(page.get_by_text("1,451 lines").first).to_be_visible()


def test_logs_are_read_by_keyboard_alone(desktop: Look) -> None:
    page = desktop.open("/console/search")
    expect(page.get_by_role("searchbox")).to_be_focused()
    page.get_by_role("searchbox").blur()
    page.keyboard.press("g")
    page.keyboard.press("l")
    expect(page.locator(".log-row").first).to_be_visible()
    page.keyboard.press("/")
    page.keyboard.type("Failed password")
    page.keyboard.press("Enter")
    expect(page.locator(".log-row mark").first).to_have_text("Failed password")
    # The lines of before go first, marked where they have the words; those that were found follow.
    expect(page.locator(".log-row:not(:has(mark))")).to_have_count(0)
    expect(page.locator(".log-row mark").first).to_be_visible()
    page.get_by_role("searchbox").blur()
    page.keyboard.press("j")
    expect(page.locator("[data-result]:focus")).to_have_count(1)
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog").locator(".line-text")).to_contain_text("Failed password")
    page.keyboard.press("Escape")
    chart = page.get_by_role("group", name=re.compile("Lines over time"))
    chart.focus()
    for key in ("Home", "ArrowRight", "Shift+ArrowRight", "Shift+ArrowRight"):
        page.keyboard.press(key)
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Zoom out")).to_be_visible()


def test_lines_are_found_by_meaning(desktop: Look) -> None:
    page = desktop.open(f"{LOGS}&q=a+customer+could+not+pay&by-meaning=true")
    expect(page.locator(".log-row .log-score").first).to_be_visible()
    expect(page.get_by_role("heading", name="Nearest statements first")).to_be_visible()
    desktop.accessible()
    desktop.shot("meaning")


@TWO_LOOKS
def test_a_line_is_on_the_live_tail_as_it_is_accepted(log_look: Look) -> None:
    page = log_look.open(f"{LOGS}&live=true")
    expect(page.locator(".badge", has_text="live")).to_be_visible()
    expect(page.locator(".log-row").first).to_be_visible()
    text = f"live {log_look.theme} {log_look.width}: disk sdb1 is full"
    send_line(log_look.url, "web", text, service="tail")
    page.get_by_text(text).wait_for()
    log_look.accessible()
    log_look.shot("live")
    page.get_by_role("button", name="Hold").click()
    send_line(log_look.url, "web", f"held {text}", service="tail")
    page.wait_for_timeout(1500)
    expect(page.get_by_text(f"held {text}")).to_have_count(0)
    page.get_by_role("button", name="Go on").click()
    expect(page.get_by_text(f"held {text}")).to_be_visible()


def test_the_live_tail_goes_on_after_a_restart_of_the_gateway(
    desktop: Look, logs: Platform
) -> None:
    desktop.allow_broken_connections()
    page = desktop.open(f"{LOGS}&live=true")
    expect(page.locator(".badge", has_text="live")).to_be_visible()
    logs.kill("gateway")
    body = b"a line after the restart\n"
    with logs.client() as client:
        client.ingest_lines([body], collection="web", labels={"service": "tail"})
    expect(page.get_by_text("a line after the restart")).to_have_count(1)


def test_the_live_tail_has_the_lines_that_the_ledger_dropped_while_it_was_refused(
    desktop: Look, logs: Platform
) -> None:
    desktop.allow_broken_connections()
    desktop.allow("503")
    page = desktop.open(f"{LOGS}&live=true")
    expect(page.locator(".badge", has_text="live")).to_be_visible()
    tail = re.compile("/v1/logs/tail")
    page.route(tail, lambda route: route.fulfill(status=503))
    logs.kill("gateway")
    kept = payloads(logs)
    body = b"a line that nobody followed\n"
    with logs.client() as client, page.expect_response(tail) as refused:
        client.ingest_lines([body], collection="web", labels={"service": "tail"})
        until = time.monotonic() + 240
        while payloads(logs) - kept:  # the text is dropped once it was read back
            assert time.monotonic() < until
            time.sleep(0.1)
    assert refused.value.status == 503
    page.unroute(tail)
    expect(page.get_by_text("a line that nobody followed")).to_have_count(1)
    expect(page.get_by_text("missing here")).to_have_count(0)


def payloads(platform: Platform) -> set[bytes]:
    """Return the names of the slices whose texts the ledger has."""
    with platform.redis() as ledger:
        return set(ledger.scan_iter(keys.key("payload", "*"), count=10_000))


def test_100_000_lines_scroll_with_at_most_300_rows_in_the_page(
    desktop: Look, logs: Platform
) -> None:
    with logs.client() as client:
        client.create_collection("many", kind=CollectionKind.LOGS)
        client.ingest_lines(many_lines(MANY), collection="many", labels={"host": "a"})
    page = desktop.open("/console/logs?collection=many&order=oldest")
    frame = page.get_by_role("region", name=re.compile("lines of many"))
    most = 0
    newest = page.get_by_text(f"step {MANY - 1} of the loop")
    until = time.monotonic() + 400
    while not newest.count() and time.monotonic() < until:
        frame.evaluate("e => { e.scrollTop = e.scrollHeight }")
        most = max(most, rows(page))
        page.wait_for_timeout(50)
    expect(page.get_by_role("heading", name=f"{MANY:,} lines", exact=True)).to_be_visible()
    expect(newest).to_be_visible()
    for share in (0.75, 0.5, 0.25, 0.0):
        frame.evaluate(f"e => {{ e.scrollTop = e.scrollHeight * {share} }}")
        page.wait_for_timeout(50)
        most = max(most, rows(page))
    expect(page.get_by_text("step 0 of the loop")).to_be_visible()
    assert 0 < most <= ROWS_IN_PAGE


HELD_END = """
const pageEnds = new Promise((end) => { window.endPage = end; });
const fetched = window.fetch;
window.fetch = async (...given) => {
  const response = await fetched(...given);
  if (!String(given[0]?.url ?? given[0]).includes("/v1/logs/query")) return response;
  const held = new TransformStream({ flush: () => pageEnds });
  return new Response(response.body.pipeThrough(held), response);
};
"""


def test_end_of_list_reached_before_page_ends_reads_the_next(desktop: Look, logs: Platform) -> None:
    with logs.client() as client:
        client.create_collection("pages", kind=CollectionKind.LOGS)
        client.ingest_lines(many_lines(1000), collection="pages", labels={"host": "a"})
    desktop.page.add_init_script(HELD_END)
    page = desktop.open("/console/logs?collection=pages&order=oldest")
    frame = page.get_by_role("region", name="200 lines of pages")
    frame.evaluate("e => { e.scrollTop = e.scrollHeight }")
    expect(page.get_by_text("step 199 of the loop")).to_be_visible()
    expect(page.get_by_text("reading …")).to_be_visible()
    page.evaluate("window.endPage()")
    expect(page.get_by_role("region", name="1,000 lines of pages")).to_be_visible()


@TWO_LOOKS
def test_states_of_the_logs_have_pages_of_their_own(log_look: Look) -> None:
    log_look.allow("404", "422")
    page = log_look.open(f"{LOGS}&q=no-such-text-anywhere")
    expect(page.get_by_text("No such lines")).to_be_visible()
    log_look.accessible()
    log_look.shot("no-lines")
    page = log_look.open("/console/logs?collection=nowhere")
    expect(page.get_by_text("collection_unknown").first).to_be_visible()
    log_look.accessible()


def test_requests_for_logs_are_shown_as_curl_and_as_python(desktop: Look) -> None:
    page = desktop.open(f"{LOGS}&where=level%3Derror&q=refused")
    page.get_by_role("button", name="API").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text(f"{desktop.url}/v1/logs/query", use_inner_text=True)
    dialog.get_by_role("tab", name="Python").nth(1).click()
    expect(dialog).to_contain_text('"contains": "refused"')
    desktop.accessible()
    desktop.shot("logs-samples")

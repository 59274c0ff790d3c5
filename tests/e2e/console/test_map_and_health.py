"""Stories of the map and of health: 20,000 points drawn, an equal table, what waits."""

from __future__ import annotations

import json
import random
import re
import time
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import Route, expect
from tests.e2e.console.conftest import LOOKS, MAIL

from verso_core.jobs.cluster import Colour, ProjectRequest

if TYPE_CHECKING:
    from tests.e2e.conftest import Platform
    from tests.e2e.console.conftest import Look

POINTS = 20_000
MOST_MS = 60_000  # a guard: a browser shares the cores with other suites


def many(route: Route) -> None:
    """Answer as the platform does for 20,000 records, which take minutes to ingest."""
    made = random.Random(0)
    groups = [(made.uniform(-1, 1), made.uniform(-1, 1)) for _ in range(8)]
    colour = [made.randrange(8) for _ in range(POINTS)]
    answer = {
        "records": 3 * POINTS,
        "unread": 0,
        "explained": [0.11, 0.07],
        "ids": [f"document-{n}#0" for n in range(POINTS)],
        "x": [round(made.gauss(groups[own][0], 0.15), 4) for own in colour],
        "y": [round(made.gauss(groups[own][1], 0.15), 4) for own in colour],
        "colour": colour,
        "colours": [{"label": f"group {n}", "points": colour.count(n)} for n in range(8)],
    }
    route.fulfill(status=200, content_type="application/json", body=json.dumps(answer))


def test_twenty_thousand_points_are_drawn(look: Look) -> None:
    page = look.open("/console/map?collection=notes")
    expect(page.locator("canvas[data-points]")).to_be_visible()
    page.route("**/v1/project", many)
    page.evaluate(
        """() => {
          const ask = window.fetch;
          window.fetch = async (...what) => {
            const answer = await ask(...what);
            if (String(what[0]).includes("/v1/project")) {
              const read = answer.text.bind(answer);
              answer.text = async () => {
                const text = await read();
                window.came = performance.now();
                return text;
              };
            }
            return answer;
          };
          const seen = () => {
            if (document.querySelector(`canvas[data-points="20000"][data-draw-ms]`))
              requestAnimationFrame(() => (window.drawn = performance.now()));
            else requestAnimationFrame(seen);
          };
          seen();
        }"""
    )
    page.get_by_label("Sample").select_option("20000")
    expect(page.get_by_text("20,000 of 60,000 records")).to_be_visible()
    deadline = time.monotonic() + 240  # the page's policy forbids what wait_for_function does
    while not page.evaluate("window.drawn !== undefined"):
        assert time.monotonic() < deadline
        page.wait_for_timeout(20)
    took_ms = page.evaluate("window.drawn - window.came")
    assert took_ms < MOST_MS
    canvas = page.locator("canvas[data-points]")
    assert float(canvas.get_attribute("data-draw-ms") or "inf") < MOST_MS
    look.shot("map-20000")
    page.get_by_role("checkbox", name="group 0").uncheck()
    page.get_by_role("radio", name="Table").check()
    table = page.get_by_role("region", name="Points of the map")
    expect(table.locator(".map-row").first).to_contain_text("document-")
    assert table.locator(".map-row").count() < 100  # those in sight
    look.accessible()
    look.shot("map-table")


def test_the_client_draws_and_describes_what_the_console_does(stage: Platform) -> None:
    with stage.client() as client:
        drawn = client.project(ProjectRequest(collection="notes", colour=Colour.NONE))
        assert (drawn.records, len(drawn.ids)) == (5, 5)
        [record] = client.records("mail", collection="notes", vector=True, draft=True).records
        assert (record.bytes_text, len(record.vector or ())) == (len(MAIL), 384)
        assert record.draft is not None
        assert record.draft.tokens > record.draft.right > 0
        assert client.status().ready


def test_a_point_is_read_and_leads_to_its_document(look: Look) -> None:
    page = look.open("/console/map?collection=notes&colour=label&key=kind")
    expect(page.get_by_text("5 of 5 records")).to_be_visible()
    legend = page.locator(".map-legend")
    expect(legend).to_contain_text("note")
    expect(legend).to_contain_text("test")
    look.accessible()
    look.shot("map")
    canvas = page.locator("canvas[data-points]")
    canvas.focus()
    canvas.press("ArrowRight")
    canvas.press("ArrowLeft")
    expect(page).to_have_url(re.compile("point="))
    expect(page.locator(".map-text")).to_be_visible()
    canvas.press("+")
    canvas.press("0")
    page.get_by_role("link", name="The document").click()
    expect(page.locator("[data-exact], .bytes").first).to_be_visible()


def test_health_says_what_waits_and_what_reads_back(look: Look) -> None:
    page = look.open("/console/map/health")
    expect(page.get_by_text("Ready", exact=True)).to_be_visible()
    for queue in ("interactive", "bulk", "scrub", "fit", "train"):
        expect(page.get_by_role("cell", name=queue).first).to_be_visible()
    exact = page.locator(".card", has=page.get_by_role("heading", name="Exactness"))
    expect(exact.get_by_role("row", name="notes")).to_contain_text("all")
    expect(page.get_by_text("writes stop below")).to_be_visible()
    expect(
        page.get_by_text(
            re.compile(
                "pass [0-9]+ (runs|ended)|requested|recent documents first|No pass has begun"
            )
        ).first
    ).to_be_visible()
    look.accessible()
    look.shot("health")


@pytest.mark.parametrize("look", [LOOKS[0]], indirect=True)
def test_a_pass_over_all_records_begins_by_hand_and_ends(look: Look, platform: Platform) -> None:
    with platform.client() as client:
        before = client.scrub().number
    page = look.open("/console/map/health")
    begin = page.get_by_role("button", name="Read all now")
    expect(begin).to_be_enabled(timeout=400_000)  # another pass may be under way
    begin.click()
    expect(page.get_by_text("A pass over all records begins.")).to_be_visible()
    until = time.monotonic() + 400
    with platform.client() as client:
        while (found := client.scrub()).number == before or found.running or found.asked:
            assert time.monotonic() < until
            page.wait_for_timeout(200)
    expect(begin).to_be_enabled()
    expect(page.get_by_text("ended").first).to_be_visible()

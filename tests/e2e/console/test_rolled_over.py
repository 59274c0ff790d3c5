"""Stories of a log collection with partitions by time: read as one, also where one is missing."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import Page, expect
from tests.e2e.console.conftest import LOOKS, Look
from tests.e2e.console.logs_sample import DAY_S, send_day
from tests.e2e.test_rollover import rolled, stopped_keeper

from verso_core.jobs import CollectionKind
from verso_core.jobs.collections import Rollover
from verso_ledger import keys

if TYPE_CHECKING:
    from tests.e2e.conftest import Platform

NAME = "rolled"
DAYS = 3
LOGS = f"/console/logs?collection={NAME}"
SEARCH = f"/console/search?collection={NAME}&q=Which+array+is+degraded%3F"
DETAIL = f"/console/collections/{NAME}"
PATIENCE_S = 240.0
TWO_LOOKS = pytest.mark.parametrize("look", [LOOKS[0], LOOKS[-1]], indirect=True)


@pytest.fixture(scope="session")
def days(stage: Platform) -> int:
    """Let lines of three days come in, each day in a partition; return how many there are."""
    rule, lines = Rollover(span_s=366 * DAY_S, max_bytes=1), 0
    with stage.client() as client:
        client.create_collection(NAME, kind=CollectionKind.LOGS, rollover=rule)
        for day in range(DAYS):
            _await_rolled(stage, day)
            with stopped_keeper(stage):
                lines += send_day(client, NAME, end_s=time.time() - (DAYS - 1 - day) * DAY_S)
    return lines


def _await_rolled(platform: Platform, parts: int) -> None:
    """Wait until so many partitions take no more lines."""
    until = time.monotonic() + PATIENCE_S
    with platform.redis() as ledger:
        while len(rolled(ledger)) < parts:
            assert time.monotonic() < until, "it does not roll over"
            time.sleep(0.2)


@pytest.fixture
def rolled_look(days: int, look: Look) -> Look:
    """A page before the platform that has lines in partitions."""
    assert days
    return look


@contextmanager
def without_the_oldest(platform: Platform) -> Iterator[str]:
    """Let the ledger not list the oldest partition, as an older copy of it does not."""
    name, server = f"{NAME}.0", platform.redis()
    own = server.hget(keys.key("aliases"), name) or name
    listed = server.hget(keys.key("collections"), own)
    # as the home ledger of several notes it: of what it has itself it cannot be older
    server.hset(keys.key("placements"), name, "home")
    server.hdel(keys.key("collections"), own)
    _told(platform, missing=(name,))
    try:
        yield name
    finally:
        server.hset(keys.key("collections"), own, listed)
        server.hdel(keys.key("placements"), name)
        _told(platform, missing=())


def _told(platform: Platform, *, missing: tuple[str, ...]) -> None:
    until = time.monotonic() + PATIENCE_S
    with platform.client() as client:
        while True:
            found = {one.name: one for one in client.collections()}
            if NAME in found and found[NAME].missing_partitions == missing:
                return
            assert time.monotonic() < until
            time.sleep(0.2)


def shown(page: Page, count: int) -> None:
    """Check that a page counts so many lines."""
    expect(page.get_by_text(f"{count:,} lines").first).to_be_visible()


@TWO_LOOKS
def test_partitions_are_read_as_one_collection(rolled_look: Look, days: int) -> None:
    page = rolled_look.open(LOGS)
    expect(page.locator(".log-row").first).to_be_visible()
    shown(page, days)
    rolled_look.accessible()
    rolled_look.shot("rolled-logs")
    page.get_by_role("tab", name="Statements").click()
    row = page.get_by_role("table").locator("tbody tr").filter(has_text="degraded")
    expect(row).to_have_count(1)
    rolled_look.shot("rolled-statements")
    row.get_by_role("link").click()
    expect(page.locator(".log-row")).to_have_count(DAYS)
    rolled_look.shot("rolled-statement")
    page.locator(".log-row").last.click()
    expect(page.get_by_role("dialog").locator(".line-around li[aria-current]")).to_contain_text(
        "degraded"
    )
    rolled_look.shot("rolled-line")


@TWO_LOOKS
def test_a_search_and_the_description_are_of_all_partitions(rolled_look: Look) -> None:
    page = rolled_look.open(SEARCH)
    hits = page.get_by_role("region", name="Passages")
    expect(hits.get_by_text("raid: array").first).to_be_visible()
    expect(hits.get_by_text(f"{DAYS} lines").first).to_be_visible()
    rolled_look.accessible()
    rolled_look.shot("rolled-search")
    rolled_look.open(DETAIL)
    expect(page.get_by_text(re.compile(r"\d partitions by time"))).to_be_visible()
    rolled_look.accessible()
    rolled_look.shot("rolled-collection")
    rolled_look.allow("422")
    rolled_look.open(f"/console/map?collection={NAME}")
    expect(page.get_by_text("partitioned_unsupported").first).to_be_visible()
    rolled_look.shot("rolled-map")


@TWO_LOOKS
def test_a_page_says_which_partition_it_leaves_out(
    rolled_look: Look, stage: Platform, days: int
) -> None:
    page = rolled_look.page
    with without_the_oldest(stage) as name:
        for path, shot in ((LOGS, "logs"), (SEARCH, "search"), (DETAIL, "detail")):
            rolled_look.open(path)
            notice = page.get_by_role("alert").filter(has_text=name)
            expect(notice).to_contain_text("no longer has it")
            expect(notice.get_by_role("link")).to_have_attribute(
                "href", "/docs/errors/partition_missing"
            )
            rolled_look.accessible()
            rolled_look.shot(f"missing-{shot}")
        rolled_look.open(f"{LOGS}&order=oldest")
        expect(page.locator(".log-row").first).to_be_visible()
        shown(page, days - days // DAYS)
    rolled_look.open(LOGS)
    shown(page, days)
    expect(page.get_by_role("alert")).to_have_count(0)

"""Stories of who watches jobs: follow one, see what failed of it, cancel it, replay a dead one."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import httpx2
import pytest
from playwright.sync_api import BrowserContext, expect
from tests.e2e.console.conftest import LOOKS, Look, looked

from verso_client import Document
from verso_core.errors import VersoError
from verso_core.jobs import Queue
from verso_ledger import Ledger

if TYPE_CHECKING:
    from tests.e2e.conftest import Platform

JOBS = "/console/jobs"
TWO_LOOKS = pytest.mark.parametrize("look", [LOOKS[0], LOOKS[-1]], indirect=True)


@pytest.fixture(scope="session")
def work(stage: Platform) -> Platform:
    """The platform of the stories, with a collection that work is done on."""
    with stage.client() as client:
        client.create_collection("work")
    return stage


@pytest.fixture
def job_look(work: Platform, look: Look) -> Look:
    """A page before the platform that has work."""
    return look


@pytest.fixture
def desktop(work: Platform, new_context: Callable[..., BrowserContext]) -> Iterator[Look]:
    """A wide page before the platform that has work."""
    found = looked(new_context(), work.url)
    yield found
    found.check()


@contextmanager
def paused(platform: Platform) -> Iterator[None]:
    """Keep the worker from working."""
    pid = platform.pid("worker")
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def ingest(url: str, count: int = 3, *, bad: tuple[int, ...] = ()) -> str:
    """Have documents accepted, some of them with an id that another one has."""
    rows = [
        {"id": "note-0" if n in bad else f"note-{n}", "text": f"Note {n}: all is well."}
        for n in range(count)
    ]
    answer = httpx2.post(
        f"{url}/v1/ingest",
        json={"collection": "work", "documents": rows},
        headers={"Prefer": "respond-async"},
        timeout=60,
    )
    assert answer.status_code == 202, answer.text
    return str(answer.json()["id"])


def test_a_job_is_followed_from_acceptance_to_its_end(job_look: Look, work: Platform) -> None:
    page = job_look.open(JOBS)
    expect(page.locator(".page-head .badge", has_text="live")).to_be_visible()
    with paused(work):
        job = ingest(job_look.url)
        row = page.locator("tr", has_text=job[:8])
        expect(row.locator(".badge")).to_have_text("queued")
        job_look.accessible()
        job_look.shot("jobs")
        row.get_by_role("link").click()
        expect(page.get_by_role("region", name="Job", exact=True)).to_contain_text(job)
        job_look.accessible()
        job_look.shot("job")
    region = page.get_by_role("region", name="Job", exact=True)
    expect(region.locator(".card-title .badge")).to_have_text("succeeded")
    expect(region).to_contain_text("3 items")
    page.reload()  # the address is the whole state
    expect(region.locator(".card-title .badge")).to_have_text("succeeded")


@TWO_LOOKS
def test_what_failed_of_a_job_is_listed_with_its_place(job_look: Look) -> None:
    job = ingest(job_look.url, 20, bad=(7, 12))
    page = job_look.open(f"{JOBS}?job={job}")
    failures = page.locator(".failures li")
    expect(failures).to_have_count(2)
    expect(failures.first).to_contain_text("item 8")
    expect(failures.first).to_contain_text("duplicate_id")
    expect(failures.nth(1)).to_contain_text("item 13")
    job_look.accessible()
    job_look.shot("failures")


def test_a_job_is_cancelled(desktop: Look, work: Platform) -> None:
    with paused(work):
        job = ingest(desktop.url)
        page = desktop.open(f"{JOBS}?job={job}")
        page.get_by_role("button", name="Cancel").click()
        dialog = page.get_by_role("dialog")
        desktop.accessible()
        desktop.shot("cancel")
        dialog.get_by_role("button", name="Cancel the job").click()
        region = page.get_by_role("region", name="Job", exact=True)
        expect(region.locator(".card-title .badge")).to_have_text("cancelled")


@TWO_LOOKS
def test_a_dead_job_is_replayed(job_look: Look, work: Platform) -> None:
    with paused(work):
        job = ingest(job_look.url)
        _fail(work, job)
        page = job_look.open(f"{JOBS}?view=dead")
        expect(page.get_by_role("table")).to_contain_text("the disk of this test is full")
        job_look.accessible()
        job_look.shot("dead-letters")
        page.get_by_role("button", name="Replay it").click()
        page.get_by_role("dialog").get_by_role("button", name="Replay 1 job").click()
        expect(page.get_by_text("1 job has new attempts")).to_be_visible()
        expect(page.get_by_text("No dead letters")).to_be_visible()
    page.get_by_role("tab", name="Jobs").click()
    row = page.locator("tr", has_text=job[:8])
    expect(row.locator(".badge")).to_have_text("succeeded")


def _fail(platform: Platform, job: str) -> None:
    """Claim a job in the place of a worker, and fail."""
    with platform.redis() as raw:
        known = raw.connection_pool.connection_kwargs
        url = f"redis://:{known['password']}@127.0.0.1:{known['port']}/0"
    ledger = Ledger.from_url(url)
    try:
        [lease] = [
            one for one in ledger.leases.claim(Queue.BULK, owner="test", n=9) if one.job_id == job
        ]
        ledger.leases.fail(lease, VersoError("the disk of this test is full"))
    finally:
        ledger.close()


def test_jobs_are_followed_past_a_restart_of_the_gateway(desktop: Look, work: Platform) -> None:
    desktop.allow_broken_connections()
    page = desktop.open(JOBS)
    expect(page.locator(".page-head .badge", has_text="live")).to_be_visible()
    work.kill("gateway")
    with work.client() as client:
        client.ingest([Document("After a restart.", id="restart")], collection="work")
        [job, *_] = client.jobs(limit=1)
    row = page.locator("tr", has_text=job.id[:8])
    expect(row.locator(".badge")).to_have_text("succeeded")


def test_searches_are_listed_only_if_asked_for(desktop: Look, work: Platform) -> None:
    with work.client() as client:
        client.search("well", collection="work")
    page = desktop.open(JOBS)
    table = page.get_by_role("table")
    expect(table).to_be_visible()
    assert "search" not in table.inner_text()
    page.get_by_role("switch", name="Searches too").check()
    expect(table).to_contain_text("search")
    with work.client() as client:
        client.embed(["well"])
    expect(table).to_contain_text("embed")
    expect(page).to_have_url(re.compile("reads=true"))
    page.get_by_label("Kind").select_option("search")
    expect(table).not_to_contain_text("embed")
    desktop.shot("reads")


def test_jobs_are_watched_by_keyboard_alone(desktop: Look) -> None:
    job = ingest(desktop.url)
    page = desktop.open("/console/search")
    page.get_by_role("searchbox").blur()
    page.keyboard.press("g")
    page.keyboard.press("j")
    link = page.locator("tr", has_text=job[:8]).get_by_role("link")
    expect(link).to_be_visible()
    link.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("region", name="Job", exact=True)).to_contain_text(job)
    page.get_by_role("button", name="Close").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("region", name="Job", exact=True)).to_have_count(0)


@TWO_LOOKS
def test_states_of_the_jobs_have_pages_of_their_own(job_look: Look) -> None:
    job_look.allow("404")
    page = job_look.open(f"{JOBS}?status=active&kind=migrate")
    expect(page.get_by_text("No such jobs")).to_be_visible()
    job_look.accessible()
    page = job_look.open(f"{JOBS}?job=0123456789abcdef")
    expect(page.get_by_text("This job is not known any more")).to_be_visible()
    job_look.accessible()

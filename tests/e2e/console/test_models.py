"""Stories of models: read a report in figures, try a canary, promote it, go back; a refusal."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import BrowserContext, expect
from tests.e2e.conftest import ARTIFACT, publish_heads
from tests.e2e.console.conftest import LOOKS, Look, looked

from verso_core import heads, registry
from verso_core.registry import Channel

if TYPE_CHECKING:
    from tests.e2e.conftest import Platform

HEAD = "kinds"
TEXTS = ["kernel: eth0: link is up", "sshd[1]: session opened", "disk sda is full", "retry in 4 s"]


@pytest.fixture(scope="module")
def place(new_platform: Callable[..., Platform]) -> Platform:
    """A platform with small heads, which publish fast."""
    platform = new_platform()
    platform.artifact = ARTIFACT
    platform.start()
    publish_heads(platform)
    return platform


@pytest.fixture(params=LOOKS)
def look(
    place: Platform, new_context: Callable[..., BrowserContext], request: pytest.FixtureRequest
) -> Iterator[Look]:
    """A page before that platform."""
    width, theme = request.param
    found = looked(new_context(width, theme), place.url, width, theme)
    yield found
    found.check()


def publish_canary(platform: Platform, remark: str) -> str:
    """Publish another version of a head, which differs in a figure, as the canary of all jobs."""
    models = platform.data / "models"
    stable = registry.read(models).rollout(HEAD).stable
    assert stable is not None
    home = models / "heads" / HEAD
    draft = home / f"draft-{remark}"
    shutil.copytree(home / stable, draft)
    old = heads.read(draft)
    new = heads.named(old.model_copy(update={"metrics": {**old.metrics, f"of_{remark}": 1.0}}))
    heads.write(new, draft)
    draft.rename(home / new.version)
    registry.assign(models, Channel.CANARY, new.version, head=HEAD, share=1.0)
    return new.version


def test_a_canary_is_compared_promoted_and_taken_back(look: Look, place: Platform) -> None:
    before = registry.read(place.data / "models").rollout(HEAD).stable
    version = publish_canary(place, f"{look.theme}_{look.width}")
    page = look.open("/console/models")
    row = page.get_by_role("row", name=HEAD + " ", exact=False).first
    expect(page.get_by_text(version[:8]).first).to_be_visible()
    expect(row).to_be_visible()
    with place.client() as client:
        for _ in range(5):
            client.classify(HEAD, texts=TEXTS)
    look.accessible()
    look.shot("models")
    page.get_by_role("link", name=HEAD, exact=True).click()
    expect(page.get_by_text(re.compile("^100 % of the jobs"))).to_be_visible()
    expect(page.get_by_text("the same label")).to_be_visible()
    expect(page.get_by_role("figure", name="Share of errors among")).to_be_visible()
    look.accessible()
    look.shot("head")
    page.get_by_role("button", name="Promote").click()
    look.accessible()
    page.get_by_role("button", name="Make it stable").click()
    expect(page.get_by_text(f"{version[:8]} of {HEAD} is stable now.")).to_be_visible()
    assert registry.read(place.data / "models").rollout(HEAD).stable == version
    page.get_by_role("button", name="Roll back").click()
    page.get_by_role("dialog").get_by_role("button", name="Roll back").click()
    expect(page.get_by_text(f"{HEAD} is rolled back.")).to_be_visible()
    assert registry.read(place.data / "models").rollout(HEAD).stable == before


def test_a_canary_that_cannot_be_served_is_withdrawn_and_says_why(
    look: Look, place: Platform
) -> None:
    version = publish_canary(place, f"broken_{look.theme}_{look.width}")
    graph = place.data / "models" / "heads" / HEAD / version / heads.GRAPH
    graph.write_bytes(b"no graph")
    page = look.open(f"/console/models/heads/{HEAD}")
    withdrawn = page.locator(".facts").first
    expect(withdrawn).to_contain_text(version[:8], timeout=240_000)
    expect(withdrawn).to_contain_text("head.onnx")
    look.shot("withdrawn")


def test_a_training_is_started_and_followed_to_its_report(
    place: Platform, new_context: Callable[..., BrowserContext]
) -> None:
    rows = ["text,label"]
    rows += [f'"disk {n} is full, {n} blocks left",disk' for n in range(60)]
    rows += [f'"user {n} logs in from host {n}",login' for n in range(60)]
    look = looked(new_context(), place.url)
    page = look.open("/console/models/train")
    page.get_by_label("Name of the head").fill("trained")
    page.get_by_role("radio", name="A file of rows").check()
    content = "\n".join(rows).encode()
    page.get_by_label("Rows, as CSV or JSON lines").set_input_files(
        {"name": "rows.csv", "mimeType": "text/csv", "buffer": content}
    )
    page.get_by_role("button", name="Start the training").click()
    expect(page.get_by_role("meter", name="Training")).to_be_visible()
    page.get_by_role("link", name="See its report").click(timeout=400_000)
    expect(page.get_by_role("heading", name="Calibration")).to_be_visible()
    expect(page.get_by_role("figure", name="Confidence against accuracy")).to_be_visible()
    look.accessible()
    look.shot("trained")
    look.check()


def test_the_form_of_a_training_says_what_is_missing(look: Look) -> None:
    page = look.open("/console/models/train")
    start = page.get_by_role("button", name="Start the training")
    expect(start).to_be_disabled()
    page.get_by_label("Name of the head").fill("failures")
    page.get_by_label("Metadata key with the label").fill("kind")
    expect(start).to_be_enabled()
    page.get_by_role("radio", name="A file of rows").check()
    expect(start).to_be_disabled()
    look.accessible()
    look.shot("train")

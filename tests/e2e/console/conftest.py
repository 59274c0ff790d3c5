"""A browser before a running platform: Debian's Chromium, driven by Playwright.

The package without windows takes a good third less of the processor than the whole browser does,
which serves where it is what there is.

Stories run light on a screen of 1,440 pixels and dark on one of 390; with VERSO_LOOKS=all also the
other way round. Whatever a story does, its page asks no other host, and says nothing on the
browser's console.

VERSO_CHROMIUM names the browser; VERSO_SHOTS a folder for pictures of what the stories saw.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Page,
    expect,
    sync_playwright,
)
from tests.e2e.conftest import Platform, platforms

from verso_client import Client, Document

ROOT = Path(__file__).parents[3]
AXE_TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
TIMEOUT_MS = 60_000  # a browser shares the cores with other suites
LOOKS = [
    pytest.param((width, theme), id=f"{theme}-{width}")
    for width in (1440, 390)
    for theme in ("light", "dark")
    if (width == 1440) == (theme == "light") or os.environ.get("VERSO_LOOKS") == "all"
]
# What Chromium says of a connection that ends before, in or between answers.
BROKEN_CONNECTION = (
    "ERR_CONNECTION",
    "ERR_CONTENT_LENGTH_MISMATCH",
    "ERR_EMPTY_RESPONSE",
    "ERR_INCOMPLETE",
    "ERR_SOCKET",
)
MAIL = "The certificate of the mail server expires on 3 May 2027. Anna renews it."
DISKS = "Disk sda1 of the build host is full since Monday. Old builds fill it. Bert cleans it up."


def planes() -> str:
    """Return a text with characters of each of Unicode's 17 planes, and what looks like HTML."""
    signs = "".join(chr(0x10000 * plane + 0x1F4) for plane in range(17))
    marks = "\U0001f469\u200d\U0001f680 e\u0301 \u202eright to left\u202c"
    html = "<script>document.title = 'owned'</script> & \u0000 \r\n\t"
    return f"{html}{signs} {marks} &lt;b&gt; {MAIL} \U0010fffd end"


@dataclass
class Look:
    """A page of a browser, and what it did that it should not have done."""

    page: Page
    url: str
    width: int
    theme: str
    allowed: tuple[str, ...] = ()
    said: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def open(self, path: str) -> Page:
        """Go to an address of the platform."""
        self.page.goto(self.url + path)
        return self.page

    def allow(self, *words: str) -> None:
        """Let messages with these words pass: the browser reports each failed request."""
        self.allowed += words

    def allow_broken_connections(self) -> None:
        """Let the browser report connections that an ending gateway broke off or did not take."""
        self.allow(*BROKEN_CONNECTION)

    def shot(self, name: str) -> None:
        """Keep a picture, if pictures are wanted."""
        folder = os.environ.get("VERSO_SHOTS")
        if folder:
            Path(folder).mkdir(parents=True, exist_ok=True)
            self.page.screenshot(path=Path(folder) / f"{name}-{self.theme}-{self.width}.png")

    def accessible(self) -> None:
        """Check the page by axe, as WCAG 2.2 AA, once what is out of date has gone."""
        expect(self.page.locator(".stale")).to_have_count(0)
        found = Axe().run(self.page, options={"runOnly": AXE_TAGS, "resultTypes": ["violations"]})
        assert not found.response["violations"], found.generate_report()

    def note(self, message: ConsoleMessage) -> None:
        """Note what the page says on the console, information left out."""
        if message.type in ("error", "warning"):
            self.said.append(message.text)

    def check(self) -> None:
        """Check that the page asked nobody else, and complained of nothing."""
        own = urlsplit(self.url).netloc
        foreign = [url for url in self.asked if urlsplit(url).netloc not in (own, "")]
        assert not foreign
        faults = [text for text in self.said if not any(word in text for word in self.allowed)]
        assert not faults


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """The browser; without one tests are skipped, but not in CI.

    Of one file: while it is there an event loop runs in this thread, and other files start theirs.
    """
    found = map(shutil.which, ("chromium-headless-shell", "chromium"))
    program = os.environ.get("VERSO_CHROMIUM") or next(filter(None, found), None)
    if program is None:
        if os.environ.get("CI"):
            pytest.fail("expected chromium-headless-shell (Debian's package) or VERSO_CHROMIUM")
        pytest.skip("there is no chromium")
    expect.set_options(timeout=TIMEOUT_MS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=program, args=["--no-sandbox"], timeout=3 * TIMEOUT_MS
        )
        yield browser
        browser.close()


@pytest.fixture
def new_context(chromium: Browser) -> Iterator[Callable[..., BrowserContext]]:
    """Make windows of the browser that share nothing."""
    made: list[BrowserContext] = []

    def make(width: int = 1440, theme: str = "light") -> BrowserContext:
        height = 844 if width < 500 else 900
        context = chromium.new_context(
            viewport={"width": width, "height": height},
            color_scheme="dark" if theme == "dark" else "light",
            reduced_motion="reduce",
            accept_downloads=True,
        )
        context.set_default_timeout(TIMEOUT_MS)
        # Missing where a page came by plain HTTP from another machine.
        context.add_init_script("delete Crypto.prototype.randomUUID")
        made.append(context)
        return context

    yield make
    for context in made:
        context.close()


def looked(context: BrowserContext, url: str, width: int = 1440, theme: str = "light") -> Look:
    """Return a page that is watched."""
    page = context.new_page()
    look = Look(page, url, width, theme)
    page.on("console", look.note)
    page.on("pageerror", lambda error: look.said.append(str(error)))
    page.on("request", lambda request: look.asked.append(request.url))
    return look


@pytest.fixture(params=LOOKS)
def look(
    stage: Platform,
    new_context: Callable[..., BrowserContext],
    request: pytest.FixtureRequest,
) -> Iterator[Look]:
    """A page before the platform, on each screen and in both themes."""
    width, theme = request.param
    found = looked(new_context(width, theme), stage.url, width, theme)
    yield found
    found.check()


@pytest.fixture(scope="session")
def artifact() -> Path:
    """The shipped model: stories are about answers, which a tiny one does not have."""
    return ROOT / "models" / "default"


@pytest.fixture(scope="session")
def platform(artifact: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    """A platform of the stories' own: the one that other suites share serves a tiny model."""
    with platforms(artifact, tmp_path_factory) as make:
        # A pass of the scrub rests 19 times as long as its jobs take; a story waits for its end.
        shared = make(
            VERSO_VERIFY_DELAY_S="0.1", VERSO_RAW_TEXT_RETENTION_S="0", VERSO_SCRUB_SHARE="1"
        )
        shared.start()
        yield shared


@pytest.fixture(scope="session")
def stage(platform: Platform) -> Platform:
    """The platform of the stories, with a collection to ask."""
    with platform.client() as client:
        client.create_collection("notes")
        client.ingest(_documents(), collection="notes")
        _await_answers(client)
    platform.await_verified("notes", len(_documents()))
    return platform


def _documents() -> list[Document]:
    return [
        Document(MAIL, id="mail", metadata={"owner": "anna", "kind": "note"}, time=1_795_262_400.0),
        Document(DISKS, id="disks", metadata={"owner": "bert", "kind": "note"}),
        Document(planes(), id="planes", metadata={"kind": "test"}),
        Document(bytes(range(256)), id="binary", metadata={"kind": "test"}),
        Document(
            "The canteen opens at noon. Soup is served until two.",
            id="canteen",
            metadata={"owner": "carla", "kind": "note"},
        ),
    ]


def _await_answers(client: Client) -> None:
    """Ask once: the first question waits until the heads are loaded."""
    client.answer("When does the certificate expire?", collection="notes")

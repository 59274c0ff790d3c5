"""How soon the console shows on loopback, in a new browser profile and in one that was here before.

    paint   the first contentful paint: name, navigation and the outline of the page
    field   the field that a question is typed into is there
    ready   the last request of the first page is answered

Beside it the same browser's first paint of one static page of 1 kB from Python's own HTTP server:
what the browser and this machine take for anything. The limit is 300 ms, and 150 kB compressed.

Needs Playwright and Chromium; VERSO_CHROMIUM names the browser.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import statistics
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import sheet
from bench_million import Platform
from playwright.sync_api import Browser, BrowserContext, sync_playwright

from verso_client import Document
from verso_standalone.stack import find_artifact

LIMIT_MS = 300
LIMIT_KB = 150
_SETTLED_S = 10.0
_FIELD = "[data-page-field]"
_PAINT = "first-contentful-paint"
_MEASURED = """() => ({
    paint: performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? 0,
    ready: Math.max(...performance.getEntriesByType("resource").map((one) => one.responseEnd)),
    bytes: performance.getEntriesByType("resource").concat(
        performance.getEntriesByType("navigation")).reduce((sum, one) => sum + one.transferSize, 0),
    requests: performance.getEntriesByType("resource").length + 1,
})"""
_WATCH = f"""
    const seen = () => {{
        if (document.querySelector("{_FIELD}") === null) requestAnimationFrame(seen);
        else window.fieldMs = performance.now();
    }};
    seen();
"""


class _Static(BaseHTTPRequestHandler):
    """Answers every request with one page."""

    def do_GET(self) -> None:
        page = b"<!doctype html><title>Static</title><p>" + b"A static page. " * 64
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        self.wfile.write(page)

    def log_message(self, *_: object) -> None:
        """Say nothing: the standard error is for people."""


def opened(context: BrowserContext, url: str, *, field: bool) -> dict[str, float]:
    """Open an address in a new tab; return what it took, in milliseconds and bytes."""
    page = context.new_page()
    if field:
        page.add_init_script(_WATCH)
    page.goto(url)
    if field:
        page.locator(_FIELD).first.wait_for()
    page.wait_for_load_state("networkidle")
    found: dict[str, float] = page.evaluate(_MEASURED) if field else {}
    found["paint"] = page.evaluate(f'performance.getEntriesByName("{_PAINT}")[0]?.startTime ?? 0')
    if field:
        found["field"] = page.evaluate("window.fieldMs")
    page.close()
    return found


def measured(browser: Browser, url: str, static: str, rounds: int) -> dict[str, Any]:
    """Return what each kind of visit took, a list of rounds."""
    found: dict[str, list[dict[str, float]]] = {"static": [], "cold": [], "warm": []}
    for _ in range(rounds):
        with browser.new_context() as context:
            found["static"].append(opened(context, static, field=False))
        with browser.new_context() as context:
            found["cold"].append(opened(context, url, field=True))
            found["warm"].append(opened(context, url, field=True))
    return found


def main() -> None:
    """Start a platform and a browser, visit, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=10)
    arguments = parser.parse_args()
    chromium = os.environ.get("VERSO_CHROMIUM") or shutil.which("chromium")
    if chromium is None:
        raise SystemExit("chromium not found: install it, or name it in VERSO_CHROMIUM")
    page = sheet.Sheet("console")
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Static)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory(prefix="verso-console-", ignore_cleanup_errors=True) as name:
        platform = Platform(Path(name) / "data", find_artifact())
        platform.start()
        try:
            with platform.client() as verso:
                verso.ingest([Document(f"the disk of host {n} is full") for n in range(64)])
            time.sleep(_SETTLED_S)
            with sync_playwright() as driver:
                flags = ["--no-sandbox", "--disable-gpu"]
                with driver.chromium.launch(executable_path=chromium, args=flags) as browser:
                    static = f"http://127.0.0.1:{server.server_port}/"
                    found = measured(browser, f"{platform.url}/console", static, arguments.rounds)
        finally:
            platform.end(signal.SIGTERM)
            server.shutdown()
    report(page, found)


def report(page: sheet.Sheet, found: dict[str, Any]) -> None:
    """Print the tables and the line for machines."""
    rows = []
    for kind, rounds in found.items():
        for what in ("paint", "field", "ready"):
            if what in rounds[0]:
                times = [one[what] for one in rounds]
                median = statistics.median(times)
                rows.append((f"{kind}, {what}", median, min(times), max(times), median / LIMIT_MS))
    sheet.table(
        f"milliseconds, {len(found['cold'])} visits each",
        ("visit", "median", "least", "most", f"of {LIMIT_MS} ms"),
        rows,
    )
    first = found["cold"][0]
    sheet.table(
        "first page",
        ("", "requests", "kB compressed", f"of {LIMIT_KB} kB"),
        [("cold", int(first["requests"]), first["bytes"] / 1e3, first["bytes"] / 1e3 / LIMIT_KB)],
    )
    page.finish({"visits": found, "limit_ms": LIMIT_MS, "limit_kb": LIMIT_KB})


if __name__ == "__main__":
    main()

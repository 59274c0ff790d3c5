"""Who hears of an alert: the routes as amtool reads them, and what a real Alertmanager sends."""

from __future__ import annotations

import json
import os
import queue
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml

from verso_standalone.valkey import free_port

MONITORING = Path(__file__).parents[2] / "services/monitoring"
CONFIG = MONITORING / "alertmanager.yml"
RULES = yaml.safe_load((MONITORING / "rules/alerts.yml").read_text())
ALERTS = [rule for group in RULES["groups"] for rule in group["rules"] if "alert" in rule]
Received = queue.Queue[tuple[str, dict[str, Any]]]


def program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        if os.environ.get("CI"):
            pytest.fail(f"{name} is not installed")
        pytest.skip(f"{name} is not installed")
    return found


def test_every_alert_goes_to_the_receiver_of_its_severity() -> None:
    chosen = set()
    for severity in sorted({rule["labels"]["severity"] for rule in ALERTS}):
        done = subprocess.run(
            [
                program("amtool"), "config", "routes", "test", f"--config.file={CONFIG}",
                f"--verify.receivers={severity}", f"severity={severity}", "alertname=Any",
            ],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        chosen.add(severity)
    assert chosen == {"page", "ticket"}


@pytest.fixture
def received() -> Iterator[tuple[int, Received]]:
    """Receive what Alertmanager sends: a port, and the notifications by the receiver's path."""
    notes: Received = queue.Queue()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            notes.put((self.path.strip("/"), json.loads(body)))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server.server_port, notes
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def alertmanager(received: tuple[int, Received], tmp_path: Path) -> Iterator[str]:
    """Run the shipped configuration with receivers, and without its waits for more alerts."""
    config = yaml.safe_load(CONFIG.read_text())
    for one in config["receivers"]:
        one["webhook_configs"] = [{"url": f"http://127.0.0.1:{received[0]}/{one['name']}"}]
    for route in (config["route"], *config["route"]["routes"]):
        route["group_wait"] = "1s"
    file = tmp_path / "alertmanager.yml"
    file.write_text(yaml.safe_dump(config))
    url = f"http://127.0.0.1:{free_port()}"
    process = subprocess.Popen(
        [
            program("prometheus-alertmanager"), f"--config.file={file}",
            "--cluster.listen-address=", f"--storage.path={tmp_path / 'data'}",
            f"--web.listen-address={url.removeprefix('http://')}",
        ],
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    deadline = time.monotonic() + 60
    try:
        while True:
            try:
                httpx2.get(f"{url}/-/ready", timeout=60).raise_for_status()
                break
            except httpx2.HTTPError:
                assert process.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.1)
        yield url
    finally:
        process.terminate()
        process.wait()


def test_a_page_is_sent_and_its_slower_windows_are_not(
    alertmanager: str, received: tuple[int, Received]
) -> None:
    burning = [rule for rule in ALERTS if rule["alert"] == "VersoAvailabilityBurn"]
    other = next(rule for rule in ALERTS if rule["labels"] == {"severity": "ticket"})
    fired = [
        {"labels": {"alertname": rule["alert"], **rule["labels"]}, "annotations": {"summary": "x"}}
        for rule in [*burning, other]
    ]
    httpx2.post(f"{alertmanager}/api/v2/alerts", json=fired, timeout=60).raise_for_status()
    found: dict[str, set[str]] = {}
    while set(found) != {"page", "ticket"}:
        receiver, note = received[1].get(timeout=60)
        found.setdefault(receiver, set()).update(
            f"{one['labels']['alertname']} {one['labels'].get('window', '')}".strip()
            for one in note["alerts"]
        )
    paged = {rule["labels"]["window"] for rule in burning if rule["labels"]["severity"] == "page"}
    assert found == {
        "page": {f"VersoAvailabilityBurn {window}" for window in paged},
        "ticket": {other["alert"]},
    }

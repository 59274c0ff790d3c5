"""The platform of docker-compose.yml under load, watched by a real Prometheus.

Figures add up to what the client did; no panel is empty; alerts fire and clear with their faults;
no log holds a text or a secret.
"""

from __future__ import annotations

import json
import signal
import socket
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2
import pytest

from verso_client import Client, Document, Training
from verso_core.jobs import Status

if TYPE_CHECKING:
    from tests.ops.conftest import Site

ROOT = Path(__file__).parents[2]
DASHBOARDS = sorted((ROOT / "services/monitoring/dashboards").glob("*.json"))
GATEWAYS = ["gateway-0", "gateway-1"]
WORKERS = ["worker-0", "worker-1"]
PROCESSES = [*GATEWAYS, "syslog", *WORKERS, "keeper", "trainer"]
DOCUMENTS = 240
SEARCHES = 30
EMBEDS = 40
SCRAPED_S = 6.0
"""Time in which Prometheus has surely seen every process, seconds."""
CLASSIFIED = 40
# Words that no log may hold: part of every text, of every query, of metadata.
SECRETS = ("quetzalcoatl", "xylographer", "zugzwang")
QUIET_S = 240.0

pytestmark = pytest.mark.timeout(1800)


def documents() -> list[Document]:
    return [
        Document(
            f"2026-11-21T12:00:{n % 60:02d}Z host-{n % 7} sshd[{1000 + n}]: session {n} opened "
            f"for user {SECRETS[0]}-{n * 7919 % 1000} by {('badge', 'telephone')[n % 2]}",
            id=f"line/{n}",
            metadata={"owner": SECRETS[2], "shift": ("day", "night")[n % 2]},
        )
        for n in range(DOCUMENTS)
    ]


@pytest.fixture(scope="module")
def loaded(site: Site) -> Site:
    """The site after a load whose every request the client has counted."""
    one, two = (Client(site.url(name), api_key=site.key) for name in GATEWAYS)
    with one, two:
        texts = documents()
        half = len(texts) // 2
        jobs = [*one.submit(texts[:half]), *two.submit(texts[half:])]
        for job in jobs:
            assert one.wait(job.id, timeout_s=600).failed == 0
        for n in range(SEARCHES):
            client = (one, two)[n % 2]
            assert client.search(f"session of {SECRETS[1]} number {n}", limit=3)
        for n in range(EMBEDS):
            (one, two)[n % 2].embed([f"{SECRETS[1]} {n}"])
        ids = [str(text.id) for text in texts]
        found = {text.id: text.data for text in one.reconstruct(ids)}
        assert found == {str(text.id): str(text.text).encode() for text in texts}
        train(one)
        one.delete("line/0")
        deadline = time.monotonic() + QUIET_S
        while two.stats().verified < DOCUMENTS - 1:
            assert time.monotonic() < deadline
            time.sleep(1)
    return site


@pytest.fixture(scope="module")
def fed(loaded: Site) -> Site:
    """The site after agents sent it log records, by every protocol.

    In two turns: a rate is known from the second on. The figures of texts are counted before.
    """
    site = loaded
    headers = {"X-API-Key": site.key}
    entry = {"stream": {"job": "shop"}, "values": [["1795405566123456789", SECRETS[0]]]}
    record = {"body": {"stringValue": SECRETS[0]}}
    document = {"message": SECRETS[0]}
    for turn in range(2):
        with httpx2.Client(base_url=site.url("gateway-0"), headers=headers, timeout=60) as client:
            for path, body in (
                ("/v1/logs", {"resourceLogs": [{"scopeLogs": [{"logRecords": [record]}]}]}),
                ("/loki/api/v1/push", {"streams": [entry]}),
            ):
                client.post(path, json=body).raise_for_status()
            rows = f'{{"index": {{"_index": "shop"}}}}\n{json.dumps(document)}\n'
            bulk = {"Content-Type": "application/x-ndjson"}
            client.post("/es/_bulk", content=rows, headers=bulk).raise_for_status()
        address = ("127.0.0.1", site.ports["syslog"])
        with socket.create_connection(address, timeout=60) as connection:
            connection.sendall(f"<165>1 - web-1 shop 7 - - {SECRETS[0]}\n".encode())
        if turn == 0:
            time.sleep(SCRAPED_S)
    return site


def train(verso: Client) -> None:
    """Have a head trained, promoted, and trained again, so that a canary stands beside it."""
    training = Training("shift", collection="default", label_key="shift", share=0.5)
    for promoted in (True, False):
        job = verso.wait(verso.train(training).id, timeout_s=600)
        assert job.status is Status.SUCCEEDED, job.error
        if promoted:
            verso.promote("shift")
    for n in range(CLASSIFIED):
        if n == CLASSIFIED // 2:
            time.sleep(SCRAPED_S)  # the rate of a counter is known from its second scrape on
        [one] = verso.classify("shift", texts=[f"{SECRETS[1]} by telephone, number {n}"])
        assert one.heads[0].head == "shift"


def test_the_figures_of_all_processes_add_up_to_the_clients_own_count(loaded: Site) -> None:
    """Two gateways, two workers, one queue: nothing is counted twice and nothing is missed."""
    ok = r'verso_requests_total\{status="2xx",task="%s"\}'
    assert loaded.total(GATEWAYS, ok % "search") == SEARCHES
    assert loaded.total(GATEWAYS, ok % "embed") == EMBEDS
    for gateway in GATEWAYS:
        assert loaded.total([gateway], ok % "search") == SEARCHES / 2
    done = r'verso_worker_items_total\{status="%s",task="%s"\}'
    assert loaded.total(WORKERS, done % ("ok", "ingest")) == DOCUMENTS
    assert loaded.total(WORKERS, done % ("ok", "search")) == SEARCHES
    assert loaded.total(WORKERS, done % ("error", "ingest")) == 0
    size = sum(len(str(text.text).encode()) for text in documents())
    assert loaded.total(WORKERS, r"verso_text_bytes_total") == size
    assert loaded.total(WORKERS, r"verso_records_written_total\{.*\}") >= DOCUMENTS
    assert loaded.total(WORKERS, r"verso_restored_bytes_total") >= size
    ended = r'verso_jobs_ended_total\{status="succeeded",task="search"\}'
    assert loaded.total(["keeper"], ended) == SEARCHES
    asked = r'verso_head_items_total\{channel="%s",head="shift",status="\w+",task="classify"\}'
    by_channel = [loaded.total(WORKERS, asked % channel) for channel in ("stable", "canary")]
    assert all(by_channel)
    assert sum(by_channel) == CLASSIFIED
    assert loaded.total(["trainer"], r'verso_trainings_total\{status="done"\}') == 2


def test_both_workers_took_part(loaded: Site) -> None:
    for worker in WORKERS:
        assert loaded.total([worker], r"verso_worker_slices_total\{.*\}") > 0


def queries() -> Iterator[tuple[str, str]]:
    for path in DASHBOARDS:
        for panel in json.loads(path.read_text())["panels"]:
            for target in panel.get("targets", []):
                yield (
                    f"{path.stem}: {panel['title']}",
                    target["expr"].replace("$__rate_interval", "1h"),
                )


def test_no_panel_of_any_dashboard_is_empty(fed: Site) -> None:
    """Prometheus gives data for every query; a panel of figures must hold one that is a number."""
    empty: dict[str, str] = {}
    for _ in range(15):  # recorded ratios come a little after what they are made of
        empty = {name: query for name, query in queries() if not numbers(fed.ask(query))}
        if not empty:
            return
        time.sleep(4)
    assert not empty


def numbers(found: list[dict[str, Any]]) -> list[str]:
    return [one["value"][1] for one in found if one["value"][1] != "NaN"]


def test_prometheus_scrapes_all_and_evaluates_every_rule_without_a_fault(loaded: Site) -> None:
    up = loaded.ask('up{job=~"gateway|syslog|worker|keeper|trainer"}')
    assert len(up) == len(PROCESSES)
    assert {one["value"][1] for one in up} == {"1"}
    address = f"{loaded.url('prometheus')}/api/v1/rules"
    with urllib.request.urlopen(address, timeout=30) as answer:  # noqa: S310 - our own address
        groups = json.load(answer)["data"]["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    assert rules
    assert {rule["name"]: rule["lastError"] for rule in rules if rule.get("lastError")} == {}


def await_alerts(site: Site, wanted: set[str], *, timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while not wanted <= site.firing():
        assert time.monotonic() < deadline, f"only {site.firing()} fire"
        time.sleep(2)


def await_silence(site: Site, ended: set[str]) -> None:
    deadline = time.monotonic() + QUIET_S
    while ended & site.firing():
        assert time.monotonic() < deadline, f"still {site.firing()}"
        time.sleep(2)


def test_alerts_fire_with_their_fault_and_clear_without_it(loaded: Site) -> None:
    """Stopped workers and a stopped gateway, then a stopped ledger; each goes on afterwards."""
    faults = {"VersoNoConsumer", "VersoTargetDown", "VersoLedgerDown"}
    await_silence(loaded, faults)
    stopped = [*WORKERS, "gateway-1"]
    for name in stopped:
        loaded.signal(name, signal.SIGSTOP)
    try:
        await_alerts(loaded, {"VersoNoConsumer", "VersoTargetDown"}, timeout_s=300)
    finally:
        for name in stopped:
            loaded.signal(name, signal.SIGCONT)
    await_silence(loaded, faults)
    loaded.signal("ledger", signal.SIGSTOP)
    try:
        await_alerts(loaded, {"VersoLedgerDown"}, timeout_s=180)
    finally:
        loaded.signal("ledger", signal.SIGCONT)
    await_silence(loaded, faults)
    with Client(loaded.url("gateway-1"), api_key=loaded.key) as verso:
        assert verso.get("line/1").data == str(documents()[1].text).encode()


def test_logs_are_json_with_the_slice_and_hold_no_text_and_no_secret(loaded: Site) -> None:
    slices = 0
    for name in PROCESSES:
        log = loaded.log(name)
        assert log.strip(), name
        for word in (*SECRETS, loaded.key, loaded.keys_file.read_text().split()[1]):
            assert word not in log, f"{name} logged {word!r}"
        for line in log.splitlines():
            row = json.loads(line)
            assert {"time", "level", "service", "logger", "message"} <= row.keys()
            slices += name in (*WORKERS, "trainer") and {"job", "slice"} <= row.keys()
    assert slices > 0

"""Metrics, dashboards, alerts: each names only what exists, and nothing exists unnamed."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import yaml
from prometheus_client import CollectorRegistry, generate_latest

from verso_core.jobs import Collection, Queue
from verso_core.jobs.moves import Move
from verso_gateway.metrics import Metrics as GatewayMetrics
from verso_keeper.collector import LedgerCollector
from verso_ledger import Backlog, Depth, Health, Ledger, Scrub, Server
from verso_training.service.metrics import Metrics as TrainerMetrics
from verso_worker.metrics import Metrics as WorkerMetrics
from verso_worker.resource_metrics import ResourceMetrics, Running

ROOT = Path(__file__).parents[2]
MONITORING = ROOT / "services/monitoring"
DASHBOARDS = sorted((MONITORING / "dashboards").glob("*.json"))
RULES = sorted((MONITORING / "rules").glob("*.yml"))
RUNBOOKS = ROOT / "docs/how-to/runbooks"
RULE_TESTS = ROOT / "tests/monitoring"
LANE = {"batches": 1, "texts": 2, "failed": 0, "tokens": 9, "busy_s": 0.5, "waiting": 0}
# What Prometheus makes itself, and what every process shows.
FOREIGN = {"up", "process_resident_memory_bytes", "process_cpu_seconds_total", "process_open_fds"}
_NAME = re.compile(r"(?<![\w:])(?:verso:[\w:]+|verso_\w+|process_\w+|up)\b(?!\s*\()")


class QuietLedger:
    """Counts of a ledger in which nothing happens."""

    def depths(self) -> dict[Queue, Depth]:
        return {queue: Depth(0, 0, 0, 0.0) for queue in Queue}

    def backlog(self) -> Backlog:
        return Backlog(0, 0, 0, 0, 0, {})

    def health(self) -> Health:
        return Health(1.0, 1.0)

    def state(self) -> Scrub:
        return Scrub(0, 1, 1.0, None, "", 0, None, 0, 0.0, False, 2.0)

    def collections(self) -> dict[str, Collection]:
        return {}

    def all(self) -> dict[str, Move]:
        return {}


class QuietWorker:
    """A dispatcher and a store with one engine, at rest."""

    def slots(self) -> dict[Queue, tuple[int, int]]:
        return dict.fromkeys(Queue, (0, 1))

    def engines(self) -> dict[str, Running]:
        return {"codec": Running("space-codec", "stable", pid=1, restarts=0)}

    def figures(self, codec: str) -> dict[str, dict[str, float]]:
        return {"encode": LANE}


def exposed() -> set[str]:
    """Return the names of every series the parts expose before any work was done."""
    registry = CollectorRegistry()
    WorkerMetrics(registry)
    TrainerMetrics(registry)
    quiet = QuietWorker()
    registry.register(ResourceMetrics(quiet, quiet, data=Path("/"), floor_mib=1))
    server = Server(append_ok=True, memory_bytes=1, memory_limit_bytes=2, clients=3)
    parts = dict.fromkeys(("documents", "liveness", "maintenance", "scrub", "moves"), QuietLedger())
    ledger = cast("Ledger", SimpleNamespace(**parts))
    registry.register(LedgerCollector(ledger, server=lambda: server))
    gateway = GatewayMetrics()
    gateway.create_tasks(["any"])
    pages = generate_latest(registry) + gateway.page()
    # a head's label sets exist once it was asked, so a family may still be without series
    families = re.findall(r"^# TYPE (verso_\w+) (?:counter|gauge)", pages.decode(), re.MULTILINE)
    names = {*families, *re.findall(r"^(verso_\w+)", pages.decode(), re.MULTILINE)}
    return {name for name in names if not name.endswith("_created")}


def groups(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = yaml.safe_load(path.read_text())["groups"]
    return found


def rules(kind: str) -> dict[str, dict[str, Any]]:
    """Return all rules of a kind, ``record`` or ``alert``, by name (an alert may have several)."""
    return {
        rule[kind] + str(number): rule
        for path in RULES
        for group in groups(path)
        for number, rule in enumerate(group["rules"])
        if kind in rule
    }


def known() -> set[str]:
    return exposed() | FOREIGN | {rule["record"] for rule in rules("record").values()}


ALERTS = rules("alert")


def test_every_metric_is_documented() -> None:
    page = (ROOT / "docs/reference/metrics.md").read_text()
    documented = set(re.findall(r"`(verso_\w+)`", page))
    assert {re.sub(r"_(bucket|count|sum)$", "", name) for name in exposed()} == documented


def test_labels_hold_no_ids_tenants_or_texts() -> None:
    page = (ROOT / "docs/reference/metrics.md").read_text()
    labels = {
        label
        for line in page.splitlines()
        if line.startswith("| `verso_")
        for label in re.findall(r"`(\w+)`", line.strip("|").split("|")[2])
        if not label.startswith(("2", "verso_"))
    }
    assert {"task", "queue", "status", "model"} <= labels
    assert not labels & {"id", "job", "slice", "tenant", "text", "key", "document"}


def panels(path: Path) -> Iterator[dict[str, Any]]:
    for panel in json.loads(path.read_text())["panels"]:
        if panel["type"] != "row":
            yield panel


def test_the_dashboards_are_the_six_and_their_uids_differ() -> None:
    uids = {path.stem: json.loads(path.read_text())["uid"] for path in DASHBOARDS}
    assert set(uids) == {"overview", "ingest", "feed", "workers", "models", "storage"}
    assert len(set(uids.values())) == len(uids)


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_a_dashboard_shows_only_metrics_that_exist(path: Path) -> None:
    names = known()
    ids = [panel["id"] for panel in json.loads(path.read_text())["panels"]]
    assert len(ids) == len(set(ids))
    for panel in panels(path):
        assert panel["datasource"]["uid"] == "${datasource}"
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        assert panel["description"], panel["title"]
        assert panel["targets"]
        for target in panel["targets"]:
            named = set(_NAME.findall(target["expr"]))
            assert named, panel["title"]
            assert named <= names, panel["title"]


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_panels_of_a_dashboard_do_not_overlap(path: Path) -> None:
    taken: set[tuple[int, int]] = set()
    for panel in json.loads(path.read_text())["panels"]:
        at = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert at["x"] + at["w"] <= 24, panel["title"]
        assert not cells & taken, panel["title"]
        taken |= cells


def test_prometheus_and_kubernetes_load_every_rule_and_dashboard() -> None:
    config = yaml.safe_load((MONITORING / "prometheus.yml").read_text())
    assert config["rule_files"] == ["rules/*.yml"]
    kustomization = (MONITORING / "kustomization.yaml").read_text()
    for path in [*RULES, *DASHBOARDS]:
        assert str(path.relative_to(MONITORING)) in kustomization


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_names_metrics_a_severity_and_a_runbook_that_exist(name: str) -> None:
    alert = ALERTS[name]
    named = set(_NAME.findall(alert["expr"]))
    assert named
    assert named <= known()
    assert alert["labels"]["severity"] in ("page", "ticket")
    runbook = ROOT / alert["annotations"]["runbook_url"]
    assert runbook.parent == RUNBOOKS
    text = runbook.read_text()
    assert alert["alert"] in text
    for part in ("## What it means", "## Look", "## Do"):
        assert part in text, f"{runbook.name} lacks {part}"


def test_the_guide_names_every_alert_and_its_page() -> None:
    guide = (ROOT / "docs/how-to/operate.md").read_text()
    told = {
        (name, page)
        for names, page in re.findall(r"^\| (`Verso.+?) \|.+\]\((\S+)\) \|$", guide, re.MULTILINE)
        for name in re.findall(r"`(\w+)`", names)
    }
    linked = {
        (alert["alert"], alert["annotations"]["runbook_url"].removeprefix("docs/how-to/"))
        for alert in ALERTS.values()
    }
    assert told == linked


def test_no_runbook_is_without_its_alert() -> None:
    named = {Path(alert["annotations"]["runbook_url"]).name for alert in ALERTS.values()}
    assert {page.name for page in RUNBOOKS.glob("*.md")} == named


def test_every_alert_has_a_test_in_which_it_fires_and_one_in_which_it_does_not() -> None:
    fires: set[str] = set()
    quiet: set[str] = set()
    for path in RULE_TESTS.glob("*.yml"):
        for test in yaml.safe_load(path.read_text())["tests"]:
            for case in test.get("alert_rule_test", []):
                (fires if case.get("exp_alerts") else quiet).add(case["alertname"])
    alerts = {alert["alert"] for alert in ALERTS.values()}
    assert fires == alerts
    assert quiet == alerts


def test_promtool_reads_every_query_of_every_panel(tmp_path: Path) -> None:
    """Each query stands in a recording rule, since there is no other way to have one parsed."""
    promtool = shutil.which("promtool")
    if promtool is None:
        if os.environ.get("CI"):
            pytest.fail("promtool is not installed")
        pytest.skip("promtool is not installed")
    recorded = [
        {
            "record": f"panel:{path.stem}:{panel['id']}_{target['refId']}",
            "expr": target["expr"].replace("$__rate_interval", "5m"),
        }
        for path in DASHBOARDS
        for panel in panels(path)
        for target in panel["targets"]
    ]
    file = tmp_path / "panels.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": recorded}]}))
    done = subprocess.run(
        [promtool, "check", "rules", str(file)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr

"""The check of a cluster asks kubectl for what it says.

A stand-in writes down its arguments: no cluster is at hand here. The rest of the check has a test
on a platform (``tests/e2e/test_check_cluster.py``).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from tests.ops.check_cluster import Cluster

STAND_IN = """
import json, sys
with open({log!r}, "a") as log:
    log.write(json.dumps(sys.argv[1:]) + "\\n")
words = sys.argv[3:]
if words[:2] == ["get", "statefulset"]:
    print("statefulset.apps/ledger")
elif words[:2] == ["get", "deployment"]:
    print("deployment.apps/gateway\\ndeployment.apps/worker")
elif words[:2] == ["get", "pod"]:
    print("pod/worker-1\\npod/worker-2")
"""


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "asked.jsonl"


@pytest.fixture
def cluster(tmp_path: Path, log: Path) -> Cluster:
    program = tmp_path / "kubectl.py"
    program.write_text(STAND_IN.format(log=str(log)))
    return Cluster([sys.executable, str(program)], "verso")


def asked(log: Path) -> list[list[str]]:
    rows = [json.loads(line) for line in log.read_text().splitlines()]
    assert all(row[:2] == ["-n", "verso"] for row in rows)
    return [row[2:] for row in rows]


def test_secrets_are_made_only_where_they_are_missing(
    cluster: Cluster, log: Path, tmp_path: Path
) -> None:
    key = cluster.prepare(tmp_path)
    assert key.startswith("vk_")
    made = [row for row in asked(log) if row[0] == "create"]
    assert [row[1] for row in made] == ["namespace", "secret", "secret"]
    words = [word.partition("=")[0] for word in made[1][4:]]
    assert words == ["--from-literal"] * 3
    assert made[2][3] == "verso-api-keys"
    assert key not in (tmp_path / "api-keys").read_text()  # its hash alone


def test_an_overlay_is_applied_and_all_of_it_is_waited_for(cluster: Cluster, log: Path) -> None:
    cluster.apply(Path("k8s/overlays/local"))
    cluster.wait(60)
    assert ["apply", "-k", "k8s/overlays/local"] in asked(log)
    waited = [row[2] for row in asked(log) if row[:2] == ["rollout", "status"]]
    assert waited == [
        "statefulset.apps/ledger",
        "deployment.apps/gateway",
        "deployment.apps/worker",
    ]


def test_one_pod_of_a_part_is_deleted_without_grace(cluster: Cluster, log: Path) -> None:
    cluster.kill("worker")
    assert asked(log)[-1] == [
        "delete", "pod/worker-1", "--grace-period=0", "--force", "--wait=false",
    ]  # fmt: skip

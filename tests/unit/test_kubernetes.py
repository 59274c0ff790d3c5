"""The overlays as they are rendered: strictly valid, and every name they use leads somewhere."""

from __future__ import annotations

import functools
import json
import os
import runpy
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

ROOT = Path(__file__).parents[2]
KUBERNETES = "1.37"
OVERLAYS = [path.name for path in sorted((ROOT / "k8s/overlays").iterdir())]
COMPONENTS = [path.name for path in sorted((ROOT / "k8s/components").iterdir())]
CRDS = {
    path.stem: json.loads(path.read_text()) for path in (ROOT / "tests/data/crds").glob("*.json")
}
WORKLOADS = ("Deployment", "StatefulSet", "Job", "CronJob")
EXTERNAL = {
    ("Secret", "verso-api-keys"),
    ("Secret", "verso-operator-key"),
    ("Secret", "verso-store-passwords"),
}  # made by the operator, never in a repository
# What a worker finds on a volume when the component is there.
MOUNTS = {
    "backup": {"/data/artifacts", "/data/heads"},
    "http-route": set(),
    "ingress": set(),
    "migrate": set(),
    "model-image": {"/opt/models"},
    "model-init": {"/opt/models"},
    "remote-stores": set(),
    "results": {"/results"},
    "syslog": set(),
    "traces": set(),
    "trainer": {"/opt/models"},
    "webhooks": set(),
    "worker-canary": set(),
}
each_overlay = pytest.mark.parametrize("overlay", OVERLAYS)

Document = dict[str, Any]


@functools.cache
def render(folder: Path) -> tuple[Document, ...]:
    beside = Path(sys.executable).parent  # where its wheel puts it
    kubectl = shutil.which("kubectl", path=f"{beside}{os.pathsep}{os.environ['PATH']}")
    if kubectl is None:
        if os.environ.get("CI"):
            pytest.fail("kubectl is not installed")
        pytest.skip("kubectl is not installed")
    done = subprocess.run(
        [kubectl, "kustomize", str(folder)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    # by libyaml: the parser in Python takes ten times as long
    return tuple(one for one in yaml.load_all(done.stdout, yaml.CSafeLoader) if one)


def rendered(overlay: str) -> tuple[Document, ...]:
    return render(ROOT / "k8s/overlays" / overlay)


def validate(document: Document) -> None:
    """Validate an object once: most are in several overlays."""
    _validate(json.dumps(document, sort_keys=True, default=str))


@functools.cache
def _validate(text: str) -> None:
    document: Document = json.loads(text)
    if (schema := CRDS.get(document["kind"])) is not None:
        jsonschema.validate(document, schema)
    else:
        kubernetes_validate.validate(document, KUBERNETES, strict=True)


def of_kind(documents: tuple[Document, ...], *kinds: str) -> Iterator[Document]:
    return (document for document in documents if document["kind"] in kinds)


def template(workload: Document) -> Document:
    spec: Document = workload["spec"]
    if workload["kind"] == "CronJob":
        spec = spec["jobTemplate"]["spec"]
    found: Document = spec["template"]
    return found


def labels_of_pods(documents: tuple[Document, ...]) -> list[Mapping[str, str]]:
    return [template(one)["metadata"]["labels"] for one in of_kind(documents, *WORKLOADS)]


def matches(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Whether a label selector, with or without expressions, chooses these labels."""
    plain = selector.get("matchLabels", {} if "matchExpressions" in selector else selector)
    if any(labels.get(key) != value for key, value in plain.items()):
        return False
    for one in selector.get("matchExpressions", []):
        assert one["operator"] == "In"
        if labels.get(one["key"]) not in one["values"]:
            return False
    return True


def with_components(components: Sequence[str], overlay: str, folder: Path) -> Path:
    """Return an overlay that uses components, in a copy of the tree: kustomize looks no further."""
    shutil.copytree(ROOT / "k8s", folder / "k8s")
    shutil.copytree(ROOT / "services/monitoring", folder / "services/monitoring")
    path = folder / "k8s/overlays" / overlay / "kustomization.yaml"
    used = ", ".join(f"../../components/{name}" for name in components)
    path.write_text(path.read_text() + f"components: [{used}]\n")
    return path.parent


@each_overlay
def test_an_overlay_renders_to_valid_objects(overlay: str) -> None:
    documents = rendered(overlay)
    names = [(one["kind"], one["metadata"]["name"]) for one in documents]
    assert len(names) == len(set(names))
    for document in documents:
        validate(document)


@each_overlay
def test_every_object_is_labelled_and_lives_in_one_namespace(overlay: str) -> None:
    for document in rendered(overlay):
        meta = document["metadata"]
        if document["kind"] == "Namespace":
            continue
        assert meta["namespace"] == "verso"
        if document["kind"] in WORKLOADS:
            for labels in (meta["labels"], template(document)["metadata"]["labels"]):
                for name in ("name", "instance", "version", "part-of", "managed-by"):
                    assert labels[f"app.kubernetes.io/{name}"]


@each_overlay
def test_every_selector_chooses_pods_that_exist(overlay: str) -> None:
    documents = rendered(overlay)
    pods = labels_of_pods(documents)
    for one in of_kind(documents, "Deployment", "StatefulSet"):
        assert matches(one["spec"]["selector"], template(one)["metadata"]["labels"])
        # a selector cannot be changed later, so no version stands in one
        assert list(one["spec"]["selector"]["matchLabels"]) == ["app.kubernetes.io/name"]
    for one in of_kind(documents, "Service"):
        assert any(matches(one["spec"]["selector"], labels) for labels in pods), one["metadata"]
    for one in of_kind(documents, "PodDisruptionBudget"):
        assert any(matches(one["spec"]["selector"], labels) for labels in pods), one["metadata"]
    for one in of_kind(documents, "NetworkPolicy"):
        spec = one["spec"]
        chosen = [spec["podSelector"]]
        for rule in [*spec.get("ingress", []), *spec.get("egress", [])]:
            ends = [*rule.get("from", []), *rule.get("to", [])]
            chosen += [end["podSelector"] for end in ends if "podSelector" in end]
        for selector in chosen:
            assert any(matches(selector, labels) for labels in pods), one["metadata"]["name"]


def ports_of(workload: Document) -> set[int | str]:
    ports: set[int | str] = set()
    for container in template(workload)["spec"]["containers"]:
        for port in container.get("ports", []):
            ports |= {port["containerPort"], port["name"]}
    return ports


def check_opened(documents: tuple[Document, ...]) -> None:
    """Check that a policy opens no port of a pod that the pod does not have."""
    for policy in of_kind(documents, "NetworkPolicy"):
        spec = policy["spec"]
        opened = [(spec["podSelector"], rule) for rule in spec.get("ingress", [])]
        for rule in spec.get("egress", []):
            opened += [(end["podSelector"], rule) for end in rule["to"] if "podSelector" in end]
        for selector, rule in opened:
            for one in of_kind(documents, *WORKLOADS):
                if matches(selector, template(one)["metadata"]["labels"]):
                    ports = {port["port"] for port in rule["ports"]}
                    assert ports <= ports_of(one), (policy["metadata"]["name"], one["metadata"])


@each_overlay
def test_services_and_policies_name_ports_that_their_pods_have(overlay: str) -> None:
    documents = rendered(overlay)
    for service in of_kind(documents, "Service"):
        for one in of_kind(documents, *WORKLOADS):
            if matches(service["spec"]["selector"], template(one)["metadata"]["labels"]):
                for port in service["spec"]["ports"]:
                    target = port.get("targetPort", port["port"])
                    assert target in ports_of(one), service["metadata"]["name"]
    check_opened(documents)


@each_overlay
def test_pods_mount_only_what_is_there_and_meet_the_restricted_standard(overlay: str) -> None:
    check_pods(rendered(overlay))


def check_pods(documents: tuple[Document, ...]) -> None:
    there = {(one["kind"], one["metadata"]["name"]) for one in documents} | EXTERNAL
    for one in of_kind(documents, *WORKLOADS):
        pod = template(one)["spec"]
        assert pod["automountServiceAccountToken"] is False
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["runAsUser"] == 10001
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        claims = one["spec"].get("volumeClaimTemplates", [])
        volumes = {
            volume["name"] for volume in [*pod.get("volumes", []), *(c["metadata"] for c in claims)]
        }
        for volume in pod.get("volumes", []):
            if "configMap" in volume:
                assert ("ConfigMap", volume["configMap"]["name"]) in there
            if "secret" in volume:
                assert ("Secret", volume["secret"]["secretName"]) in there
            if (claim := volume.get("persistentVolumeClaim")) is not None:
                assert ("PersistentVolumeClaim", claim["claimName"]) in there
        for container in [*pod["containers"], *pod.get("initContainers", [])]:
            security = container["securityContext"]
            assert security["allowPrivilegeEscalation"] is False
            assert security["readOnlyRootFilesystem"] is True
            assert security["capabilities"] == {"drop": ["ALL"]}
            assert "memory" in container["resources"]["limits"]
            assert "cpu" not in container["resources"]["limits"], (
                "a limit on cores only adds latency"
            )
            assert {mount["name"] for mount in container.get("volumeMounts", [])} <= volumes
            for source in container.get("envFrom", []):
                assert ("ConfigMap", source["configMapRef"]["name"]) in there
            for row in container.get("env", []):
                if "secretKeyRef" in (origin := row.get("valueFrom", {})):
                    assert ("Secret", origin["secretKeyRef"]["name"]) in there


@each_overlay
def test_whatever_serves_is_probed_and_the_worker_by_its_heartbeat(overlay: str) -> None:
    for one in of_kind(rendered(overlay), "Deployment", "StatefulSet"):
        [container] = template(one)["spec"]["containers"]
        assert "livenessProbe" in container or "readinessProbe" in container
        if one["metadata"]["name"] == "worker":
            probe = " ".join(container["livenessProbe"]["exec"]["command"])
            environment = {row["name"]: row.get("value") for row in container["env"]}
            assert environment["VERSO_HEARTBEAT_FILE"] in probe
            grace_s = template(one)["spec"]["terminationGracePeriodSeconds"]
            assert grace_s > float(environment["VERSO_DRAIN_S"])


def test_nothing_may_be_reached_or_reach_out_unless_it_is_said() -> None:
    [deny] = [
        one
        for one in of_kind(rendered("cpu"), "NetworkPolicy")
        if one["spec"]["podSelector"] == {}
        and "ingress" not in one["spec"]
        and "egress" not in one["spec"]
    ]
    assert deny["spec"]["policyTypes"] == ["Ingress", "Egress"]


def test_workers_ask_of_qdrants_cluster_what_it_gives_by_default() -> None:
    """A majority of the nodes has each write, so that it survives one and waits for none."""

    def settings(kind: str, name: str) -> dict[str, str]:
        [found] = [one for one in of_kind(ha, kind) if one["metadata"]["name"] == name]
        [container] = template(found)["spec"]["containers"]
        return {one["name"]: one.get("value", "") for one in container["env"]}

    ha = rendered("ha")
    worker, qdrant = settings("Deployment", "worker"), settings("StatefulSet", "qdrant")
    [cluster] = [one for one in of_kind(ha, "StatefulSet") if one["metadata"]["name"] == "qdrant"]
    for name, wanted in (("REPLICATION_FACTOR", "3"), ("WRITE_CONSISTENCY_FACTOR", "2")):
        assert worker[f"VERSO_QDRANT_{name}"] == wanted
        assert qdrant[f"QDRANT__STORAGE__COLLECTION__{name}"] == wanted
    assert cluster["spec"]["replicas"] == 3


def test_keda_scales_a_deployment_whose_number_nobody_else_sets() -> None:
    documents = rendered("keda")
    [scaled] = of_kind(documents, "ScaledObject")
    [target] = [
        one
        for one in of_kind(documents, "Deployment")
        if one["metadata"]["name"] == scaled["spec"]["scaleTargetRef"]["name"]
    ]
    assert "replicas" not in target["spec"]
    [trigger] = scaled["spec"]["triggers"]
    assert "queued|running" in trigger["metadata"]["query"]
    assert trigger["metadata"]["ignoreNullValues"] == "false"
    assert scaled["spec"]["fallback"]["replicas"] >= 1


def test_a_service_monitor_finds_its_service_and_names_the_job_that_alerts_go_by(
    tmp_path: Path,
) -> None:
    overlay = with_components(
        ["syslog", "trainer", "worker-canary"], "prometheus-operator", tmp_path
    )
    documents = render(overlay)
    services = list(of_kind(documents, "Service"))
    config = yaml.safe_load((ROOT / "services/monitoring/prometheus.yml").read_text())
    jobs = set()
    for monitor in of_kind(documents, "ServiceMonitor"):
        found = [
            one
            for one in services
            if matches(monitor["spec"]["selector"], one["metadata"]["labels"])
        ]
        assert len(found) == (2 if monitor["metadata"]["name"] == "worker" else 1)
        [endpoint] = monitor["spec"]["endpoints"]
        for service in found:
            assert endpoint["port"] in {port["name"] for port in service["spec"]["ports"]}
        [relabeling] = endpoint["relabelings"]
        jobs.add(relabeling["replacement"])
    assert jobs == {one["job_name"] for one in config["scrape_configs"]}


def test_the_operators_rules_are_the_rules() -> None:
    script = runpy.run_path(str(ROOT / "services/monitoring/operator_rules.py"))
    assert script["TARGET"].read_text() == script["rendered"](), "run operator_rules.py"


@pytest.mark.parametrize("component", COMPONENTS)
def test_a_component_fits_into_an_overlay(component: str, tmp_path: Path) -> None:
    documents = render(with_components([component], "cpu", tmp_path))
    for document in documents:
        validate(document)
    [worker] = [
        one for one in of_kind(documents, "Deployment") if one["metadata"]["name"] == "worker"
    ]
    [container] = template(worker)["spec"]["containers"]
    assert MOUNTS[component] <= {mount["mountPath"] for mount in container["volumeMounts"]}
    check_pods(documents)
    check_opened(documents)


@pytest.mark.parametrize("component", ["http-route", "ingress"])
def test_a_way_in_leads_to_a_port_of_the_gateways_service(component: str, tmp_path: Path) -> None:
    documents = render(with_components([component], "cpu", tmp_path))
    [service] = [
        one for one in of_kind(documents, "Service") if one["metadata"]["name"] == "gateway"
    ]
    [way] = of_kind(documents, "HTTPRoute", "Ingress")
    [rule] = way["spec"]["rules"]
    if component == "ingress":
        [path] = rule["http"]["paths"]
        backend = path["backend"]["service"]
        assert backend["port"]["name"] in {port["name"] for port in service["spec"]["ports"]}
        assert way["spec"]["tls"][0]["hosts"] == [rule["host"]]
    else:
        [backend] = rule["backendRefs"]
        assert backend["port"] in {port["port"] for port in service["spec"]["ports"]}
    assert backend["name"] == service["metadata"]["name"]


def test_a_worker_on_trial_is_a_worker_of_another_image_that_may_do_what_workers_may(
    tmp_path: Path,
) -> None:
    documents = render(with_components(["worker-canary", "backup"], "gpu", tmp_path))
    worker, canary = (
        next(one for one in of_kind(documents, "Deployment") if one["metadata"]["name"] == name)
        for name in ("worker", "worker-canary")
    )
    assert canary["spec"]["replicas"] == 1
    pods = [template(one) for one in (worker, canary)]
    images = [pod["spec"]["containers"][0].pop("image") for pod in pods]
    assert images == ["verso-worker-gpu:0.1.0", "verso-worker-canary"]
    assert pods[0]["spec"] == pods[1]["spec"]
    name = "app.kubernetes.io/name"
    assert pods[1]["metadata"]["labels"][name] == "worker-canary"
    reach = [allowed(documents, pod["metadata"]["labels"]) for pod in pods]
    assert reach[0] == reach[1]
    assert ("out", "ledger", 6379) in reach[0]
    assert ("in", "ledger", 6379) in reach[0]


def allowed(
    documents: tuple[Document, ...], labels: Mapping[str, str]
) -> set[tuple[str, str, int]]:
    """Return what a pod may reach and by what it is let in: way, name of the other side, port."""
    found = set()
    for policy in of_kind(documents, "NetworkPolicy"):
        spec = policy["spec"]
        for other in labels_of_pods(documents):
            ours = [(rule, "to", "out") for rule in spec.get("egress", [])]
            theirs = [(rule, "from", "in") for rule in spec.get("ingress", [])]
            for rules, owner, end in ((ours, labels, other), (theirs, other, labels)):
                if not matches(spec["podSelector"], owner):
                    continue
                for rule, key, way in rules:
                    for peer in rule.get(key, []):
                        if "podSelector" in peer and matches(peer["podSelector"], end):
                            name = other["app.kubernetes.io/name"]
                            found |= {(way, name, port["port"]) for port in rule["ports"]}
    return found


def test_what_leaves_the_cluster_leaves_by_a_component(tmp_path: Path) -> None:
    def leaving(documents: tuple[Document, ...]) -> set[str]:
        return {
            policy["metadata"]["name"]
            for policy in of_kind(documents, "NetworkPolicy")
            for rule in policy["spec"].get("egress", [])
            if any("ipBlock" in end for end in rule["to"])
        }

    assert leaving(rendered("cpu")) == set()
    parts = ["webhooks", "traces", "remote-stores"]
    documents = render(with_components(parts, "cpu", tmp_path))
    assert leaving(documents) == {"webhooks", "remote-ledger", "remote-vectors"}
    [webhooks] = [
        one for one in of_kind(documents, "NetworkPolicy") if one["metadata"]["name"] == "webhooks"
    ]
    assert webhooks["spec"]["egress"][0]["ports"] == [{"port": 443}]
    blocks = [end["ipBlock"] for end in webhooks["spec"]["egress"][0]["to"]]
    assert "10.0.0.0/8" in blocks[0]["except"]


def test_stores_elsewhere_are_reached_by_all_that_use_them(tmp_path: Path) -> None:
    users = ["backup", "syslog", "trainer", "worker-canary"]
    documents = render(with_components(["remote-stores", "traces", *users], "cpu", tmp_path))
    policies = {one["metadata"]["name"]: one for one in of_kind(documents, "NetworkPolicy")}

    def selected(policy: str) -> set[str]:
        pods = labels_of_pods(documents)
        selector = policies[policy]["spec"]["podSelector"]
        return {pod["app.kubernetes.io/name"] for pod in pods if matches(selector, pod)}

    def reach(store: str) -> set[str]:
        return {
            pod["app.kubernetes.io/name"]
            for pod in labels_of_pods(documents)
            if any(way == "out" and name == store for way, name, _ in allowed(documents, pod))
        }

    assert selected("remote-ledger") == reach("ledger") > {"gateway", *users}
    assert selected("remote-vectors") == reach("qdrant") == {"backup", "worker", "worker-canary"}
    assert selected("traces") == reach("ledger") - {"backup"}


def test_a_worker_on_trial_keeps_large_results_where_workers_do(tmp_path: Path) -> None:
    documents = render(with_components(["worker-canary", "results"], "cpu", tmp_path))
    for one in of_kind(documents, "Deployment"):
        if one["metadata"]["name"] in ("worker", "worker-canary"):
            [container] = template(one)["spec"]["containers"]
            assert "/results" in {mount["mountPath"] for mount in container["volumeMounts"]}
            assert {"name": "VERSO_RESULTS", "value": "/results"} in container["env"]

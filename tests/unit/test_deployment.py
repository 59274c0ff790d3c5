"""The deployment files: valid, hardened, and naming only what exists."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from compose_spec import PyCompose

ROOT = Path(__file__).parents[2]
KUBERNETES = "1.37"
BASE = sorted((ROOT / "k8s/base").glob("*.yaml"))
SETTINGS = (
    "verso_gateway.settings",
    "verso_gateway.syslog.settings",
    "verso_keeper.settings",
    "verso_training.service.settings",
    "verso_worker.settings",
)

Document = dict[str, Any]


def documents(path: Path) -> list[Document]:
    return [document for document in yaml.safe_load_all(path.read_text()) if document]


def objects() -> Iterator[tuple[str, Document]]:
    for path in [*BASE, ROOT / "services/monitoring/services.yaml"]:
        if path.name != "kustomization.yaml":
            for document in documents(path):
                yield f"{path.name}:{document['kind']}/{document['metadata']['name']}", document


OBJECTS = dict(objects())
PODS = {
    name: document["spec"]["template"]["spec"]
    for name, document in OBJECTS.items()
    if document["kind"] in ("Deployment", "StatefulSet")
}


def known_settings() -> set[str]:
    names = set()
    for module_name in SETTINGS:
        for value in vars(importlib.import_module(module_name)).values():
            if isinstance(value, type) and hasattr(value, "model_fields"):
                names |= {f"VERSO_{field}".upper() for field in value.model_fields}
    return names


@pytest.mark.parametrize("name", OBJECTS)
def test_an_object_follows_the_schema_of_kubernetes(name: str) -> None:
    kubernetes_validate.validate(OBJECTS[name], KUBERNETES, strict=True)


@pytest.mark.parametrize("name", PODS)
def test_a_pod_meets_the_restricted_standard(name: str) -> None:
    pod = PODS[name]
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in pod["containers"]:
        security = container["securityContext"]
        assert security["allowPrivilegeEscalation"] is False
        assert security["readOnlyRootFilesystem"] is True
        assert security["capabilities"] == {"drop": ["ALL"]}
        assert "memory" in container["resources"]["limits"]
        assert "livenessProbe" in container or "readinessProbe" in container


def test_deployments_set_only_settings_that_exist() -> None:
    text = "\n".join(
        path.read_text()
        for path in [
            *BASE,
            *(ROOT / "k8s").glob("*/*/kustomization.yaml"),
            ROOT / "k8s/components/syslog/syslog.yaml",
            ROOT / "docker-compose.yml",
            *ROOT.glob("services/*/Dockerfile"),
        ]
    )
    named = set(re.findall(r"VERSO_[A-Z0-9_]+", text))
    assert named
    assert named <= known_settings()


def test_compose_follows_the_specification_and_names_only_what_it_defines() -> None:
    text = re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", (ROOT / "docker-compose.yml").read_text())
    plain = yaml.safe_dump(yaml.safe_load(text))
    compose = PyCompose.from_yaml(plain)  # refuses unknown keys and values that are no such thing
    compose.validate_networks()
    compose.validate_secrets()
    compose.validate_volumes()


def test_compose_names_files_that_exist_and_hardens_every_service() -> None:
    compose = documents(ROOT / "docker-compose.yml")[0]
    for name in ("gateway", "syslog", "worker", "worker-gpu", "keeper", "trainer"):
        service = compose["services"][name]
        assert (ROOT / service["build"]["dockerfile"]).is_file()
    for name, service in compose["services"].items():
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        for volume in service.get("volumes", []):
            if volume.startswith("./"):
                assert (ROOT / volume.partition(":")[0]).exists(), volume
        for port in service.get("ports", []):
            assert port.startswith("127.0.0.1:"), port


def test_a_gpu_worker_is_a_worker_with_a_device() -> None:
    services = documents(ROOT / "docker-compose.yml")[0]["services"]
    worker, on_gpu = services["worker"], services["worker-gpu"]
    own = {"build", "environment", "profiles", "deploy"}
    assert {key: worker[key] for key in worker.keys() - own} == {
        key: on_gpu[key] for key in on_gpu.keys() - own
    }
    assert on_gpu["environment"] == worker["environment"] | {"VERSO_DEVICE": "cuda"}
    assert on_gpu["build"]["args"]["EXTRA"] == "worker-gpu"
    assert on_gpu["profiles"] == ["gpu"]


def test_the_durable_server_is_set_up_alike_everywhere() -> None:
    command = documents(ROOT / "docker-compose.yml")[0]["services"]["ledger"]["command"]
    compose = " ".join(command)
    kubernetes = " ".join(PODS["ledger.yaml:StatefulSet/ledger"]["containers"][0]["command"])
    for setting in (
        "--appendonly yes",
        "--appendfsync always",
        "--maxmemory-policy noeviction",
        "--hash-max-listpack-entries 128",
        "--hash-max-listpack-value 1024",
    ):
        assert setting in compose
        assert setting in kubernetes


IMAGES = [path for path in sorted(ROOT.glob("**/Dockerfile")) if path.parent.name != "model"]


@pytest.mark.parametrize("path", IMAGES, ids=lambda p: p.parent.name)
def test_an_image_is_built_in_stages_and_runs_as_nobody_special(path: Path) -> None:
    text = path.read_text()
    assert "ARG BASE=" in text
    assert text.count("\nFROM ") == 2
    assert "\nUSER 10001" in text
    assert "--without-pip" in text
    assert text.count("--require-hashes") == text.count(" -r ") == 2
    assert "--no-build-isolation" in text
    assert "\nHEALTHCHECK " in text


def test_every_variable_of_compose_stands_in_the_example_with_its_default() -> None:
    used = dict(re.findall(r"\$\{(\w+):-([^}]*)\}", (ROOT / "docker-compose.yml").read_text()))
    shown = dict(
        line.split("=", 1)
        for line in (ROOT / ".env.example").read_text().splitlines()
        if line and not line.startswith("#")
    )
    assert used
    assert shown == used | {"COMPOSE_PROFILES": ""}  # read by compose itself


def test_every_service_of_compose_says_whether_it_works() -> None:
    """By its image's own check or by one in the file; the monitoring is not waited for."""
    for name, service in documents(ROOT / "docker-compose.yml")[0]["services"].items():
        if "monitoring" in service.get("profiles", []):
            continue
        image = service.get("build", {}).get("dockerfile")
        of_image = image and "\nHEALTHCHECK " in (ROOT / image).read_text()
        assert of_image or "healthcheck" in service, name


def test_compose_gives_each_service_the_secrets_whose_files_it_names() -> None:
    for name, service in documents(ROOT / "docker-compose.yml")[0]["services"].items():
        named = set()
        for value in service.get("environment", {}).values():
            if value.startswith("/run/secrets/"):
                named.add(value.removeprefix("/run/secrets/"))
        if "build" in service:
            assert set(service.get("secrets", [])) == named, name


def test_the_vector_server_and_grafana_ask_for_a_secret_that_a_file_holds() -> None:
    services = documents(ROOT / "docker-compose.yml")[0]["services"]
    assert "QDRANT__SERVICE__API_KEY" in services["qdrant"]["entrypoint"][-1]
    assert services["qdrant"]["secrets"] == ["qdrant_key"]
    assert services["grafana"]["secrets"] == ["grafana_password"]
    assert services["grafana"]["environment"]["GF_SECURITY_ADMIN_PASSWORD__FILE"]
    [qdrant] = PODS["qdrant.yaml:StatefulSet/qdrant"]["containers"]
    [key] = [one for one in qdrant["env"] if one["name"] == "QDRANT__SERVICE__API_KEY"]
    assert "secretKeyRef" in key["valueFrom"]


def test_metrics_of_the_gateway_are_on_no_port_that_is_published() -> None:
    gateway = documents(ROOT / "docker-compose.yml")[0]["services"]["gateway"]
    port = gateway["environment"]["VERSO_METRICS_PORT"]
    assert all(not published.endswith(f":{port}") for published in gateway["ports"])
    scraped = (ROOT / "services/monitoring/prometheus.yml").read_text()
    assert f"names: [gateway-metrics], type: A, port: {port}" in scraped

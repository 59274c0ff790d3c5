"""The services of docker-compose.yml as processes, with their commands and environment.

What differs: addresses, since every process is on this machine; the vector server, a small stand-in
unless QDRANT_URL names a real one; and Prometheus scrapes every second, from fixed addresses.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from verso_core import api_keys
from verso_standalone.models import adopt
from verso_standalone.valkey import find_program, free_port

ROOT = Path(__file__).parents[2]
ARTIFACT = ROOT / "tests/data/artifact-tiny"
MONITORING = ROOT / "services/monitoring"
COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
PATIENCE_S = 600.0  # many processes start at once; on two busy cores that takes minutes


def entrypoint(service: str) -> list[str]:
    """Return a service's command, its own or its image's, with this interpreter."""
    text = (ROOT / COMPOSE[service]["build"]["dockerfile"]).read_text()
    [line] = re.findall(r"^ENTRYPOINT (.+)$", text, re.MULTILINE)
    command: list[str] = COMPOSE[service].get("entrypoint") or json.loads(line)
    return [sys.executable if part == "python" else part for part in command]


def wait_for(what: str, true: Callable[[], bool], *, timeout_s: float = PATIENCE_S) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < deadline, f"waited {timeout_s:g} s for {what}"
        time.sleep(0.5)


class Site:
    """Two gateways, two workers, a keeper, a trainer, their stores, and Prometheus."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.ports = {
            name: free_port()
            for name in (
                "ledger", "broker", "qdrant", "prometheus", "keeper", "syslog",
                "gateway-0", "gateway-1", "worker-0", "worker-1", "trainer",
            )
        }  # fmt: skip
        # Two have their metrics on a port of their own, the others no other port.
        self.scraped = {
            name: free_port() if name.startswith(("gateway", "syslog")) else port
            for name, port in self.ports.items()
            if name.partition("-")[0] in ("gateway", "syslog", "worker", "keeper", "trainer")
        }
        adopt(ARTIFACT, folder / "models", pinned=True)
        self.key, made = api_keys.mint("operations")
        self.keys_file = folder / "api-keys"
        self.keys_file.write_text(made.line() + "\n")
        for name in ("ledger_password", "broker_password", "qdrant_key"):
            (folder / name).write_text(f"{secrets.token_hex(16)}\n")

    def url(self, name: str) -> str:
        """Return the address of a process."""
        return f"http://127.0.0.1:{self.ports[name]}"

    def start(self) -> None:
        """Start everything in the order that compose does."""
        for name in ("ledger", "broker"):
            self._store(name)
        if not os.environ.get("QDRANT_URL"):
            server = ROOT / "tests/support/qdrant_stand_in.py"
            self._run("qdrant", [sys.executable, str(server), str(self.ports["qdrant"])], {})
            wait_for("the vector server", partial(self._answers, "qdrant", "/collections"))
        for name in (
            "gateway-0",
            "gateway-1",
            "syslog",
            "worker-0",
            "worker-1",
            "keeper",
            "trainer",
        ):
            service = name.partition("-")[0]
            self._run(name, entrypoint(service), self._environment(name, service))
        self._prometheus()
        for name in ("gateway-0", "gateway-1"):
            wait_for(f"{name} to be ready", partial(self._answers, name, "/readyz"))
        for name in (
            "worker-0",
            "worker-1",
            "keeper",
            "trainer",
        ):  # one worker is enough for a gateway
            wait_for(f"{name} to be there", partial(self._answers, name, "/metrics"))
        # The rate of a counter is known from the second scrape on: what happens before the first
        # scrape has none, and a panel that divides two such rates stays empty.
        wait_for("the first scrape of each process", self._all_scraped)

    def stop(self) -> None:
        """End everything, whatever its state."""
        for process in self.processes.values():
            process.send_signal(signal.SIGCONT)
            process.terminate()
        for process in self.processes.values():
            try:
                process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def signal(self, name: str, how: signal.Signals) -> None:
        """Send a signal to a process."""
        self.processes[name].send_signal(how)

    def log(self, name: str) -> str:
        """Return what a process has said."""
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def ask(self, query: str) -> list[dict[str, Any]]:
        """Put an instant query to Prometheus."""
        address = f"{self.url('prometheus')}/api/v1/query?" + urllib.parse.urlencode(
            {"query": query}
        )
        with urllib.request.urlopen(address, timeout=30) as answer:  # noqa: S310 - our own address
            found: list[dict[str, Any]] = json.load(answer)["data"]["result"]
        return found

    def firing(self) -> set[str]:
        """Name the alerts that fire."""
        return {one["metric"]["alertname"] for one in self.ask('ALERTS{alertstate="firing"}')}

    def page(self, name: str) -> str:
        """Scrape a process."""
        address = f"http://127.0.0.1:{self.scraped[name]}/metrics"
        with urllib.request.urlopen(address, timeout=30) as answer:
            text: str = answer.read().decode()
        return text

    def total(self, names: list[str], series: str) -> float:
        """Add a series up over processes, by a regular expression for its name and labels."""
        return sum(
            float(line.rpartition(" ")[2])
            for name in names
            for line in self.page(name).splitlines()
            if re.match(series + r" ", line)
        )

    def _all_scraped(self) -> bool:
        try:
            return len(self.ask('up{job=~"gateway|syslog|worker|keeper|trainer"} == 1')) == 7
        except OSError:
            return False

    def _answers(self, name: str, path: str) -> bool:
        for process, one in self.processes.items():
            assert one.poll() is None, f"{process} ended:\n{self.log(process)[-3000:]}"
        try:
            with urllib.request.urlopen(f"{self.url(name)}{path}", timeout=30):  # noqa: S310
                return True
        except OSError:
            return False

    def _store(self, name: str) -> None:
        folder = self.folder / name
        folder.mkdir()
        _, *flags = COMPOSE[name]["command"]
        port = str(self.ports[name])
        # What the entry point of compose does, with this machine's server and a path of its own.
        shell, option, script, *zeroth = COMPOSE[name]["entrypoint"]
        for there, here in (
            ("$$", "$"),
            ("/run/secrets/*_password", str(self.folder / f"{name}_password")),
            ("/tmp/password.conf", str(folder / "password.conf")),
            ("docker-entrypoint.sh valkey-server", str(find_program())),
        ):
            assert there in script
            script = script.replace(there, here)
        own = ["--port", port, "--dir", str(folder), "--bind", "127.0.0.1"]
        self._run(name, [shell, option, script, *zeroth, "valkey-server", *flags, *own], {})

    def _environment(self, name: str, service: str) -> dict[str, str]:
        here = {
            "redis://ledger:6379": f"redis://127.0.0.1:{self.ports['ledger']}",
            "redis://broker:6379": f"redis://127.0.0.1:{self.ports['broker']}",
            "http://qdrant:6333": os.environ.get("QDRANT_URL") or self.url("qdrant"),
            "/run/secrets/api_keys": str(self.keys_file),
            "/run/secrets/ledger_password": str(self.folder / "ledger_password"),
            "/run/secrets/broker_password": str(self.folder / "broker_password"),
            "/run/secrets/qdrant_key": str(self.folder / "qdrant_key"),
            "/tmp/verso": str(self.folder / f"{name}-run"),
            "/tmp/heartbeat": str(self.folder / f"{name}-heartbeat"),
            "/opt/models": str(self.folder / "models"),
            "/runs": str(self.folder / f"{name}-data"),
        }
        environment = {}
        for key, value in COMPOSE[service]["environment"].items():
            for there, local in here.items():
                value = value.replace(there, local)
            environment[key] = value
        environment |= {
            "VERSO_HOST": "127.0.0.1",
            "VERSO_PORT": str(self.ports[name]),
            "VERSO_METRICS_PORT": str(self.scraped[name]),
            "VERSO_FEED_OTLP_PORT": "0",
            "VERSO_FEED_BULK_PORT": "0",
            "VERSO_SYSLOG_HOST": "127.0.0.1",
            "VERSO_SYSLOG_PORT": str(self.ports[name]),
            "VERSO_SYSLOG_UDP_PORT": str(self.ports[name]),
            "VERSO_SYSLOG_METRICS_PORT": str(self.scraped[name]),
            "VERSO_DATA": str(self.folder / f"{name}-data"),
            "VERSO_MODELS": str(self.folder / "models"),
            "VERSO_THREADS": "1",
            "VERSO_WORKER_NAME": name,
            "VERSO_VERIFY_DELAY_S": "0.1",
            "VERSO_RAW_TEXT_RETENTION_S": "0",
            "OMP_NUM_THREADS": "1",
        }
        return environment

    def _prometheus(self) -> None:
        config = yaml.safe_load((MONITORING / "prometheus.yml").read_text())
        config["global"] = {"scrape_interval": "2s", "evaluation_interval": "2s"}
        config["rule_files"] = [str(MONITORING / "rules/*.yml")]
        for job in config["scrape_configs"]:
            del job["dns_sd_configs"]
            targets = [
                f"127.0.0.1:{port}"
                for name, port in self.scraped.items()
                if name.partition("-")[0] == job["job_name"]
            ]
            job["static_configs"] = [{"targets": targets}]
        path = self.folder / "prometheus.yml"
        path.write_text(yaml.safe_dump(config))
        program = shutil.which("prometheus")
        assert program is not None
        self._run(
            "prometheus",
            [
                program,
                f"--config.file={path}",
                f"--storage.tsdb.path={self.folder / 'tsdb'}",
                f"--web.listen-address=127.0.0.1:{self.ports['prometheus']}",
            ],
            {},
        )

    def _run(self, name: str, command: list[str], environment: dict[str, str]) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**os.environ, **environment},
            )


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The one site of a session; it needs Prometheus."""
    if shutil.which("prometheus") is None:
        if os.environ.get("CI"):
            pytest.fail("prometheus is not installed")
        pytest.skip("prometheus is not installed")
    made = Site(tmp_path_factory.mktemp("site"))
    try:
        made.start()
        yield made
    finally:
        made.stop()

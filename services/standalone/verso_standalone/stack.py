"""The processes of a one-machine platform: their order, their settings, their end.

    start   Valkey; once it answers: worker, keeper, gateway, a receiver of syslog if one is asked
            for; once /readyz is true: a trainer if torch is installed
    stop    gateway (finishes open requests), receiver (what it has read goes to the ledger), worker
            (finishes its slices), the others, Valkey

Only Valkey must run before the others. Every other process finds its peers by itself, also after
one of them was restarted, as it does on many machines.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path

from verso_client import Client
from verso_core import DISTRIBUTION, api_keys, registry
from verso_core.errors import (
    ArtifactInvalid,
    NotReady,
    RequestInvalid,
    Unauthorized,
    Unavailable,
    VersoError,
    from_body,
)
from verso_core.settings import LedgerSettings, read_settings
from verso_core.supervise import Process
from verso_gateway.settings import Settings, is_loopback
from verso_standalone.folder import DataFolder
from verso_standalone.logs import LogRotation
from verso_standalone.models import adopt
from verso_standalone.valkey import LOOPBACK, Valkey, find_program, free_port

_VALKEY_TIMEOUT_S = 60.0
_GRACE_S = {
    "gateway": 10.0,
    "syslog": 12.0,
    "worker": 20.0,
    "trainer": 10.0,
    "keeper": 5.0,
    "valkey": 20.0,
}
_SCRAPED = ("gateway", "worker", "keeper", "trainer", "syslog")
_HIGHEST_PORT = 65_535
_DEATHS_BEFORE_GIVING_UP = 2
_POLL_S = 0.05
_REACHED_AT = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - compared, not bound


@dataclass(frozen=True)
class StackConfig:
    """Settings of one platform.

    Attributes:
        data: folder that holds everything; created if it is missing.
        artifact: folder with the model's graphs, tables and manifest.
        host: address the gateway listens on.
        port: its TCP port; 0 takes a free one.
        syslog_port: port on which syslog is received over TCP and UDP; None for no receiver.
        api_keys_file: keys that callers must present; required beyond loopback.
        threads: threads of the engine.
        ready_timeout_s: seconds until /readyz must be true.
        settings: more ``VERSO_*`` settings, passed to every process.
        log_limit_mib: length of a process's log file; as much again is kept of what was before.
        pinned: serve this artifact even if one that was trained here was promoted.
    """

    data: Path
    artifact: Path
    host: str = "127.0.0.1"
    port: int = 8080
    syslog_port: int | None = None
    api_keys_file: Path | None = None
    threads: int = 2
    ready_timeout_s: float = 180.0
    settings: Mapping[str, str] = field(default_factory=dict)
    pinned: bool = True
    log_limit_mib: int = 16


def usable_cores(most: int | None = 8) -> int:
    """Return the number of cores this process may use, up to ``most``; None for all of them.

    The default is where a small decoder stops gaining.
    """
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity is not None else os.cpu_count() or 1
    return cores if most is None else min(cores, most)


def find_artifact(models: Path | None = None) -> Path:
    """Return the folder of the artifact to serve: the stable one of the ``models`` folder.

    Args:
        models: folder of artifacts; by default the one below the working directory, that of the
            source tree, or the installed package of models, in this order.

    Raises:
        ArtifactInvalid: there is none.
    """
    source_tree = Path(__file__).resolve().parents[3] / "models"
    usual = [Path.cwd() / "models", source_tree, *_installed_models()]
    candidates = usual if models is None else [models]
    for candidate in candidates:
        if (candidate / registry.REGISTRY_NAME).is_file():
            return registry.resolve(candidate)
        if (candidate / "default" / "manifest.json").is_file():
            return candidate / "default"
    looked = " and ".join(str(candidate) for candidate in candidates)
    raise ArtifactInvalid(
        f"expected an artifact below {looked}; install {DISTRIBUTION}[models] or name one with "
        "--artifact"
    )


def _installed_models() -> list[Path]:
    """Return the folder of the installed package of models, if there is one."""
    try:
        found = resources.files("verso_models").joinpath(registry.REGISTRY_NAME)
    except ModuleNotFoundError:
        return []
    return [Path(str(found)).parent]


def can_train() -> bool:
    """Whether heads can be trained here: the extra ``training`` is installed."""
    return importlib.util.find_spec("torch") is not None


class Stack:
    """The processes of one platform."""

    def __init__(self, config: StackConfig) -> None:
        self.config = config
        self.folder = DataFolder(config.data.resolve())
        self.port = config.port or free_port(config.host)
        self.processes: list[Process] = []
        self.addresses: dict[str, str] = {}
        self._client = Client(self.url, timeout_s=3.0)
        self._lock: int | None = None
        self._rotation = LogRotation(
            [self.folder.log_path(name) for name in _GRACE_S],
            limit_bytes=config.log_limit_mib << 20,
        )

    @property
    def url(self) -> str:
        """The gateway's address on this machine."""
        host = _REACHED_AT.get(self.config.host, self.config.host)
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"

    def start(self, *, stopped: threading.Event | None = None) -> None:
        """Start all processes and wait until the platform is ready.

        Args:
            stopped: set by another thread to end the start early.

        Raises:
            Unauthorized: it would listen beyond loopback without API keys.
            Unavailable: the folder or the port is in use, or a process does not stay up.
            NotReady: it did not become ready in time.
        """
        stopped = stopped or threading.Event()
        self._check()
        self.folder.prepare()
        self._lock = self.folder.lock()
        self._rotation.start()
        try:
            adopt(self.config.artifact, self.folder.models, pinned=self.config.pinned)
            valkey = Valkey(
                find_program(), self.folder.valkey, port=free_port(), password=self.folder.secret()
            )
            environment = self._environment(valkey)
            self._check_settings(environment)
            self._run("valkey", valkey.argv(), address=f"{LOOPBACK}:{valkey.port}")
            self._await("valkey", valkey.answers, timeout_s=_VALKEY_TIMEOUT_S, stopped=stopped)
            self.folder.keep_stores({**os.environ, **environment})
            for name, address in (("worker", ""), ("keeper", ""), ("gateway", self.url)):
                argv = [sys.executable, "-m", f"verso_{name}"]
                self._run(name, argv, address=address, environment=environment)
            if self.config.syslog_port is not None:
                argv = [sys.executable, "-m", "verso_gateway.syslog"]
                address = f"{self._syslog_host}:{self.config.syslog_port}"
                self._run("syslog", argv, address=address, environment=environment)
            self._await(
                "the platform", self.ready, timeout_s=self.config.ready_timeout_s, stopped=stopped
            )
            if can_train():  # afterwards, as torch takes seconds to import
                argv = [sys.executable, "-m", "verso_training.service"]
                self._run("trainer", argv, address="", environment=environment)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop all processes in order; safe more than once."""
        for process in sorted(
            self.processes, key=lambda process: list(_GRACE_S).index(process.name)
        ):
            process.stop(grace_s=_GRACE_S[process.name])
        self._rotation.stop()
        self._client.close()
        if self._lock is not None:
            self.folder.remove_far_run_folder()
            os.close(self._lock)
            self._lock = None

    def ready(self) -> bool:
        """Whether the gateway reports that the platform is ready."""
        return self._client.ready()

    def _check(self) -> None:
        """Refuse a configuration that cannot work, before any process is started."""
        config = self.config
        if not is_loopback(config.host) and config.api_keys_file is None:
            raise Unauthorized(
                f"expected API keys to listen beyond loopback, on {config.host}: "
                "`verso keys new NAME` makes one"
            )
        if config.api_keys_file is not None:
            try:
                api_keys.read_some(config.api_keys_file)
            except (OSError, ValueError) as exc:
                raise Unauthorized(str(exc)) from exc
        if not (config.artifact / "manifest.json").is_file():
            raise ArtifactInvalid(
                f"expected an artifact in {config.artifact}, got no manifest.json"
            )
        self._first_metrics_port()
        _check_free(config.host, self.port)
        if config.syslog_port is not None:
            _check_free(self._syslog_host, config.syslog_port)

    def _check_settings(self, environment: Mapping[str, str]) -> None:
        """Read the settings as each process will.

        Raises:
            RequestInvalid: one is malformed.
        """
        from verso_gateway.syslog.settings import SyslogSettings
        from verso_keeper.settings import KeeperSettings
        from verso_worker.settings import WorkerSettings

        kinds: list[type[LedgerSettings]] = [Settings, WorkerSettings, KeeperSettings]
        if self.config.syslog_port is not None:
            kinds.append(SyslogSettings)
        for kind in kinds:
            names = {field: f"VERSO_{field.upper()}" for field in kind.model_fields}
            given = {field: environment[n] for field, n in names.items() if n in environment}
            read_settings(kind, **given | {"metrics_port": "0"})  # of its own each

    @property
    def _syslog_host(self) -> str:
        name = "VERSO_SYSLOG_HOST"
        return self.config.settings.get(name, os.environ.get(name, "127.0.0.1"))

    def _environment(self, valkey: Valkey) -> dict[str, str]:
        config = self.config
        environment = {
            "VERSO_REDIS_URL": valkey.url(0),
            "VERSO_BROKER_URL": valkey.url(1),
            "VERSO_DATA": str(self.folder.root),
            "VERSO_RUN": str(self.folder.run_folder()),
            "VERSO_MODELS": str(self.folder.models),
            "VERSO_RESULTS": str(self.folder.results),
            "VERSO_HOST": config.host,
            "VERSO_PORT": str(self.port),
            "VERSO_AUDIT_FILE": str(self.folder.logs / "audit.log"),
            "VERSO_THREADS": str(config.threads),
            "VERSO_DRAIN_S": f"{_GRACE_S['worker'] * 0.75:g}",
            **self._kernel_cache(),
            **config.settings,
        }
        if config.syslog_port is not None:
            port = str(config.syslog_port)
            environment |= {"VERSO_SYSLOG_PORT": port, "VERSO_SYSLOG_UDP_PORT": port}
        if config.api_keys_file is not None:
            environment["VERSO_API_KEYS_FILE"] = str(config.api_keys_file.resolve())
        return environment

    def _metrics(self, name: str) -> dict[str, str]:
        """Return the setting of a process's own port of metrics: ports that follow each other."""
        setting = "VERSO_METRICS_PORT"
        port = str(first + _SCRAPED.index(name) if (first := self._first_metrics_port()) else 0)
        if name == "syslog":  # it reads the gateway's settings, and has a port of its own
            return {setting: "0", "VERSO_SYSLOG_METRICS_PORT": port}
        return {setting: port}

    def _first_metrics_port(self) -> int:
        """Return the first of the ports of metrics; 0 for none.

        Raises:
            RequestInvalid: the setting is no port after which the others have room.
        """
        setting = "VERSO_METRICS_PORT"
        text = self.config.settings.get(setting, os.environ.get(setting, "0"))
        last = _HIGHEST_PORT - len(_SCRAPED) + 1
        with contextlib.suppress(ValueError):
            if 0 <= (port := int(text)) <= last:
                return port
        raise RequestInvalid(f"expected {setting} from 0 to {last}, got {text!r}")

    def _kernel_cache(self) -> dict[str, str]:
        """Return where compiled codec kernels are kept if they cannot be beside their source."""
        spec = importlib.util.find_spec("verso_codecs")
        assert spec is not None
        assert spec.origin is not None
        beside = Path(spec.origin).parent / "__pycache__"
        if "NUMBA_CACHE_DIR" in os.environ or _writable(beside):
            return {}
        return {"NUMBA_CACHE_DIR": str(self.folder.cache)}

    def _run(
        self,
        name: str,
        argv: Sequence[str],
        *,
        address: str,
        environment: dict[str, str] | None = None,
    ) -> None:
        assert self._lock is not None
        process = Process(
            name,
            argv,
            log_path=self.folder.log_path(name),
            environment=None if environment is None else environment | self._metrics(name),
            keep_open=[self._lock],
            umask=0o077,
        )
        self.processes.append(process)
        self.addresses[name] = address
        process.start()

    def _await(
        self, what: str, ready: Callable[[], bool], *, timeout_s: float, stopped: threading.Event
    ) -> None:
        deadline = time.monotonic() + timeout_s
        while not ready():
            for process in self.processes:
                if process.deaths >= _DEATHS_BEFORE_GIVING_UP:
                    raise _failure(process)
            if time.monotonic() > deadline:
                raise NotReady(
                    f"expected {what} to be ready within {timeout_s:g} s; see {self.folder.logs}"
                )
            if stopped.wait(_POLL_S):
                raise Unavailable("stopped before the platform was ready")


def _check_free(host: str, port: int) -> None:
    """Check that a TCP port can be listened on.

    Raises:
        Unavailable: it is in use.
    """
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as exc:
            raise Unavailable(
                f"expected {host} port {port} to be free, got: {exc.strerror}"
            ) from exc


def _writable(folder: Path) -> bool:
    """Whether this process can put files into a folder, which it may have to create."""
    return os.access(folder if folder.exists() else folder.parent, os.W_OK)


def _failure(process: Process) -> VersoError:
    """Return why a process does not stay up: the error it logged last, or the end of its log."""
    words = process.last_words()
    for line in reversed(words.splitlines()):
        try:
            row = json.loads(line)
            code, message = row["code"], row["message"]
        except (ValueError, TypeError, KeyError):
            continue
        return from_body({"code": code, "detail": f"{process.name}: {message}", "retryable": False})
    return Unavailable(f"{process.name} does not stay up; its log ends:\n{words}")

"""Gateways are killed while a log collection rolls over and callers send lines.

Two gateways as processes that are started again, two ledgers, and the worker and the keepers of
:mod:`tests.integration.verso_keeper.rolling`. A caller whose gateway breaks off asks the other one
with the same key until its lines are accepted: they must be there once.
"""

from __future__ import annotations

import itertools
import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import httpx2
import pytest
from tests.conftest import ValkeyServer
from tests.integration.verso_gateway.test_rollover import at_work, send
from tests.integration.verso_keeper.rolling import World

from verso_core.supervise import Process
from verso_standalone.valkey import free_port

KILLS = int(os.environ.get("GATEWAY_KILLS", "4"))
_OLD_S = 2.0
"""After so long a partition rolls over."""
_PATIENCE_S = 240.0
_CALLERS = 3
_PAUSE_S = 0.02


class Served:
    """A gateway as a process, which is started again whenever it ends."""

    def __init__(self, folder: Path, servers: dict[str, ValkeyServer]) -> None:
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        home = servers["home"].url
        environment = {
            "VERSO_REDIS_URL": home,
            "VERSO_BROKER_URL": home.removesuffix("/0") + "/1",
            "VERSO_LEDGERS": f"b={servers['b'].url}",
            "VERSO_DATA": str(folder),
            "VERSO_PORT": str(port),
        }
        argv = [sys.executable, "-m", "verso_gateway"]
        log = folder / "gateway.log"
        self.process = Process("gateway", argv, log_path=log, environment=environment)
        self.process.start()

    def await_answer(self) -> None:
        """Wait until it answers."""
        until = time.monotonic() + _PATIENCE_S
        while True:
            try:
                if httpx2.get(f"{self.url}/healthz", timeout=5).status_code == 200:
                    return
            except httpx2.HTTPError:
                pass
            assert time.monotonic() < until, self.process.last_words()
            time.sleep(0.1)

    def kill(self) -> None:
        """End the process at once."""
        pid = self.process.pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)


@dataclass
class Callers:
    """Callers who send lines, each call with a key, until it is accepted."""

    urls: list[str]
    accepted: Counter[bytes] = field(default_factory=Counter)
    cut_off: int = 0
    refused: list[str] = field(default_factory=list)
    _over: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _threads: list[threading.Thread] = field(default_factory=list)

    def start(self) -> None:
        """Start them."""
        self._threads = [
            threading.Thread(target=self._call, args=(number,)) for number in range(_CALLERS)
        ]
        for one in self._threads:
            one.start()

    def stop(self) -> None:
        """Let each end its call."""
        self._over.set()
        for one in self._threads:
            one.join()

    def _call(self, number: int) -> None:
        with ExitStack() as stack:
            clients = [
                stack.enter_context(httpx2.Client(base_url=url, timeout=30)) for url in self.urls
            ]
            for n in itertools.count():
                if self._over.wait(_PAUSE_S):
                    return
                line = b"caller %d line %d" % (number, n)
                self._accepted(clients, line, key=f"{number}-{n}", first=number + n)
                with self._lock:
                    self.accepted[line] += 1

    def _accepted(self, clients: list[httpx2.Client], line: bytes, *, key: str, first: int) -> None:
        until = time.monotonic() + _PATIENCE_S
        for turn in itertools.count(first):
            assert time.monotonic() < until, "lines are not accepted"
            try:
                answer = send(clients[turn % len(clients)], line + b"\n", key=key)
            except httpx2.HTTPError:  # it is away, or was killed before it answered
                with self._lock:
                    self.cut_off += 1
                time.sleep(0.05)
                continue
            if answer.status_code == 202:
                return
            if answer.status_code != 503:
                self.refused.append(answer.text)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_gateways_killed_within_rollovers_lose_and_double_no_line(
    valkey_server: Callable[..., ValkeyServer], tmp_path: Path
) -> None:
    servers = {name: valkey_server(appendfsync="everysec") for name in ("home", "b")}
    world, dice = World.of(servers, seed=1), Random(1)
    folders = [tmp_path / name for name in ("one", "other")]
    for folder in folders:
        folder.mkdir()
    gateways = [Served(folder, servers) for folder in folders]
    callers = Callers([one.url for one in gateways])
    try:
        for one in gateways:
            one.await_answer()
        with at_work(world, old_s=_OLD_S):
            callers.start()
            for number in range(KILLS):
                _await_rollover(world)
                time.sleep(dice.uniform(0.0, 0.2))
                gateways[number % 2].kill()
                gateways[number % 2].await_answer()
            callers.stop()
        world.settle()
        assert callers.refused == []
        assert callers.cut_off > 0, "no call was cut off: this has shown nothing"
        assert len(world.state.parts) > 2
        assert sum(world.held().values(), Counter()) == callers.accepted
    finally:
        callers.stop()
        for one in gateways:
            one.process.stop()
        world.close()


def _await_rollover(world: World) -> None:
    """Wait until another partition is being made: the next steps are those of a rollover."""
    before, until = len(world.state.parts), time.monotonic() + _PATIENCE_S
    while len(world.state.parts) == before:
        assert time.monotonic() < until, "it does not roll over"
        time.sleep(0.005)

"""The real server of a simulation, and a connection to it whose calls can be sent once more."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast

import redis
from tests.chaos.clock import Clock

from verso_ledger import Policy
from verso_ledger.codec.scalars import Arg
from verso_ledger.scripts import Scripts, source

Call = tuple[str, tuple[Arg, ...]]
"""A step and its arguments, as they went to the server."""
Mutation = Callable[[str, str], str]
"""Changes a step's text, for a test of the simulation: (step, text) -> text."""


class Server:
    """A server on a Unix socket, without files, whose clock the simulation sets."""

    def __init__(self, binary: str, folder: Path) -> None:
        self.clock = Clock(folder)
        self._socket = folder / "ledger.sock"
        self.url = f"unix://{self._socket}"
        self._argv = [
            binary, "--port", "0", "--unixsocket", str(self._socket), "--save", "",
            "--appendonly", "no", "--hash-max-listpack-entries", "128",
            "--hash-max-listpack-value", "1024", "--daemonize", "no",
        ]  # fmt: skip
        self._folder = folder
        self._now = START_MS

    def __enter__(self) -> Self:
        self.clock.set_ms(self._now)
        with (self._folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                self._argv, env=self.clock.settings, cwd=self._folder, stdout=log, stderr=log
            )
        self.client = redis.Redis(unix_socket_path=str(self._socket))
        until = time.monotonic() + 120
        while True:
            try:
                self.client.ping()
                return self
            except redis.RedisError:
                if self._process.poll() is not None or time.monotonic() > until:
                    raise
                time.sleep(0.01)

    def set_ms(self, now: int) -> None:
        """Set the time, and wait until scripts see it: a server looks at its clock once a ms."""
        self._now = now
        self.clock.set_ms(now)
        while self.client.eval(_TIME, 0) != now:
            time.sleep(0.0003)

    def pass_s(self, seconds: float) -> None:
        """Let so much time pass."""
        self.set_ms(self._now + round(seconds * 1000))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the server."""
        self.client.close()
        self._process.kill()
        self._process.wait(timeout=60)


START_MS = 1_700_000_000_000
"""When a simulation starts, Unix milliseconds."""


_TIME = "local at = redis.call('TIME') return at[1] * 1000 + math.floor(at[2] / 1000)"


class Recorder(Scripts):
    """Runs steps over one connection and remembers them, so that a call can be sent once more."""

    def __init__(
        self, client: redis.Redis, policy: Policy, mutation: Mutation | None = None
    ) -> None:
        super().__init__(client, policy)
        self._connection: Any = cast("Any", client.connection_pool).get_connection()
        self._mutation = mutation
        self._shas: dict[str, str] = {}
        self.sent: list[Call] = []
        self._again: list[Call] = []

    def run(self, step: str, args: Sequence[Arg]) -> Any:
        """Run a step, or the one whose turn it is when a call is repeated."""
        call: Call = self._again.pop(0) if self._again else (step, tuple(args))
        self.sent.append(call)
        self._connection.send_command("EVALSHA", self._sha(call[0]), 0, *call[1])
        return self._connection.read_response()

    def _sha(self, step: str) -> str:
        if step not in self._shas:
            text = source(step, self.policy)
            if self._mutation is not None:
                text = self._mutation(step, text)
            self._shas[step] = self.client.script_load(text)
        return self._shas[step]

    def make(self, call: Callable[[], Any], *, again: Sequence[Call] = ()) -> Any:
        """Make a call of the client; with ``again`` it sends those steps and no others."""
        self.sent = []
        self._again = list(again)
        return call()

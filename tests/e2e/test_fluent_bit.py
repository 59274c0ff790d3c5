"""A real Fluent Bit sends by all its outputs to a real platform whose parts are killed.

FLUENT_BIT names the program, FLUENT_BIT_LINES how many lines each output sends (2,000). No package
registry has it, so the test is skipped where none is named.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from tests.e2e.conftest import Platform

from verso_core.errors import VersoError
from verso_core.jobs import CollectionKind
from verso_core.jobs.logs.lines import LineRow, LinesRequest
from verso_standalone.valkey import free_port

PAGE = Path(__file__).parents[2] / "docs/how-to/send-logs-from.md"
LINES = int(os.environ.get("FLUENT_BIT_LINES", "2000"))
STEP = 100
"""Lines that are appended to each file at once."""
PAUSE_S = 0.02
FULL_S = 20.0
"""How long the queue is full, as no worker works."""
OUTPUTS = ("es", "http", "loki", "opentelemetry", "syslog")
SERVICE = """[SERVICE]
    Flush          0.2
    Daemon         Off
    Log_Level      warn
    Log_File       {folder}/fluent-bit.txt
    storage.path   {folder}/storage
    scheduler.base 1
    scheduler.cap  3
"""
INPUT = """[INPUT]
    Name           tail
    Tag            {name}
    Path           {folder}/{name}.log
    Read_from_Head On
    storage.type   filesystem
"""
MORE = {
    "loki": """
    Port            {port}
    Labels          job=shop
    Line_Format     json
    Drop_Single_Key raw""",
    "opentelemetry": """
    Port          {port}
    Logs_Body_Key log""",
    "syslog": """
    Port                  {syslog}
    Mode                  tcp
    Syslog_Appname_Preset shop
    Syslog_Message_Key    log""",
}
"""Of outputs that the page names without a configuration."""

pytestmark = [
    pytest.mark.timeout(1800),
    pytest.mark.skipif("FLUENT_BIT" not in os.environ, reason="FLUENT_BIT names no program"),
]


def shown() -> dict[str, str]:
    """Return the outputs of the page by their names."""
    section = PAGE.read_text().partition("\n## Fluent Bit\n")[2].partition("\n## ")[0]
    blocks = re.findall(r"^```\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
    found = {}
    for block in blocks:
        name = re.search(r"^ +Name +(\w+)$", block, re.MULTILINE)
        assert name is not None
        found[name[1]] = block
    return found


def outputs(ports: dict[str, int]) -> str:
    """Return the outputs, each for its own file, and to the ports of a platform."""
    blocks = shown()
    for there, here in (("9200", str(ports["bulk"])), ("8080", str(ports["port"]))):
        blocks = {name: block.replace(there, here) for name, block in blocks.items()}
    for name, more in MORE.items():
        head = f"[OUTPUT]\n    Name {name}\n    Match *\n    Host 127.0.0.1\n    Retry_Limit False"
        blocks[name] = head + more.format(**ports) + "\n"
    assert blocks.keys() == set(OUTPUTS)
    return "\n".join(
        re.sub(r"(Match +)\*", rf"\g<1>{name}", block) for name, block in blocks.items()
    )


@contextmanager
def running(*command: str, **settings: str) -> Iterator[None]:
    """Run a process."""
    process = subprocess.Popen(command, env={**os.environ, **settings})
    try:
        yield
        assert process.poll() is None
    finally:
        process.terminate()
        process.wait(timeout=60)


@contextmanager
def syslog(platform: Platform, port: int) -> Iterator[None]:
    """Run a receiver of syslog on a platform's ledger."""
    ledger = platform.redis().connection_pool.connection_kwargs
    url = f"redis://:{ledger['password']}@127.0.0.1:{ledger['port']}"
    with running(
        *(sys.executable, "-m", "verso_gateway.syslog"),
        VERSO_REDIS_URL=f"{url}/0",
        VERSO_BROKER_URL=f"{url}/1",
        VERSO_SYSLOG_PORT=str(port),
        VERSO_SYSLOG_UDP_PORT="0",
    ):
        yield


def texts(platform: Platform) -> Counter[str]:
    """Return all lines with how often each is there; none while a part is away."""
    asked = LinesRequest(collection="logs", limit=0)
    found: Counter[str] = Counter()
    with platform.client() as verso, suppress(VersoError):
        for row in map(LineRow.model_validate_json, b"".join(verso.lines(asked)).splitlines()):
            if row.error is not None:
                raise row.error.exception()
            if row.text is not None:  # else it says that some are not stored yet
                found[row.text] += 1
        return found
    return Counter()


def stop_workers(platform: Platform) -> None:
    """Stop the worker until the queue has been full for a while."""
    pid = platform.pid("worker")
    os.kill(pid, signal.SIGSTOP)
    time.sleep(FULL_S)
    os.kill(pid, signal.SIGCONT)


def write(folder: Path, faults: dict[int, Callable[[], object]]) -> None:
    """Append lines to the files; faults come after so many lines."""
    for first in range(0, LINES, STEP):
        for name in OUTPUTS:
            with (folder / f"{name}.log").open("a") as file:
                file.writelines(f"{name} {n} is full\n" for n in range(first, first + STEP))
        time.sleep(PAUSE_S)
        if (fault := faults.get(first)) is not None:
            fault()


def test_no_output_loses_a_line_and_ids_double_none(
    new_platform: Callable[..., Platform], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ports = {"bulk": free_port(), "syslog": free_port()}
    platform = new_platform(VERSO_FEED_BULK_PORT=str(ports["bulk"]), VERSO_QUEUE_LIMIT_SLICES="40")
    platform.start()
    ports["port"] = platform.port
    with platform.client() as verso:
        verso.create_collection("logs", kind=CollectionKind.LOGS)
    inputs = "".join(INPUT.format(name=name, folder=tmp_path) for name in OUTPUTS)
    path = tmp_path / "fluent-bit.conf"
    path.write_text(SERVICE.format(folder=tmp_path) + inputs + outputs(ports))
    part = LINES // 5 // STEP * STEP
    faults: dict[int, Callable[[], object]] = {
        part: lambda: platform.kill("gateway"),
        2 * part: lambda: platform.kill("valkey"),
        3 * part: lambda: stop_workers(platform),
        4 * part: lambda: platform.kill("gateway"),
    }
    started = time.monotonic()
    for name in OUTPUTS:
        (tmp_path / f"{name}.log").touch()
    wanted = {f"{name} {n} is full" for name in OUTPUTS for n in range(LINES)}
    with (
        syslog(platform, ports["syslog"]),
        running(os.environ["FLUENT_BIT"], "-c", str(path)),
    ):
        write(tmp_path, faults)
        until = time.monotonic() + 600
        while wanted - (found := texts(platform)).keys() and time.monotonic() < until:
            time.sleep(3)
    missing = Counter(text.partition(" ")[0] for text in wanted - found.keys())
    again = Counter(text.partition(" ")[0] for text in (found - Counter(wanted)).elements())
    with capsys.disabled():
        seconds = time.monotonic() - started
        print(f"\n{LINES} lines by each of {OUTPUTS} in {seconds:.0f} s: ", end="")  # noqa: T201
        print(f"missing {dict(missing)}, doubled {dict(again)}")  # noqa: T201
    said = (tmp_path / "fluent-bit.txt").read_text().splitlines()
    assert not missing, [line for line in said if "HTTP status" in line]
    assert not again["es"]
    assert found.keys() == wanted

"""How deep may the queue become, and how fast does it recover?

1. *Depth*: jobs of one short text each are accepted until ``--jobs`` wait; meanwhile nobody works.
   Then the worker drains them for ``--seconds``, beside the same with a thousand waiting. If the
   queue's structures were slow at depth, the second rate would be lower. The memory of gateway,
   worker (with its children) and Valkey is read before and after.
2. *The limit*: one more job over HTTP, which must be refused with ``Retry-After``.
3. *Recovery*: each process is killed ``--kills`` times; measured is the time until a text that was
   sent after the kill has been embedded.

Depth is bounded by the fsync of each batch of accepts and by memory; draining by the encoder.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import psutil
import redis
import sheet

from verso_client import Client, Retries
from verso_core.jobs import EmbedItem, EmbedParams, Kind, Queue, cut
from verso_ledger import Ledger, Limits, NewJob, Policy
from verso_ledger.codec.admission import Admission
from verso_ledger.scripts import source
from verso_standalone.stack import Stack, StackConfig, find_artifact

_BATCH = 500
_SHALLOW = 1000
_CHILDREN = {"engine": "verso_worker.engine", "shard": "verso_worker.stores.edge.process"}


def ledger_url(stack: Stack) -> str:
    """Return the address of the platform's ledger, from the settings it wrote for its server."""
    words = (stack.folder.valkey / "valkey.conf").read_text(encoding="utf-8").split()
    port = words[words.index("port") + 1]
    return f"redis://:{stack.folder.secret()}@127.0.0.1:{port}/0"


def fill(url: str, jobs: int, *, limit: int) -> float:
    """Submit so many jobs; return the seconds."""
    started = time.perf_counter()
    policy, limits = Policy(), Limits(max_slices=limit, max_bytes=1 << 40)
    with redis.Redis.from_url(url) as client:
        sha = client.script_load(source("accept", policy))
        for first in range(0, jobs, _BATCH):
            with client.pipeline(transaction=False) as pipe:
                for number in range(first, min(first + _BATCH, jobs)):
                    text = b"job %d: link is up" % number
                    slices = list(cut(Kind.EMBED, EmbedParams(), [EmbedItem(text)]))
                    job = NewJob(Kind.EMBED, Queue.INTERACTIVE, slices, limits=limits)
                    args = Admission.of(job).args
                    pipe.evalsha(str(sha), 0, *args)
                replies = pipe.execute()
            if not {reply[0] for reply in replies} <= {b"new", b"full"}:
                sys.exit("expected every job to be accepted until the queue is full")
    return time.perf_counter() - started


def waiting(ledger: Ledger) -> int:
    """Count what waits or runs in the queue that is filled."""
    depth = ledger.maintenance.depths()[Queue.INTERACTIVE]
    return depth.queued + depth.delayed + depth.running


def drained(ledger: Ledger, *, seconds: float) -> float:
    """Return how many jobs a second end, over so long or until none is left."""
    before, started = waiting(ledger), time.perf_counter()
    while (left := waiting(ledger)) and time.perf_counter() - started < seconds:
        time.sleep(0.2)
    return (before - left) / (time.perf_counter() - started)


def memory(stack: Stack) -> dict[str, float]:
    """Return resident megabytes of each process, the worker's with its children's."""
    found = {}
    for process in stack.processes:
        if process.pid is not None:
            root = psutil.Process(process.pid)
            tree = [root, *root.children(recursive=True)]
            found[process.name] = sum(one.memory_info().rss for one in tree) / 1e6
    return found


@contextlib.contextmanager
def paused(stack: Stack) -> Iterator[None]:
    """Keep the worker from working."""
    pid = _pid(stack, "worker")
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def depth(stack: Stack, *, jobs: int, seconds: float) -> dict[str, Any]:
    """Measure accepts, memory, refusal and the drain at a small and at the full depth."""
    ledger = Ledger.from_url(ledger_url(stack))
    url = ledger_url(stack)
    fill(url, _SHALLOW, limit=jobs)
    shallow = drained(ledger, seconds=seconds)
    while waiting(ledger):
        time.sleep(0.2)
    before = memory(stack)
    with paused(stack):
        spent = fill(url, jobs, limit=jobs)
        with httpx2.Client(base_url=stack.url, timeout=30) as http:
            started = time.perf_counter()
            answer = http.post("/v1/embed", json={"texts": ["one more"]})
            refused_ms = (time.perf_counter() - started) * 1000
        full = memory(stack)
    start = waiting(ledger)
    while start - waiting(ledger) < min(jobs // 2, _SHALLOW):
        time.sleep(0.2)  # a worker that was away first finds its connections and leases lost
    deep = drained(ledger, seconds=seconds)
    after = memory(stack)
    ledger.close()
    return {
        "jobs": jobs,
        "accepts_per_s": jobs / spent,
        "drain_per_s": {"at_1000": shallow, "at_full": deep},
        "memory_mb": {"before": before, "full": full, "draining": after},
        "valkey_bytes_per_job": (full["valkey"] - before["valkey"]) * 1e6 / jobs,
        "at_limit": {
            "status": answer.status_code,
            "retry_after_s": int(answer.headers.get("Retry-After", "-1")),
            "answer_ms": refused_ms,
        },
    }


def recovery(stack: Stack, *, kills: int) -> dict[str, list[float]]:
    """Kill each process and wait for a new embed; return the seconds."""
    found: dict[str, list[float]] = {}
    retries = Retries(patience_s=300.0, longest_pause_s=0.5)
    with Client(stack.url, retries=retries) as client:
        client.embed(["warm"])
        for number in range(kills):
            for part in (*_CHILDREN, *(process.name for process in stack.processes)):
                os.kill(_pid(stack, part), signal.SIGKILL)
                started = time.perf_counter()
                client.embed([f"after kill {number} of {part}"])
                found.setdefault(part, []).append(time.perf_counter() - started)
    return found


def _pid(stack: Stack, part: str) -> int:
    """Find a process; it may be restarting."""
    until = time.monotonic() + 120
    while time.monotonic() < until:
        for process in stack.processes:
            if process.pid is None:
                continue
            if process.name == part:
                return process.pid
            if process.name == "worker" and part in _CHILDREN:
                for child in psutil.Process(process.pid).children(recursive=True):
                    with contextlib.suppress(psutil.Error):
                        words = child.cmdline()
                        if _CHILDREN[part] in words and "-I" not in words:
                            return int(child.pid)
        time.sleep(0.05)
    sys.exit(f"no {part} is running")


def main() -> None:
    """Run the measurements and print them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--artifact", type=Path, help="default: the stable one")
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=30.0, help="of draining")
    parser.add_argument("--kills", type=int, default=3, help="of each process")
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    paper = sheet.Sheet("queue")
    with tempfile.TemporaryDirectory(prefix="verso-bench-", ignore_cleanup_errors=True) as folder:
        settings = {"VERSO_QUEUE_LIMIT_SLICES": str(arguments.jobs), "VERSO_SCRUB_SHARE": "0"}
        config = StackConfig(
            Path(folder),
            arguments.artifact or find_artifact(),
            port=0,
            threads=arguments.threads,
            settings=settings,
        )
        stack = Stack(config)
        stack.start()
        try:
            seconds = recovery(stack, kills=arguments.kills)
            at_depth = depth(stack, jobs=arguments.jobs, seconds=arguments.seconds)
        finally:
            stack.stop()
    show(at_depth, seconds)
    paper.finish({**at_depth, "recovery_s": seconds, "threads": arguments.threads})


def show(at_depth: dict[str, Any], seconds: dict[str, list[float]]) -> None:
    """Print the tables for people."""
    sheet.table(
        "Seconds from SIGKILL to a new embed",
        ["killed", "n", "median", "longest"],
        [[part, len(row), statistics.median(row), max(row)] for part, row in seconds.items()],
    )
    stages = at_depth["memory_mb"]
    sheet.table(
        f"{at_depth['jobs']:,} jobs waiting: resident MB",
        ["process", *stages],
        [[name, *(stages[stage].get(name) for stage in stages)] for name in stages["before"]],
    )
    limit, drain = at_depth["at_limit"], at_depth["drain_per_s"]
    sheet.table(
        "The queue",
        ["what", "figure"],
        [
            ["jobs accepted a second", at_depth["accepts_per_s"]],
            ["jobs drained a second, 1,000 waiting", drain["at_1000"]],
            ["jobs drained a second, all waiting", drain["at_full"]],
            ["bytes a waiting job", at_depth["valkey_bytes_per_job"]],
            [f"at the limit: status {limit['status']}, Retry-After, s", limit["retry_after_s"]],
            ["at the limit: answered after, ms", limit["answer_ms"]],
        ],
    )


if __name__ == "__main__":
    main()

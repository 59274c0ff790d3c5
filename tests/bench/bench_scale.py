"""Do two gateways and two workers on one queue do twice the work of one and one?

The task is embedding, which the processor limits: each worker's engine has one thread, so one
worker keeps about one core busy, and two are worth twice as much where there are cores for two and
for what feeds them. Per round: one gateway and one worker, then two and two, on a ledger of their
own, under the same number of callers. After each, what all processes counted is added up and
compared with what the callers counted.

The bound is the machine's: what two could reach at most is the cores that were left to the platform
by everything else that ran, over the core seconds that a text took with one of each.
"""

from __future__ import annotations

import argparse
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import sheet
import texts
from processes import Site, machine_s, own_s, running

from verso_client import Client
from verso_standalone.stack import find_artifact


@dataclass(frozen=True)
class Run:
    """The work of a site within its time.

    cores: kept busy on average by the platform's processes, by the callers, and by all else.
    """

    each: int
    texts_per_s: float
    cores: dict[str, float]
    core_ms_per_text: float
    counted: dict[str, int]


def measure(site: Site, each: int, *, seconds: float, callers: int, batch: list[str]) -> Run:
    """Let callers embed for so long, and read the processors and the counters."""
    over = 0.0

    def call(number: int) -> tuple[int, int]:
        """Embed until the time is over; return the requests, the current one included."""
        done = within = 0
        with Client(site.url(f"gateway-{number % each}")) as verso:
            while time.perf_counter() < over:
                verso.embed(batch)
                done += 1
                within += time.perf_counter() < over
        return done, within

    with Client(site.url("gateway-0")) as verso:
        for _ in range(2 * each):
            verso.embed(batch)  # warm
    before, own, whole = site.spent(), own_s(), machine_s()
    started = time.perf_counter()
    over = started + seconds
    with ThreadPoolExecutor(callers) as pool:
        rows = list(pool.map(call, range(callers)))
    wall = time.perf_counter() - started
    after = site.spent()
    platform = sum(after.values()) - sum(before.values())
    ours = own_s() - own
    done = sum(row[0] for row in rows) * len(batch)
    asked = (sum(row[0] for row in rows) + 2 * each) * len(batch)
    item = r'verso_worker_items_total\{status="ok",task="embed"\}'
    request = r'verso_requests_total\{status="2xx",task="embed"\}'
    ended = r'verso_jobs_ended_total\{status="succeeded",task="embed"\}'
    probes = int(site.total("keeper", ended)) - int(site.total("gateway", request))
    return Run(
        each=each,
        texts_per_s=done / wall,
        cores={
            "platform": platform / wall,
            "workers": sum(after[n] - before[n] for n in after if "worker" in n) / wall,
            "callers": ours / wall,
            "else": max(0.0, machine_s() - whole - platform - ours) / wall,
        },
        core_ms_per_text=1e3 * platform / done,
        counted={
            "callers": asked,
            "gateways": int(site.total("gateway", request)) * len(batch),
            # the keeper has a text of its own embedded from time to time
            "workers": int(site.total("worker", item)) - probes,
        },
    )


def main() -> None:
    """Run the measurements and print them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--artifact", type=Path, help="default: the stable one")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each run")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--callers", type=int, default=8)
    parser.add_argument("--batch", type=int, default=64, help="texts a request")
    arguments = parser.parse_args()
    paper = sheet.Sheet("scale")
    paragraphs = texts.corpus_by_kind()["corpus: paragraph"]
    batch = [text.decode() for text in texts.chosen(paragraphs, arguments.batch)]
    runs = []
    for _ in range(arguments.rounds):
        for each in (1, 2):
            with running(arguments.artifact or find_artifact(), each) as site:
                runs.append(
                    measure(
                        site, each, seconds=arguments.seconds, callers=arguments.callers,
                        batch=batch,
                    )
                )  # fmt: skip
    paper.finish(show(runs))


def show(runs: list[Run]) -> dict[str, Any]:
    """Print the table; return its figures."""
    columns = ["platform", "workers", "callers", "else"]
    sheet.table(
        "Texts embedded a second, and cores kept busy",
        ["gateways and workers", "texts/s", *columns, "core ms a text", "counts agree"],
        [
            [f"{run.each} and {run.each}", run.texts_per_s]
            + [run.cores[column] for column in columns]
            + [run.core_ms_per_text, "yes" if len(set(run.counted.values())) == 1 else "NO"]
            for run in runs
        ],
    )
    speed = {n: statistics.median(r.texts_per_s for r in runs if r.each == n) for n in (1, 2)}
    cost_ms = statistics.median(run.core_ms_per_text for run in runs if run.each == 1)
    cores = psutil.cpu_count() or 1
    left = statistics.median(
        cores - run.cores["else"] - run.cores["callers"] for run in runs if run.each == 2
    )
    bound = min(2.0, left / (cost_ms / 1e3) / speed[1])
    found = {
        "speedup": speed[2] / speed[1],
        "speedup_bound": bound,
        "texts_per_s": {"one": speed[1], "two": speed[2]},
        "cores_left": left,
        "core_ms_per_text": cost_ms,
        "counts_agree": all(len(set(run.counted.values())) == 1 for run in runs),
    }
    sheet.table(
        "Two gateways and two workers against one of each",
        ["what", "figure"],
        [
            ["times as fast", found["speedup"]],
            ["the cores allowed, at most", bound],
            ["cores left to the platform", left],
        ],
    )
    return found | {"runs": [vars(run) for run in runs]}


if __name__ == "__main__":
    main()

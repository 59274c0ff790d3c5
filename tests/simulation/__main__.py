"""Runs the simulation of the ledger: ``python -m tests.simulation --steps 1000000 --seed 1``."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

from tests.simulation.check import leftovers
from tests.simulation.server import Server
from tests.simulation.world import World, Wrong

from verso_standalone.valkey import find_program

_PART = 10_000


def main() -> int:
    """Run it; status 1 where the ledger differs from its model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=24 * 60.0, help="stop after so long")
    parser.add_argument("--every", type=int, default=200, help="steps between whole comparisons")
    parser.add_argument("--shown", type=int, default=30, help="steps shown before a failure")
    arguments = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="verso-sim-") as folder,
        Server(str(find_program()), Path(folder)) as server,
    ):
        return run(server, arguments)


def run(server: Server, arguments: argparse.Namespace) -> int:
    """Run the steps; after a failure again, to the first step that shows it."""
    started, spent = time.monotonic(), time.process_time()
    world = World(server, arguments.seed, every=arguments.every)
    try:
        while world.done < arguments.steps and time.monotonic() - started < 60 * arguments.minutes:
            world.run(min(_PART, arguments.steps - world.done))
    except Wrong as wrong:
        sys.stderr.write(f"{wrong}; made again to the first step that shows it\n")
        world, wrong = first_wrong(server, arguments.seed, wrong, every=arguments.every)
        sys.stdout.write("\n".join([*world.log[-arguments.shown :], ""]))
        again = f"python -m tests.simulation --seed {arguments.seed} --steps {wrong.step} --every 1"
        sys.stdout.write(f"{wrong}\nseed {arguments.seed}; shortest: {again}\n")
        return 1
    seconds = time.monotonic() - started
    row = {
        "seed": arguments.seed,
        "steps": world.done,
        "jobs": world.model.accepted,
        "ends": world.model.ended,
        "leftovers": leftovers(server.client, world.model),
        "seconds": round(seconds, 1),
        "cpu_s": round(time.process_time() - spent, 1),
        "steps_a_second": round(world.done / seconds),
    }
    sys.stdout.write(json.dumps(row) + "\n")
    return 1 if row["leftovers"] else 0


def first_wrong(server: Server, seed: int, wrong: Wrong, *, every: int) -> tuple[World, Wrong]:
    """Run a failure again, all compared after each of its last steps; return the first wrong."""
    world = World(server, seed, every=every)
    try:
        world.run(max(0, wrong.step - 2 * every))
        world.every = 1
        world.run(wrong.step - world.done)
    except Wrong as first:
        return world, first
    raise wrong


if __name__ == "__main__":
    sys.exit(main())

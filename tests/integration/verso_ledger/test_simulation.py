"""Random interleavings of gateways, workers and keepers leave the ledger as its model says.

``python -m tests.simulation`` runs longer ones; `make prove` runs them for hours.
"""

from __future__ import annotations

import pytest
from tests.simulation.check import leftovers
from tests.simulation.server import Server
from tests.simulation.world import World, Wrong

STEPS = 20_000
MUTANTS = {
    "a commit without its lease": (
        "commit",
        "local s = held(sid, fence)",
        "local s = read_slice(sid)",
    ),
    "a commit that can be repeated": (
        "commit",
        "redis.call('HGET', K.slice .. sid, 'cf') == fence",
        "false",
    ),
    "a lease that never runs out": ("reap", "if s and s.st == 'running' then", "if false then"),
    "a lease that any fence renews": (
        "renew",
        "local s = held(ARGV[i], ARGV[i + 1])",
        "local s = read_slice(ARGV[i])",
    ),
    "an idempotency key that is not looked at": (
        "accept",
        "if v[1] and redis.call",
        "if false and redis.call",
    ),
    "a quota that is not looked at": ("accept", "if wait_s then", "if false then"),
    "an older write that replaces a later one": ("commit", "if old_seq > seq and", "if false and"),
    "a tombstone that goes too early": (
        "reap",
        "local bound = oldest and '(' .. oldest or '+inf'",
        "local bound = '+inf'",
    ),
    "a cancelled slice that may still be committed": (
        "cancel",
        "'st', 'cancelled', 'ok', 0",
        "'ok', 0",
    ),
    "numbers of lines that are given out twice": ("reserve", "first + tonumber(ARGV[3])", "first"),
    "a source that does not move": ("accept", "if source then source.move(ARGV[24]) end", ""),
    "tenants without turns": (
        "claim",
        "turn_over(queue, tenant, start",
        "turn_over(queue, tenant, 0",
    ),
    "texts dropped before they are verified": (
        "drop",
        "if redis.call('HGET', K.slice .. sid, 'ph') == 'verified' then",
        "if false then",
    ),
    "a scrub that two turns move": (
        "scrub_move",
        "if turn ~= tonumber(ARGV[1]) then",
        "if false then",
    ),
    "a document that is moved to cold storage though it was written meanwhile": (
        "to_cold",
        "if stored and stored == ARGV[2 + i] then",
        "if stored then",
    ),
    "entries that are moved when their object may be gone": (
        "to_cold",
        "or now > tonumber(ARGV[1])",
        "",
    ),
    # Faults that the simulation found when it was new, each with a test in test_jobs.py:
    "a job that is gone before its texts are verified": (
        "commit",
        "if (tonumber(v[7]) or 0) <= 0 then",
        "if true then",
    ),
}


def test_a_ledger_is_as_its_model_says_after_any_interleaving(server: Server) -> None:
    world = World(server, seed=1)
    world.run(STEPS)
    assert world.model.accepted > STEPS / 20
    assert leftovers(server.client, world.model) == []


def test_the_same_seed_makes_the_same_run(server: Server) -> None:
    logs = []
    for _ in range(2):
        world = World(server, seed=5)
        world.run(600)
        logs.append(world.log)
    assert logs[0] == logs[1]


@pytest.mark.parametrize("name", MUTANTS)
def test_a_broken_step_is_found(server: Server, name: str) -> None:
    step, right, broken = MUTANTS[name]
    changed = []

    def mutate(which: str, text: str) -> str:
        if which != step:
            return text
        assert right in text
        changed.append(which)
        return text.replace(right, broken)

    world = World(server, seed=2, every=50, mutation=mutate)
    with pytest.raises(Wrong):
        world.run(6_000)
    assert changed

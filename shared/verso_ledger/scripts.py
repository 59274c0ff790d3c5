"""The ledger's steps: Lua files beside this module, run whole or not at all by the server."""

from __future__ import annotations

from dataclasses import fields
from functools import cache
from importlib.resources import files

from verso_ledger.keys import lua_table
from verso_ledger.models import Policy

_MAY_GROW = frozenset({"accept", "collection_put"})
"""Steps that are refused once the server's memory is full; all others only let work drain."""

SHARED = ("prelude", "entries")
"""What stands before every step."""


@cache
def source(step: str, policy: Policy) -> str:
    """Return the whole text of one step: header, what is shared, body.

    A script with the ``allow-oom`` flag runs above ``maxmemory`` too: a full ledger must be able to
    finish the work it holds, or it would stay full.
    """
    flags = "" if step in _MAY_GROW else " flags=allow-oom"
    folder = files(__package__) / "lua"
    parts = [(folder / f"{name}.lua").read_text(encoding="utf-8") for name in (*SHARED, step)]
    return f"#!lua{flags}\n{lua_table()}{_policy_table(policy)}" + "\n".join(parts)


def _policy_table(policy: Policy) -> str:
    rows = []
    for item in fields(policy):
        value = getattr(policy, item.name)
        text = "{" + ",".join(map(str, value)) + "}" if isinstance(value, tuple) else str(value)
        rows.append(f"{item.name}={text}")
    return "local P={" + ",".join(rows) + "}\n"

"""Values as logs write them: numbers, identifiers, addresses, times and paths, at random."""

from __future__ import annotations

import datetime as dt
import ipaddress
import random
import uuid

_TIMES = (
    "%Y-%m-%dT%H:%M:%S.%fZ", "%Y-%m-%d %H:%M:%S,%f", "%b %d %H:%M:%S", "%d/%b/%Y:%H:%M:%S +0000",
    "%Y.%m.%d", "%Y%m%d-%H:%M:%S:%f", "%a %b %d %H:%M:%S %Y", "%y/%m/%d %H:%M:%S",
)  # fmt: skip
_NAMES = ("var", "log", "usr", "lib", "blk_", "node-", "core.", "part-", "R", "sda", "eth", "v")


def field(rng: random.Random) -> str:
    """Make one value up."""
    return rng.choice((_integer, _hexadecimal, _uuid, _address, _time, _path))(rng)


def line(rng: random.Random, *, fields: int) -> str:
    """Make a line of values, each after the other or changed a little, as counters and clocks are.

    What stands between them is what logs put there, nothing at all among it.
    """
    found: list[str] = []
    for _ in range(fields):
        near = rng.choice(found) if found and rng.random() < 0.3 else ""
        if near.isdecimal() and len(near) < 40:
            found.append(str(int(near) + rng.randrange(-3, 100)).zfill(len(near)))
        else:
            found.append(near or field(rng))
    return "".join(
        value + rng.choice((" ", " ", ":", ", ", "=", "[", "]", '"', "")) for value in found
    )


def _integer(rng: random.Random) -> str:
    size = rng.choice((8, 16, 31, 32, 63, 64, 65, 200))
    number = str(rng.getrandbits(size) * rng.choice((1, -1)))
    return number.zfill(rng.choice((0, 0, 8, 20)))


def _hexadecimal(rng: random.Random) -> str:
    digits = rng.randbytes(rng.choice((1, 2, 4, 8, 20, 32))).hex()
    return rng.choice(("", "0x", "0X")) + rng.choice((digits, digits.upper()))


def _uuid(rng: random.Random) -> str:
    found = str(uuid.UUID(int=rng.getrandbits(128), version=4))
    return rng.choice((found, found.upper(), "{" + found + "}"))


def _address(rng: random.Random) -> str:
    four, six = rng.getrandbits(32), rng.getrandbits(128) >> rng.choice((0, 64, 120))
    host = rng.choice(
        (str(ipaddress.IPv4Address(four)), str(ipaddress.IPv6Address(six)), "999.1.256.07")
    )
    return host + rng.choice(("", f":{rng.randrange(70_000)}", "/24"))


def _time(rng: random.Random) -> str:
    seconds = rng.randrange(2**31)
    at = dt.datetime.fromtimestamp(seconds, dt.UTC)
    written = at.strftime(rng.choice(_TIMES))
    return rng.choice((written, written, f"{seconds} {written}", str(seconds * 1000), "2026-02-30"))


def _path(rng: random.Random) -> str:
    parts = [
        rng.choice(_NAMES) + rng.choice(("", str(rng.randrange(10_000))))
        for _ in range(rng.randrange(1, 6))
    ]
    return rng.choice(("/", "C:\\", "./", "")) + rng.choice(("/", "\\")).join(parts)

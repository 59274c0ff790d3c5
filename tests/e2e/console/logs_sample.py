"""Made-up lines of a day of three programs, for stories of the console."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime

import httpx2

from verso_client import Client

DAY_S = 86_400
NEW = "raid: array md0 degraded, 1 spare missing"
_LINES = {
    ("shop", "info"): ("GET /cart/{n} 200 in {few} ms", "order {n} placed for {few}.90 EUR"),
    ("shop", "warning"): ("payment gateway answered late: {few} ms for order {n}",),
    ("shop", "error"): ("payment of order {n} was refused: card expired",),
    ("auth", "info"): ("Accepted publickey for user{few} from 10.0.0.{few} port {n}",),
    ("auth", "warning"): ("Failed password for user{few} from 203.0.113.{few} port {n}",),
}
_COUNTS = (900, 90, 40, 300, 120)


def send_day(client: Client, collection: str, *, end_s: float) -> int:
    """Send lines of the 24 hours before a time, one of them of a new statement; return how many."""
    drawn = random.Random(19)
    bodies: defaultdict[tuple[str, str, str], list[tuple[float, str]]] = defaultdict(list)
    for (source, texts), count in zip(_LINES.items(), _COUNTS, strict=True):
        for n in range(count):
            host = f"{source[0]}-{n % 2 + 1}"
            text = drawn.choice(texts).format(n=drawn.randrange(60_000), few=drawn.randrange(250))
            bodies[*source, host].append((end_s - drawn.random() * DAY_S, text))
    bodies["kernel", "error", "shop-1"] = [(end_s - 600, NEW)]
    for (service, level, host), rows in bodies.items():
        labels = {"service": service, "level": level, "host": host}
        body = "".join(_line(at, host, service, text) for at, text in sorted(rows))
        client.ingest_lines([body.encode()], collection=collection, labels=labels)
    return sum(_COUNTS) + 1


def _line(at: float, host: str, service: str, text: str) -> str:
    stamp = datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")
    return f"{stamp.replace('+00:00', 'Z')} {host} {service}: {text}\n"


def many_lines(count: int) -> Iterator[bytes]:
    """Yield bodies of so many lines in all, a second apart."""
    start = 1_767_225_600
    for first in range(0, count, 20_000):
        rows = [
            _line(start + n, "a", "loop", f"step {n} of the loop took {n % 97} ms")
            for n in range(first, min(count, first + 20_000))
        ]
        yield "".join(rows).encode()


def send_line(url: str, collection: str, text: str, **labels: str) -> None:
    """Have a line accepted."""
    params = {"collection": collection, "label": [f"{k}={v}" for k, v in labels.items()]}
    headers = {"Content-Type": "text/plain", "Prefer": "respond-async"}
    answer = httpx2.post(
        f"{url}/v1/ingest",
        params=params,
        content=f"{text}\n".encode(),
        headers=headers,
        timeout=60,
    )
    assert answer.status_code == 202

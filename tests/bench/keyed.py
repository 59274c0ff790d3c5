"""A platform whose callers have API keys, and what its benches measure of them."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

import httpx2

from verso_core.api_keys import mint
from verso_standalone.stack import Stack, StackConfig, find_artifact


@contextlib.contextmanager
def platform(
    owners: tuple[str, ...], *, artifact: Path | None, threads: int
) -> Iterator[tuple[Stack, dict[str, str]]]:
    """Start a platform that scrubs nothing; yield it with each owner's secret, then stop it.

    Args:
        owners: each gets a key.
        artifact: None is the stable one.
        threads: of the engine.
    """
    with tempfile.TemporaryDirectory(prefix="verso-bench-", ignore_cleanup_errors=True) as folder:
        keys = Path(folder) / "keys"
        minted = {owner: mint(owner) for owner in owners}
        lines = "".join(f"{key.line()}\n" for _, key in minted.values())
        keys.write_text(lines, encoding="ascii")
        config = StackConfig(
            Path(folder) / "data",
            artifact or find_artifact(),
            port=0,
            api_keys_file=keys,
            threads=threads,
            settings={"VERSO_SCRUB_SHARE": "0"},
        )
        stack = Stack(config)
        stack.start()
        try:
            yield stack, {owner: secret for owner, (secret, _) in minted.items()}
        finally:
            stack.stop()


def client(url: str, secret: str) -> httpx2.Client:
    """Return a client that calls with a key."""
    headers = {"Authorization": f"Bearer {secret}"}
    return httpx2.Client(base_url=url, headers=headers, timeout=180.0)


def p95_ms(latencies: list[float]) -> float:
    """Return the latency that 95 % of the requests did not pass, ms."""
    return 1000 * sorted(latencies)[int(0.95 * (len(latencies) - 1))]

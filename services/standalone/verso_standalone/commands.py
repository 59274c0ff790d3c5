"""The commands `verso up`, `demo`, `backup`, `restore` and `ledger`.

What a command alone needs is imported in it: the libraries of stores and ledger, which copies of
the stores take, would double the time that `verso up` computes before its first process.
"""

from __future__ import annotations

import signal
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Column, Table

from verso_client.cli.terminal import failures_reported
from verso_standalone.folder import DataFolder
from verso_standalone.models import artifact_of
from verso_standalone.report import Report
from verso_standalone.sample import TEXTS
from verso_standalone.stack import Stack, StackConfig, find_artifact, usable_cores

Artifact = Annotated[
    Path | None,
    typer.Option(
        help="Artifact folder; default: the stable one below ./models.", show_default=False
    ),
]
Threads = Annotated[
    int | None,
    typer.Option(
        min=1,
        envvar="VERSO_THREADS",
        help="Threads of the engine; default: all cores, at most 8.",
        show_default=False,
    ),
]

Port = Annotated[int, typer.Option(help="TCP port; 0 takes a free one.", min=0, max=65535)]


def up(
    data: Annotated[Path, typer.Option(help="Folder that keeps everything.")] = Path("verso-data"),
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Port = 8080,
    syslog: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=65535,
            metavar="PORT",
            help="Receive syslog over TCP and UDP on this port of VERSO_SYSLOG_HOST.",
            show_default=False,
        ),
    ] = None,
    artifact: Artifact = None,
    api_keys: Annotated[
        Path | None,
        typer.Option(
            "--api-keys",
            help="File of API keys, needed beyond loopback; "
            "default: the data folder's, which `verso keys new NAME` makes.",
            show_default=False,
        ),
    ] = None,
    threads: Threads = None,
    log_limit: Annotated[
        int,
        typer.Option(
            min=1, envvar="VERSO_LOG_LIMIT_MIB", help="Length of each process's log file, MiB."
        ),
    ] = 16,
) -> None:
    """Run the whole platform on this machine until Ctrl-C."""
    console = Console()
    with failures_reported(), _signals() as stopped:
        stack = Stack(
            StackConfig(
                data=data,
                artifact=artifact or find_artifact(),
                host=host,
                port=port,
                syslog_port=syslog,
                api_keys_file=api_keys or _keys_of(data),
                threads=threads or usable_cores(),
                pinned=artifact is not None,
                log_limit_mib=log_limit,
            )
        )
        with console.status("starting"):
            stack.start(stopped=stopped)
        try:
            console.print(f"console: {stack.url}/console", highlight=False, style="bold")
            console.print(_table(stack))
            console.print(f"ready at {stack.url}   Ctrl-C stops", highlight=False)
            stopped.wait()
            with console.status("stopping"):
                stack.stop()
        finally:  # also where nobody reads what is printed
            stack.stop()
        console.print("stopped")


def demo(
    json_path: Annotated[
        Path | None, typer.Option("--json", help="Write the report to this file as JSON.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="Data folder; default: a new one, removed at the end.")
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the data folder.")] = False,
    stay: Annotated[
        bool,
        typer.Option("--stay", help="Serve the sample corpus and the console until Ctrl-C."),
    ] = False,
    port: Port = 0,
    texts: Annotated[
        int, typer.Option(min=50, help="Most texts of the corpus, which has 2,446.")
    ] = TEXTS,
    artifact: Artifact = None,
    threads: Threads = None,
) -> None:
    """Ingest the sample corpus, search it, read every byte back, and report."""
    from verso_standalone import demo as demonstration

    console = Console()
    with (
        failures_reported(),
        _signals() as stopped,
        _data_folder(data, keep=keep) as folder,
    ):
        report = demonstration.run(
            folder,
            artifact or find_artifact(),
            threads=threads or usable_cores(),
            console=console,
            stopped=stopped,
            limit=texts,
            port=port,
            finish=partial(_finish, console, stopped, json_path=json_path, stay=stay),
        )
        if keep or data is not None:
            console.print(f"kept in {folder}: verso up --data {folder}", highlight=False)
        if not stay:
            console.print("to search it in a browser: verso demo --stay", highlight=False)
    if not report.passed:
        raise typer.Exit(1)


def _finish(
    console: Console,
    stopped: threading.Event,
    report: Report,
    url: str,
    *,
    json_path: Path | None,
    stay: bool,
) -> None:
    """Write the report down; serve until the end if that was asked for."""
    report.show(console)
    if json_path is not None:
        json_path.write_text(report.json() + "\n", encoding="utf-8")
    if stay:
        console.print(f"console: {url}/console   Ctrl-C stops", highlight=False, style="bold")
        stopped.wait()


def backup(
    target: Annotated[Path, typer.Argument(help="New folder for the backup.")],
    data: Annotated[Path, typer.Option(help="Data folder of the running platform.")] = Path(
        "verso-data"
    ),
) -> None:
    """Copy both stores and the artifacts of a running platform, consistently, while it serves."""
    from verso_standalone import backup as copies

    console = Console()
    with failures_reported():
        with console.status("copying"):
            made = copies.save(data, target)
        console.print(
            f"{target}: {len(made.files)} files, {made.size_bytes:,} bytes, "
            f"{sum(made.collections.values()):,} points in {len(made.collections)} collections",
            highlight=False,
        )


def restore(
    source: Annotated[Path, typer.Argument(help="Folder of the backup.")],
    data: Annotated[Path, typer.Option(help="New data folder.")],
    check: Annotated[
        bool, typer.Option("--check/--no-check", help="Start it once and read every document.")
    ] = True,
    artifact: Artifact = None,
    threads: Threads = None,
) -> None:
    """Build a data folder from a backup; status 1 if it is damaged or a document cannot be read."""
    from verso_standalone import backup as copies

    console = Console()
    with failures_reported():
        with console.status("restoring"):
            made = copies.restore(source, data)
        console.print(f"restored, as of {made.created:%Y-%m-%d %H:%M:%S} UTC", highlight=False)
        if not check:
            return
        with console.status("reading every document"):
            found = copies.read_back(
                StackConfig(
                    data=data,
                    artifact=artifact or find_artifact(),
                    port=0,
                    threads=threads or usable_cores(),
                    settings={"VERSO_SCRUB_SHARE": "1"},
                )
            )
        console.print(
            f"read {found.documents:,} documents: {found.sound:,} sound, "
            f"{found.repaired:,} repaired, {found.damaged:,} damaged",
            highlight=False,
        )
        if found.damaged or found.unread:
            raise typer.Exit(1)


def ledger(
    data: Annotated[Path, typer.Option(help="Data folder of the platform.")] = Path("verso-data"),
    trust: Annotated[
        bool,
        typer.Option("--trust", help="Accept a read-only ledger as it is; it is writable again."),
    ] = False,
) -> None:
    """Show whether the ledger has lost acknowledged writes; status 1 if it is read-only."""
    from verso_standalone import backup as copies

    console = Console()
    with failures_reported():
        description, read_only = copies.ledger_state(data, trust=trust)
        console.print(description, highlight=False)
    if read_only:
        raise typer.Exit(1)


def _keys_of(data: Path) -> Path | None:
    """Return the data folder's file of API keys, None if it has none."""
    path = DataFolder(data).api_keys
    return path if path.exists() else None


@contextmanager
def _signals() -> Iterator[threading.Event]:
    """Turn the signals that end a process into an event, so that the platform is stopped in order.

    A closed terminal sends SIGHUP. It stays ignored under ``nohup``.
    """
    stopped = threading.Event()
    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    handlers = {number: signal.signal(number, lambda *_: stopped.set()) for number in numbers}
    try:
        yield stopped
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


@contextmanager
def _data_folder(data: Path | None, *, keep: bool) -> Iterator[Path]:
    if data is not None:
        yield data
    elif keep:
        yield Path(tempfile.mkdtemp(prefix="verso-demo-"))
    else:
        with tempfile.TemporaryDirectory(prefix="verso-demo-", ignore_cleanup_errors=True) as name:
            yield Path(name)


def _table(stack: Stack) -> Table:
    table = Table("what", "pid", "where", Column("log", overflow="fold"))
    for process in stack.processes:
        where = stack.addresses[process.name]
        table.add_row(process.name, str(process.pid or "-"), where, str(process.log_path))
    table.add_row("data", "", str(stack.folder.root), "")
    table.add_row("artifact", "", artifact_of(stack.folder.models), "")
    return table


app = typer.Typer(no_args_is_help=True, add_completion=False)
app.command()(up)
app.command()(demo)
app.command()(backup)
app.command()(restore)
app.command()(ledger)

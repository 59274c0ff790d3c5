"""Commands that other installed packages add, through the entry-point group "verso.commands"."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import entry_points

import typer

PLUGINS = "verso.commands"


def add_plugins(to: typer.Typer, arguments: Sequence[str] = ()) -> None:
    """Add the commands that other installed packages provide.

    The client is often installed without the platform. A command whose libraries are missing is
    then left out, as if its package were not there.

    Args:
        to: where they are added.
        arguments: of the command line. Where they name a command, only what they name is loaded:
            the platform's libraries take seconds, and a search needs none of them.
    """
    plugins = sorted(entry_points(group=PLUGINS), key=lambda entry: entry.name)
    named = [found for found in plugins if found.name.partition(" ")[0] in arguments]
    if named or _names(to).intersection(arguments):
        plugins = named
    for found in plugins:
        try:
            command = found.load()
        except ModuleNotFoundError:
            continue
        group, _, name = found.name.rpartition(" ")
        _group(to, group).command(name)(command)


def _names(of: typer.Typer) -> set[str]:
    """Return the names of an app's own commands and groups."""
    names = {group.name for group in of.registered_groups if isinstance(group.name, str)}
    for command in of.registered_commands:
        callback = "" if command.callback is None else command.callback.__name__
        names.add(command.name or callback.replace("_", "-"))
    return names


def _group(to: typer.Typer, name: str) -> typer.Typer:
    """Find the group of commands of this name, or add it; no name is the app itself."""
    if not name:
        return to
    for group in to.registered_groups:
        if group.name == name and group.typer_instance is not None:
            return group.typer_instance
    added = typer.Typer(no_args_is_help=True)
    to.add_typer(added, name=name)
    return added

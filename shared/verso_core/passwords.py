"""Passwords of stores, given as files: how container platforms hand secrets to a process.

A password in an address shows wherever the environment is shown; one in a file does not.
"""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote, urlsplit, urlunsplit


def with_password(url: str, file: Path | None) -> str:
    """Return the address with the file's password in it, in place of any it had.

    Args:
        url: ``redis://``, ``rediss://`` or ``unix://``, with or without a user name.
        file: holds the password and perhaps a line's end; None leaves the address as it is.

    Raises:
        ValueError: the file cannot be read, or holds no password; the message names the file only.
    """
    if file is None:
        return url
    try:
        password = file.read_text().strip()
    except (OSError, UnicodeDecodeError) as exc:
        raise ValueError(f"cannot read the password file {file}: {type(exc).__name__}") from exc
    if not password:
        raise ValueError(f"expected a password in {file}, got an empty file")
    parts = urlsplit(url)
    before, _, host = parts.netloc.rpartition("@")
    user = before.partition(":")[0]
    return urlunsplit(parts._replace(netloc=f"{user}:{quote(password, safe='')}@{host}"))

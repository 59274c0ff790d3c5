"""Generate the synchronous client from the asynchronous one: ``make client``.

With ``--check`` nothing is written; the exit status is 1 if the generated file is stale.

The client has an own generator as the known ones (unasync) rename what starts with "Async" to
"Sync", neither rewrite docstrings nor sort imports, and would be a dependency for forty lines.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "shared" / "verso_client"
SOURCE, TARGET = PACKAGE / "async_client.py", PACKAGE / "client.py"
_HEADER = (
    '"""The synchronous client. Generated from :mod:`verso_client.async_client`; do not edit."""\n'
)
_DOCSTRING = re.compile(r'\A""".*?"""\n', re.DOTALL)
_RULES = (
    (r"\basync (def|for|with)\b", r"\1"),
    (r"``async with``", "``with``"),
    (r"A client of one platform\.", "A client of one platform, safe to share between threads."),
    (r"\bawait ", ""),
    (r"\basyncio\b", "time"),
    (r"\bAsync(BaseTransport|Client|Iterator)\b", r"\1"),
    (r"\b__a(enter|exit)__\b", r"__\1__"),
    (r"\.a(close|read|iter_bytes)\(", r".\1("),
)


def generate(source: str) -> str:
    """Return the synchronous module for an asynchronous one, formatted."""
    text = _DOCSTRING.sub(lambda _: _HEADER, source, count=1)
    for pattern, replacement in _RULES:
        text = re.sub(pattern, replacement, text)
    for arguments in (["check", "--fix-only", "--select", "I", "--quiet"], ["format"]):
        text = subprocess.run(
            [sys.executable, "-m", "ruff", *arguments, "--stdin-filename", TARGET, "-"],
            input=text,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    return text


def main() -> int:
    """Write the module, or check it; return the exit status."""
    text = generate(SOURCE.read_text())
    if "--check" not in sys.argv:
        TARGET.write_text(text)
    elif TARGET.read_text() != text:
        sys.stderr.write(f"{TARGET.name} is stale: run make client\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

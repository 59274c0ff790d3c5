"""One-line summaries of installed manual pages, as ``lexgrog`` of man-db reads them.

A page's translation stands in a folder of its language, under the same section and name. The name
of the command, which no translator changes, is left out, so that only the summary can match.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Collection
from pathlib import Path

from verso_core.errors import NotInstalled

_READ = re.compile(r'(?P<path>.+?): "(?P<name>.+?) - (?P<summary>.+)"')


def summaries(folder: Path, wanted: Collection[str] | None = None) -> dict[str, str]:
    """Return the summary of each page below a folder, by section and file name.

    Args:
        folder: With ``man1`` to ``man8``.
        wanted: The pages to read; all of them if it is None.

    Raises:
        NotInstalled: there is no ``lexgrog``.
    """
    paths = sorted(
        path
        for path in folder.glob("man[1-8]/*")
        if wanted is None or f"{path.parent.name}/{path.name}" in wanted
    )
    if not paths:
        return {}
    try:
        done = (
            subprocess.run(  # a page without a summary makes it fail after it has read the others
                ["lexgrog", *map(str, paths)], capture_output=True, text=True, check=False
            )
        )
    except FileNotFoundError as exc:
        raise NotInstalled("lexgrog is missing: Debian has it in man-db") from exc
    found: dict[str, str] = {}
    for line in done.stdout.splitlines():
        if read := _READ.fullmatch(line):
            path = Path(read["path"])
            # A page that describes several commands has a summary for each; all are the same.
            found.setdefault(f"{path.parent.name}/{path.name}", read["summary"])
    return found

"""``/console``: pages for people, open to everyone: what they show they ask the API for.

1. ``index.html`` is answered at every address below ``/console``: the browser draws the page.
2. It names the other files with a hash of all of them in the path, so that a browser keeps them for
   good, and never has modules of two versions.
3. No script runs but those files and the import map, which the policy names by its hash.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

from fastapi import APIRouter, Request
from starlette.responses import Response

from verso_core.errors import NotFound

router = APIRouter(include_in_schema=False)

ADDRESS = "/console"
_STATIC = f"{ADDRESS}/static/"
_TYPES = {
    "css": "text/css; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "json": "application/json",
    "svg": "image/svg+xml",
    "txt": "text/plain; charset=utf-8",
}
_IMPORT_MAP = re.compile(rb'<script type="importmap">(.*?)</script>', re.DOTALL)
_POLICY = (
    "default-src 'none'; script-src 'self' 'sha256-{map_hash}'; style-src 'self'; "
    "img-src 'self' data: blob:; connect-src 'self'; font-src 'self'; form-action 'self'; "
    "frame-ancestors 'none'; base-uri 'none'"
)
"""Content Security Policy Level 3."""
_GUARDS = {
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}


@dataclass(frozen=True, slots=True)
class File:
    """A file of the console, ready to be sent."""

    content: bytes
    gzipped: bytes
    media_type: str


@dataclass(frozen=True, slots=True)
class Files:
    """All files of the console, by their path; ``version`` is a hash of them all."""

    version: str
    index: File
    policy: str
    by_path: dict[str, File]


@cache
def load() -> Files:
    """Read the files of this package; they stay in memory, 0.5 MB."""
    found = dict(_walk(files("verso_gateway") / "console", ""))
    index = found.pop("index.html")
    digest = hashlib.sha256()
    for path in sorted(found):
        digest.update(path.encode() + b"\0" + hashlib.sha256(found[path]).digest())
    version = digest.hexdigest()[:16]
    index = index.replace(_STATIC.encode(), f"{_STATIC}{version}/".encode())
    mapped = _IMPORT_MAP.search(index)
    assert mapped is not None, "index.html has no import map"
    map_hash = base64.b64encode(hashlib.sha256(mapped[1]).digest()).decode()
    return Files(
        version=version,
        index=_file("index.html", index),
        policy=_POLICY.format(map_hash=map_hash),
        by_path={path: _file(path, content) for path, content in found.items()},
    )


def _walk(folder: Traversable, prefix: str) -> list[tuple[str, bytes]]:
    found = []
    for entry in folder.iterdir():
        path = f"{prefix}{entry.name}"
        if entry.is_dir():
            found += _walk(entry, f"{path}/")
        elif path.rpartition(".")[2] in _TYPES:
            found.append((path, entry.read_bytes()))
    return found


def _file(path: str, content: bytes) -> File:
    return File(content, gzip.compress(content, mtime=0), _TYPES[path.rpartition(".")[2]])


@router.api_route(_STATIC + "{version}/{path:path}", methods=["GET", "HEAD"], name="console_file")
async def static(request: Request, version: str, path: str) -> Response:
    """Return a script, a style or an icon of the version that is served."""
    served = load()
    file = served.by_path.get(path) if version == served.version else None
    if file is None:
        raise NotFound(f"nothing at {request.url.path!a}")
    return _answer(request, file, {"Cache-Control": "public, max-age=31536000, immutable"})


@router.api_route(ADDRESS, methods=["GET", "HEAD"], name="console")
@router.api_route(ADDRESS + "/{page:path}", methods=["GET", "HEAD"], name="console_page")
async def page(request: Request) -> Response:
    """Return the page that draws all others."""
    served = load()
    tag = f'"{served.version}-{hashlib.sha256(served.index.content).hexdigest()[:8]}"'
    headers = {"ETag": tag, "Cache-Control": "no-cache", "Content-Security-Policy": served.policy}
    if tag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers | _GUARDS)
    return _answer(request, served.index, headers)


def _answer(request: Request, file: File, headers: dict[str, str]) -> Response:
    headers = headers | _GUARDS | {"Vary": "Accept-Encoding"}
    content = file.content
    if "gzip" in request.headers.get("accept-encoding", ""):
        content = file.gzipped
        headers["Content-Encoding"] = "gzip"
    return Response(content, media_type=file.media_type, headers=headers)

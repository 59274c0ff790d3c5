"""Compile the console out of ``services/console`` into the gateway's package: ``make console``.

1. ``tsc`` writes one readable module for each source file.
2. Libraries are taken out of their npm packages as published; ``vendor.json`` names version,
   licence, hash and, of each, the file in the package.
3. Styles become one file, as the browser draws nothing before it has them all; ``index.html`` gets
   the import map and, so that the browser need not find them one after another, the modules that
   the first page imports.

With ``--check`` all of this happens in a new folder, and the exit status is 1 if any byte of the
committed files differs. ``npm ci --prefix services/console`` must have run.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "services" / "console"
TARGET = ROOT / "services" / "gateway" / "verso_gateway" / "console"
PREFIX = "/console/static"
PACKAGES = {
    "preact": ("preact", "dist/preact.mjs"),
    "preact/hooks": ("preact", "hooks/dist/hooks.mjs"),
    "preact/jsx-runtime": ("preact", "jsx-runtime/dist/jsxRuntime.mjs"),
    "@preact/signals": ("@preact/signals", "dist/signals.mjs"),
    "@preact/signals-core": ("@preact/signals-core", "dist/signals-core.mjs"),
    "uplot": ("uplot", "dist/uPlot.esm.js"),
    "uplot.css": ("uplot", "dist/uPlot.min.css"),
}
"""What is imported by a name, as npm's package and the file in it."""
_START = "app/pages/search/page.js"
"""What the console's address shows."""
_STYLES = ("tokens.css", "base.css", "components.css")
_IMPORT = re.compile(r'^(?:import|export)\b[^;]*?\bfrom "([^"]+)"|^import "([^"]+)"', re.MULTILINE)
_SOURCE_MAP = re.compile(r"\n?//# sourceMappingURL=.*\s*$")


def build(target: Path) -> None:
    """Write everything that the gateway serves into an empty folder.

    Raises:
        subprocess.CalledProcessError: the compiler found a fault, and has printed it.
    """
    compiler = SOURCE / "node_modules" / ".bin" / "tsc"
    subprocess.run([compiler, "-p", SOURCE, "--outDir", target / "app"], check=True)
    imports = _vendor(target / "vendor")
    _write_styles(target)
    _write_index(target, imports)


def _vendor(target: Path) -> dict[str, str]:
    """Copy the libraries; return the import map: the served path of each name."""
    target.mkdir()
    imports, about, licences = {}, {}, {}
    for name, (package, path) in PACKAGES.items():
        home = SOURCE / "node_modules" / package
        manifest = json.loads((home / "package.json").read_text())
        text = _SOURCE_MAP.sub("\n", (home / path).read_text())  # the map is not served
        file = target / (name.replace("@", "").replace("/", "-") + _suffix(path))
        file.write_text(text)
        licences[package] = (home / "LICENSE").read_text()
        if file.suffix == ".js":
            imports[name] = f"{PREFIX}/vendor/{file.name}"
        about[file.name] = {
            "package": package,
            "version": manifest["version"],
            "licence": manifest["license"],
            "file": path,
            "sha256": hashlib.sha256(text.encode()).hexdigest(),
        }
    (target / "vendor.json").write_text(json.dumps(about, indent=2) + "\n")
    for package, text in licences.items():
        name = package.replace("@", "").replace("/", "-")
        (target / f"LICENSE-{name}.txt").write_text(text)
    return imports


def _suffix(path: str) -> str:
    return "" if path.endswith(".css") else ".js"


def _write_styles(target: Path) -> None:
    source = SOURCE / "src" / "style"
    pages = sorted((source / "pages").glob("*.css"))
    parts = [target / "vendor" / "uplot.css", *(source / name for name in _STYLES), *pages]
    (target / "style").mkdir()
    text = "\n".join(f"/* {part.name} */\n{part.read_text()}" for part in parts)
    (target / "style" / "console.css").write_text(text)
    (target / "vendor" / "uplot.css").unlink()
    shutil.copy(source / "icon.svg", target / "style")


def _write_index(target: Path, imports: dict[str, str]) -> None:
    first = sorted(_first_modules(target, ("app/main.js", _START), imports) | {_START})
    modules = [f'<link rel="modulepreload" href="{PREFIX}/{name}">' for name in first]
    text = (SOURCE / "src" / "index.html").read_text()
    text = text.replace("<!-- modules -->", "\n    ".join(modules))
    text = text.replace("<!-- imports -->", json.dumps({"imports": imports}))
    (target / "index.html").write_text(text)


def _first_modules(target: Path, names: Sequence[str], imports: dict[str, str]) -> set[str]:
    """Return what modules import, directly and through others, save pages shown later."""
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        module = target / waiting.pop()
        for one in _imports(module):
            if one in imports:
                path = imports[one].removeprefix(f"{PREFIX}/")
            else:
                path = os.path.relpath(module.parent / one, target)
            if path not in found:
                found.add(path)
                waiting.append(path)
    return found - set(names)


def _imports(module: Path) -> Iterator[str]:
    text = module.read_text()
    for first, second in _IMPORT.findall(text):
        yield first or second
    if module.parent.name == "vendor":  # those of preact are written without white space
        yield from re.findall(r'\bfrom"([^"]+)"', text)


def _files(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def main() -> int:
    """Write the console, or check it; return the exit status."""
    with tempfile.TemporaryDirectory() as name:
        built = Path(name) / "console"
        built.mkdir()
        try:
            build(built)
        except subprocess.CalledProcessError:
            return 1
        if "--check" not in sys.argv:
            shutil.rmtree(TARGET, ignore_errors=True)
            shutil.copytree(built, TARGET)
            return 0
        ours, theirs = _files(TARGET), _files(built)
        stale = sorted(p for p in ours.keys() | theirs.keys() if ours.get(p) != theirs.get(p))
    for path in stale:
        sys.stderr.write(f"{path} is stale: run make console\n")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())

"""The libraries of the images with the hashes of their wheels, ``services/locks``: ``make lock``.

1. Take what an image's extras ask for, in the versions of ``constraints.txt``.
2. Ask pip, for each machine, for the wheel of each library: its hash, and what it requires.
3. Follow the requirements that hold on that machine, until no library is new.

pip would follow them itself, but as on the Python and the machine that it runs on.
That nothing is missing is checked where an image is built: with ``--require-hashes`` pip refuses a
library that the file does not name. A pip of 2026 reads only the metadata of wheels; older ones
download several GB.

``PIP_FIND_LINKS=FOLDER python tests/lock.py training`` writes one file, with a torch from a folder.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
LOCKS = ROOT / "services" / "locks"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
IMAGES = {
    "gateway": ("gateway", "files", "mcp", "tracing"),
    "keeper": ("client", "keeper", "tracing"),
    "standalone": ("standalone", "files", "mcp"),
    "training": ("training", "tracing"),
    "worker": ("worker", "tracing"),
    "worker-gpu": ("worker-gpu", "tracing"),
}
"""The extras whose libraries an image has. What builds the project, ``build``, comes beside."""
PYTHON = "3.13"
MACHINES = ("aarch64", "x86_64")
GLIBC_MINOR = 41
"""Debian trixie, the base of the images, has glibc 2.41; wheels for an older one do."""
_NONE = re.compile(r"No matching distribution found for ([\w.-]+)")


@dataclass(frozen=True)
class Wheel:
    """What pip says of the wheel that it would install."""

    version: str
    sha256: str
    requires: tuple[Requirement, ...]


Wheels = dict[str, Wheel | None]
"""The wheel of each library on one machine, by normal name; None where there is none for it."""


def pinned() -> dict[str, str]:
    """Return the versions in ``constraints.txt`` for the images' Python, by normal name."""
    environment = {"python_version": PYTHON, "python_full_version": f"{PYTHON}.0"}
    versions: dict[str, str] = {}
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        if line.startswith("#"):
            continue
        pin = Requirement(line)
        if pin.marker is None or pin.marker.evaluate(environment):
            versions[canonicalize_name(pin.name)] = str(pin.specifier).removeprefix("==")
    return versions


def asked(image: str) -> list[Requirement]:
    """Return what an image's extras ask for; the extras of ours that they name are followed."""
    if image == "build":
        return [Requirement(line) for line in PROJECT["build-system"]["requires"]]
    project = PROJECT["project"]

    def of_extras(extras: Iterable[str]) -> Iterator[Requirement]:
        for extra in extras:
            for line in project["optional-dependencies"][extra]:
                requirement = Requirement(line)
                if requirement.name == project["name"]:
                    yield from of_extras(sorted(requirement.extras))
                else:
                    yield requirement

    return [*map(Requirement, project["dependencies"]), *of_extras(IMAGES[image])]


def look_up(wanted: Iterable[str], machine: str) -> Wheels:
    """Ask pip for the wheels of requirements on a machine, not of what they require."""
    left = {canonicalize_name(Requirement(line).name): line for line in wanted}
    found: Wheels = {}
    while left:
        done = _pip(sorted(left.values()), machine)
        if done.returncode == 0:
            found |= dict(map(_wheel, json.loads(done.stdout)["install"]))
            break
        missing = _NONE.search(done.stderr)
        if missing is None:
            raise RuntimeError(done.stderr)
        name = canonicalize_name(missing[1])
        found[name] = None
        del left[name]
    return found


def _pip(requirements: Sequence[str], machine: str) -> subprocess.CompletedProcess[str]:
    """Run pip without installing anything; its report comes on the standard output."""
    tags = [f"manylinux_2_{minor}_{machine}" for minor in range(GLIBC_MINOR, 4, -1)]
    platforms = [f"--platform={tag}" for tag in (*tags, f"manylinux2014_{machine}")]
    with tempfile.TemporaryDirectory() as target:  # pip asks for one where a platform is named
        return subprocess.run(
            [
                *(sys.executable, "-m", "pip", "install", "--dry-run", "--quiet", "--report=-"),
                *("--ignore-installed", "--no-deps", "--only-binary=:all:", f"--target={target}"),
                *("--disable-pip-version-check", "--use-feature=fast-deps"),
                # Older ones check this against the Python that they run on.
                *("--ignore-requires-python", f"--python-version={PYTHON}"),
                *platforms,
                *requirements,
            ],
            capture_output=True,
            text=True,
            check=False,
        )


def _wheel(entry: Mapping[str, Any]) -> tuple[str, Wheel]:
    """Return the normal name and the wheel of an entry of pip's report."""
    metadata = entry["metadata"]
    return canonicalize_name(metadata["name"]), Wheel(
        version=metadata["version"],
        sha256=entry["download_info"]["archive_info"]["hashes"]["sha256"],
        requires=tuple(map(Requirement, metadata.get("requires_dist", ()))),
    )


def follow(
    roots: Iterable[Requirement], wheels: Wheels, machine: str
) -> dict[str, list[Requirement]]:
    """Return what roots need on a machine, as far as wheels are known, by normal name.

    The values are the requirements that ask for a library.
    """
    reached: dict[str, list[Requirement]] = {}
    seen: set[tuple[str, str]] = set()
    left = [(root, "") for root in roots]
    environment = {
        "python_version": PYTHON,
        "python_full_version": f"{PYTHON}.0",
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
        "os_name": "posix",
        "sys_platform": "linux",
        "platform_system": "Linux",
        "platform_machine": machine,
    }
    while left:
        requirement, extra = left.pop()
        if requirement.marker and not requirement.marker.evaluate(environment | {"extra": extra}):
            continue
        name = canonicalize_name(requirement.name)
        reached.setdefault(name, []).append(requirement)
        wheel = wheels.get(name)
        for asked_extra in {"", *requirement.extras}:
            if wheel is not None and (name, asked_extra) not in seen:
                seen.add((name, asked_extra))
                left += [(required, asked_extra) for required in wheel.requires]
    return reached


def complete(roots: Sequence[Requirement], versions: Mapping[str, str], machine: str) -> Wheels:
    """Return the wheels of roots and of all that they need on a machine."""
    wheels: Wheels = {}
    while True:
        reached = follow(roots, wheels, machine)
        new = reached.keys() - wheels.keys()
        if not new:
            _check(reached, wheels)
            return wheels
        wheels |= look_up([_wanted(name, reached[name], versions) for name in new], machine)


def _check(reached: Mapping[str, Iterable[Requirement]], wheels: Wheels) -> None:
    """Check that each library suits all that require it.

    Raises:
        RuntimeError: if one does not; ``constraints.txt`` has to change.
    """
    for name, requirements in reached.items():
        wheel = wheels[name]
        for requirement in requirements:
            if wheel and not requirement.specifier.contains(wheel.version, prereleases=True):
                raise RuntimeError(f"expected {requirement}, got {name} {wheel.version}")


def _wanted(name: str, by: Iterable[Requirement], versions: Mapping[str, str]) -> str:
    """Return what to ask pip for: the pinned version, or the newest that those who need it allow.

    A new library gets into the lock thus, and a test then asks for it in ``constraints.txt``.
    """
    if name in versions:
        return f"{name}=={versions[name]}"
    allowed = {part for requirement in by for part in str(requirement.specifier).split(",") if part}
    return name + ",".join(sorted(allowed))


def write(image: str, wheels: Mapping[str, Wheels]) -> str:
    """Return the lock of an image: head, then a library with its hashes after the other."""
    roots = asked(image)
    reached = {machine: follow(roots, wheels[machine], machine).keys() for machine in MACHINES}
    missing = {
        machine: sorted(name for name in reached[machine] if wheels[machine][name] is None)
        for machine in MACHINES
    }
    lines = [
        f"# {_title(image)}, CPython {PYTHON} on Linux with glibc,",
        f"# {' and '.join(MACHINES)}: versions of constraints.txt with the hashes of their wheels.",
        "# Written by `make lock`; do not edit.",
        *(
            f"# No wheel for {machine}: {', '.join(names)}. The image cannot be built there."
            for machine, names in missing.items()
            if names
        ),
        "--only-binary :all:",
    ]
    for name in sorted(set().union(*reached.values())):
        needed = {
            machine: wheels[machine][name] for machine in MACHINES if name in reached[machine]
        }
        lines += entry(name, needed)
    return "\n".join(lines) + "\n"


def _title(image: str) -> str:
    """Return the first words of a lock."""
    if image == "build":
        return "What builds the project"
    return f"Libraries of the image {image} (extras {', '.join(IMAGES[image])})"


def entry(name: str, wheels: Mapping[str, Wheel | None]) -> Iterator[str]:
    """Yield the lines of a library: one requirement for each version, of all machines as a rule.

    Args:
        name: the library.
        wheels: its wheel on each machine that needs it. Where a machine has none the library is
            asked for all the same, so that pip says what is missing.
    """
    versions: dict[str, dict[str, str]] = {}
    for machine, wheel in wheels.items():
        if wheel is not None:
            versions.setdefault(wheel.version, {})[machine] = wheel.sha256
    for version, hashes in sorted(versions.items()):
        there = sorted(hashes if len(versions) > 1 else wheels)
        marker = f' ; platform_machine == "{there[0]}"' if len(there) < len(MACHINES) else ""
        lines = [f"    --hash=sha256:{sha256}" for sha256 in sorted(set(hashes.values()))]
        yield " \\\n".join([f"{name}=={version}{marker}", *lines])


def main() -> None:
    """Write the locks that the arguments name, or all."""
    images = sys.argv[1:] or [*IMAGES, "build"]
    versions = pinned()
    roots = [requirement for image in images for requirement in asked(image)]
    wheels = {machine: complete(roots, versions, machine) for machine in MACHINES}
    LOCKS.mkdir(exist_ok=True)
    for image in images:
        (LOCKS / f"{image}.txt").write_text(write(image, wheels))


if __name__ == "__main__":
    main()

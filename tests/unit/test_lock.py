"""The locks of the images: pinned versions, all that is needed, and hashes that pip checks."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from tests import lock

FILES = [*lock.IMAGES, "build"]
DOCKERFILES = {
    path.parent.name: path
    for path in [*lock.ROOT.glob("services/*/Dockerfile"), lock.ROOT / "training/Dockerfile"]
    if path.parent.name != "model"  # it has no library
}
ENTRY = re.compile(
    r"^([a-z0-9-]+)==(\S+)(?: ; platform_machine == \"\w+\")?"
    r"(?: \\\n    --hash=sha256:[0-9a-f]{64})+\n",
    re.MULTILINE,
)


def text_of(image: str) -> str:
    """Return the text of a lock."""
    return (lock.LOCKS / f"{image}.txt").read_text()


def versions_of(image: str) -> dict[str, str]:
    """Return the versions of a lock by normal name."""
    return dict(ENTRY.findall(text_of(image)))


def installed(name: str) -> lock.Wheel | None:
    """Return what a library that is installed here says of itself."""
    try:
        found = metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return None
    return lock.Wheel(found.version, "", tuple(map(Requirement, found.requires or ())))


@pytest.mark.parametrize("image", FILES)
def test_a_lock_holds_entries_with_hashes_and_nothing_else(image: str) -> None:
    text = text_of(image)
    rest = [line for line in ENTRY.sub("", text).splitlines() if not line.startswith("#")]
    assert rest == ["--only-binary :all:"]
    assert "://" not in text


@pytest.mark.parametrize("image", FILES)
def test_a_lock_has_the_versions_of_the_constraints(image: str) -> None:
    pinned = lock.pinned()
    assert versions_of(image) == {name: pinned.get(name) for name in versions_of(image)}


@pytest.mark.parametrize("image", FILES)
def test_a_lock_has_what_the_extras_of_the_image_ask_for(image: str) -> None:
    asked = {canonicalize_name(requirement.name) for requirement in lock.asked(image)}
    assert asked
    assert asked <= versions_of(image).keys()


@pytest.mark.parametrize("machine", lock.MACHINES)
@pytest.mark.parametrize("image", FILES)
def test_a_lock_has_what_its_libraries_need(image: str, machine: str) -> None:
    """By the metadata of those that are installed here."""
    versions = versions_of(image)
    wheels = {name: installed(name) for name in versions}
    assert lock.follow(lock.asked(image), wheels, machine).keys() <= versions.keys()


def test_every_dockerfile_installs_a_lock_and_every_lock_is_installed() -> None:
    named: set[str] = set()
    for folder, path in DOCKERFILES.items():
        files = set(re.findall(r"services/locks/([^\s\"]+)\.txt", path.read_text()))
        assert files == {"build", "${EXTRA}" if folder == "worker" else folder}
        named |= files
    assert named - {"${EXTRA}"} | {"worker", "worker-gpu"} == set(FILES)


def test_requirements_are_followed_as_on_the_machine_of_the_image() -> None:
    whole = (
        'arm ; platform_machine == "aarch64"',
        'old ; python_version < "3.13"',
        'Part[more]>=2 ; sys_platform == "linux"',
        'never ; extra == "more"',
    )
    wheels: lock.Wheels = {
        "whole": lock.Wheel("1", "", tuple(map(Requirement, whole))),
        "part": lock.Wheel("2", "", (Requirement('both ; extra == "more"'),)),
        "arm": None,
    }
    roots = [Requirement("whole")]
    assert lock.follow(roots, wheels, "x86_64").keys() == {"whole", "part", "both"}
    assert lock.follow(roots, wheels, "aarch64").keys() == {"whole", "part", "both", "arm"}


def wheel_in(folder: Path) -> str:
    """Write a wheel with nothing in it but its metadata; return its hash."""
    path = folder / "tiny-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        info = "tiny-1.0.dist-info"
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize("same", [True, False])
def test_pip_takes_a_wheel_with_the_hash_of_the_lock_only(tmp_path: Path, same: bool) -> None:
    sha256 = wheel_in(tmp_path)
    wheel = lock.Wheel("1.0", sha256 if same else hashlib.sha256().hexdigest(), ())
    file = tmp_path / "lock.txt"
    file.write_text("\n".join(lock.entry("tiny", dict.fromkeys(lock.MACHINES, wheel))))
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pip", "--isolated", "install", "--dry-run", "--no-index"),
            *("--find-links", tmp_path, "--require-hashes", "-r", file),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode == 0) is same, done.stderr
    assert ("DO NOT MATCH THE HASHES" in done.stderr) is not same

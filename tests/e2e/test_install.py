"""The built wheels run the demo in an environment of their own, with nothing of the checkout."""

from __future__ import annotations

import json
import os
import re
import site
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

from verso_core import DISTRIBUTION

ROOT = Path(__file__).parents[2]
AS_OTHERS = ("setpriv", "--bounding-set=-dac_override,-dac_read_search")
"""Runs a command of root's under the permissions of files, as any other user's."""

FILE_LIMIT_BYTES = 100_000_000
"""Largest file that a package index takes."""


def build(project: Path, kind: str, folder: Path) -> Path:
    """Build a wheel or an sdist without a network; return the file."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(folder)]
    subprocess.run(command, cwd=project, check=True, capture_output=True)
    [built] = folder.iterdir()
    return built


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The platform's wheel and that of its models."""
    return [
        build(project, "wheel", tmp_path_factory.mktemp("dist"))
        for project in (ROOT, ROOT / "models")
    ]


def install(wheels: list[Path], folder: Path) -> Path:
    """Install wheels into a new environment beside this one's libraries; return its ``bin``."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    python = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "--no-cache-dir"]
    subprocess.run([*pip, "install", "--quiet", "--no-deps", "--no-index", *wheels], check=True)
    [packages] = folder.glob("lib/python*/site-packages")
    # Plain lines, so this environment's own .pth files, which lead to the checkout, do not count.
    libraries = "\n".join(site.getsitepackages())
    (packages / "libraries.pth").write_text(libraries + "\n", encoding="utf-8")
    return python.parent


@pytest.mark.slow
def test_the_installed_wheels_run_the_demo_for_a_user_who_may_write_the_data_folder_only(
    wheels: list[Path], tmp_path: Path
) -> None:
    """Exactly, from an empty folder, with nothing of the checkout, and with no home to write to."""
    programs = install(wheels, tmp_path / "venv")
    home, empty, data = tmp_path / "home", tmp_path / "empty", tmp_path / "data"
    home.mkdir()
    empty.mkdir()
    packages = "venv/lib/python*/site-packages/verso_*"
    for closed in (home, *tmp_path.glob(packages), *tmp_path.glob(f"{packages}/__pycache__")):
        closed.chmod(0o555)
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "VERSO", "NUMBA"))}
    done = subprocess.run(
        [
            *(AS_OTHERS if os.geteuid() == 0 else ()),
            *(str(programs / "verso"), "demo", "--texts", "50", "--threads", "1"),
            *("--data", str(data), "--json", "report.json"),
        ],
        cwd=empty,
        env=kept | {"HOME": str(home), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads((empty / "report.json").read_text(encoding="utf-8"))
    assert report["passed"] is True
    assert report["exact"] == report["texts"] == report["verified"] >= 50
    assert report["machine"][DISTRIBUTION] == project_version(ROOT)
    assert (data / "models" / "default").resolve().is_relative_to(tmp_path / "venv")
    logs = "".join(log.read_text() for log in (data / "logs").iterdir())
    # the packages of this environment, which may lie in the checkout, are no part of it
    assert str(ROOT) not in logs.replace(str(ROOT / ".venv"), "")
    assert list((data / "cache").rglob("*.nbi")), "the kernels are kept with the data"


def test_the_models_wheel_holds_the_registry_and_what_it_names(wheels: list[Path]) -> None:
    _, models = wheels
    names = zipfile.ZipFile(models).namelist()
    held = {
        path.relative_to(ROOT / "models")
        for path in (ROOT / "models").rglob("*.*")
        if path.is_file()
    }
    held -= {Path("pyproject.toml"), Path(".registry.lock")}
    assert {f"verso_models/{path}" for path in held} <= set(names)
    assert "verso_models/LICENSE" in names
    assert models.stat().st_size < FILE_LIMIT_BYTES


def test_the_platforms_wheel_is_small_and_holds_the_sample_corpus(wheels: list[Path]) -> None:
    platform, _ = wheels
    names = zipfile.ZipFile(platform).namelist()
    assert "verso_standalone/corpus/corpus.jsonl.xz" in names
    assert {name.partition("/")[0] for name in names if not re.search(r"dist-info/", name)} == {
        package.name
        for folder in ("shared", "services/*", "training")
        for package in ROOT.glob(f"{folder}/verso_*")
    }
    assert platform.stat().st_size < 2_500_000


def test_the_sdist_has_what_a_wheel_is_built_from_and_no_test_data(tmp_path: Path) -> None:
    sdist = build(ROOT, "sdist", tmp_path)
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {name.partition("/")[0] for name in names} == {
        *("shared", "services", "training", ".gitignore", "pyproject.toml", "constraints.txt"),
        *("CHANGELOG.md", "LICENSE", "PKG-INFO", "README.md"),
    }
    assert not [name for name in names if name.startswith(("training/studies", "training/recipes"))]
    assert sdist.stat().st_size < 2_500_000


def project_version(project: Path) -> str:
    """Return the version that a project's file states."""
    settings = tomllib.loads((project / "pyproject.toml").read_text(encoding="utf-8"))
    version: str = settings["project"]["version"]
    return version

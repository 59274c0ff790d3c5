"""The images, really built, and what is in them: run by `make images`, where the tools are there.

Without a container engine: `buildah bud --isolation chroot`, on a base that debootstrap makes from
the package mirror this machine uses. VERSO_IMAGE_BASE names a folder with such a base, made before;
VERSO_IMAGE_WHEELS one with wheels that are to be taken, such as torch for CPUs only,
once ``PIP_FIND_LINKS=FOLDER python tests/lock.py training`` wrote their hashes.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TOOLS = ("buildah", "debootstrap", "apt-get")
BASE = "localhost/verso-base"
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
GATEWAY_LIMIT_MB = 120
FORBIDDEN = {
    "gateway": ("numpy", "onnxruntime", "qdrant_client", "torch", "tokenizers"),
    "keeper": ("numpy", "onnxruntime", "qdrant_client", "fastapi", "torch"),
    "worker": ("fastapi", "torch", "transformers"),
    "worker-gpu": ("fastapi", "torch", "transformers"),
    "trainer": ("fastapi", "qdrant_client", "celery"),
}
ENTRY = {"trainer": "verso_training.service.__main__", "worker-gpu": "verso_worker.__main__"}
DOCKERFILES = {"trainer": "training/Dockerfile", "worker-gpu": "services/worker/Dockerfile"}
EXTRAS = {"worker-gpu": "worker-gpu"}
EMBED = """
from pathlib import Path
from verso_core import manifest, registry
from verso_worker.engine.loading import load_service
from verso_worker.engine.sessions import Device
artifact = manifest.load(registry.resolve(Path("/opt/models")))
model = load_service(artifact, threads=2, device=Device.CPU)
vectors = model.encode([b"one embed, inside"]).vectors
print(vectors.shape[0], round(float((vectors[0] ** 2).sum()), 3))
model.close()
"""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]


class Builder:
    """Buildah with a store of its own."""

    def __init__(self, folder: Path) -> None:
        self._options = ["--root", str(folder / "store"), "--runroot", str(folder / "run")]

    def call(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a command of buildah."""
        command, *rest = arguments
        done = subprocess.run(
            ["buildah", *self._options, command, *rest],
            capture_output=True, text=True, check=False, cwd=ROOT,
        )  # fmt: skip
        assert not check or done.returncode == 0, done.stderr[-3000:]
        return done

    def build(self, name: str) -> None:
        """Build an image from its Dockerfile."""
        seen = ["--volume", f"{CERTIFICATES}:{CERTIFICATES}:ro"] if CERTIFICATES.exists() else []
        if name == "trainer" and (wheels := os.environ.get("VERSO_IMAGE_WHEELS")):
            seen += ["--volume", f"{wheels}:{wheels}:ro", "--build-arg", f"PIP_FIND_LINKS={wheels}"]
        if name in EXTRAS:
            seen += ["--build-arg", f"EXTRA={EXTRAS[name]}"]
        self.call(
            "bud", "--isolation", "chroot", "--format", "docker", "--build-arg", f"BASE={BASE}",
            *seen, "--file", DOCKERFILES.get(name, f"services/{name}/Dockerfile"),
            "--tag", f"localhost/verso-{name}", ".",
        )  # fmt: skip

    def size_mb(self, image: str) -> float:
        """Return how much an image takes, unpacked, MB."""
        container = self.call("from", image).stdout.strip()
        folder = self.call("mount", container).stdout.strip()
        done = subprocess.run(["du", "-sb", folder], capture_output=True, text=True, check=True)
        self.call("rm", container)
        return int(done.stdout.split()[0]) / 1e6

    def run(self, image: str, *command: str) -> str:
        """Run a command in a new container of an image, as the image's user."""
        container = self.call("from", image).stdout.strip()
        done = self.call("run", "--isolation", "chroot", container, "--", *command, check=False)
        self.call("rm", container)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


@pytest.fixture(scope="session")
def builder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Builder]:
    """Buildah with the base image in its store."""
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing or os.geteuid() != 0:
        pytest.skip(f"needs root and {', '.join(missing) or 'nothing else'}")
    folder = tmp_path_factory.mktemp("images")
    builder = Builder(folder)
    tree = Path(os.environ.get("VERSO_IMAGE_BASE") or folder / "base")
    if not tree.exists():
        mirror = subprocess.run(
            ["apt-get", "indextargets", "--format", "$(SITE)", "Created-By: Packages"],
            capture_output=True, text=True, check=True,
        ).stdout.split()[0]  # fmt: skip
        packages = "--include=python3,python3-venv,ca-certificates"
        subprocess.run(
            ["debootstrap", "--variant=minbase", packages, "trixie", str(tree), mirror],
            check=True, stdout=subprocess.DEVNULL,
        )  # fmt: skip
    container = builder.call("from", "scratch").stdout.strip()
    builder.call("add", "--quiet", container, str(tree), "/")
    builder.call("commit", "--quiet", container, BASE)
    builder.call("rm", container)
    yield builder
    builder.call("rm", "--all", check=False)
    builder.call("rmi", "--all", "--force", check=False)


@pytest.fixture(scope="session", params=["gateway", "keeper", "worker", "worker-gpu", "trainer"])
def image(request: pytest.FixtureRequest, builder: Builder) -> str:
    """One image after the other, built."""
    builder.build(request.param)
    name: str = request.param
    return name


def test_an_image_runs_holds_no_forbidden_library_and_no_installer(
    builder: Builder, image: str
) -> None:
    tag = f"localhost/verso-{image}"
    base_mb = builder.size_mb(BASE)
    added_mb = builder.size_mb(tag) - base_mb
    print(f"\n{image}: {added_mb:.0f} MB on a base of {base_mb:.0f} MB")  # noqa: T201
    config = json.loads(builder.call("inspect", "--type", "image", tag).stdout)["Docker"]["config"]
    assert config["User"] == "10001"
    assert config["Healthcheck"]["Test"]
    assert builder.run(tag, "id", "-u").strip() == "10001"
    probe = (
        "import importlib.util as u, sys; "
        f"found = [n for n in {FORBIDDEN[image]!r} if u.find_spec(n)]; "
        f"import {ENTRY.get(image, f'verso_{image}.__main__')}; "
        f"found += [n for n in {FORBIDDEN[image]!r} if n in sys.modules]; print(found)"
    )
    assert builder.run(tag, "python", "-c", probe).strip() == "[]"
    tools = (
        "import importlib.util as u; print([n for n in ('pip', 'setuptools') if u.find_spec(n)])"
    )
    assert builder.run(tag, "/opt/verso/bin/python", "-c", tools).strip() == "[]"
    if image == "gateway":
        assert "--new-key" in builder.run(tag, "python", "-m", "verso_gateway", "--help")
        assert added_mb < GATEWAY_LIMIT_MB
    if image == "keeper":
        assert "COLLECTION" in builder.run(tag, "verso", "migrate", "--help").upper()
    if image == "trainer":
        assert "prepare" in builder.run(tag, "python", "-m", "verso_training", "--help")
    if image in ("worker", "worker-gpu"):  # the latter without a GPU: the CPU does its work
        assert "--socket" in builder.run(tag, "python", "-m", "verso_worker.engine", "--help")
        assert builder.run(tag, "python", "-c", EMBED).split() == ["1", "1.0"]

"""What a stack refuses before it starts anything, and where it finds its artifact."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from verso_core.errors import ArtifactInvalid, RequestInvalid, Unauthorized, Unavailable
from verso_standalone.stack import Stack, StackConfig, find_artifact


@pytest.fixture
def artifact(tmp_path: Path) -> Path:
    folder = tmp_path / "models" / "default"
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text("{}", encoding="ascii")
    return folder


def test_it_refuses_to_listen_beyond_loopback_without_keys(tmp_path: Path, artifact: Path) -> None:
    config = StackConfig(data=tmp_path / "d", artifact=artifact, host="0.0.0.0")  # noqa: S104
    with pytest.raises(Unauthorized, match="verso keys new"):
        Stack(config).start()
    assert not (tmp_path / "d").exists()


def test_it_refuses_a_port_that_is_taken(tmp_path: Path, artifact: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(Unavailable, match=f"port {port}"):
            Stack(StackConfig(data=tmp_path / "d", artifact=artifact, port=port)).start()
    assert not (tmp_path / "d").exists()


def test_it_refuses_a_folder_that_is_no_artifact(tmp_path: Path) -> None:
    with pytest.raises(ArtifactInvalid, match="manifest"):
        Stack(StackConfig(data=tmp_path / "d", artifact=tmp_path, port=0)).start()


def test_the_url_names_an_address_that_can_be_reached(tmp_path: Path, artifact: Path) -> None:
    def url(host: str) -> str:
        return Stack(StackConfig(data=tmp_path, artifact=artifact, host=host, port=9)).url

    assert url("0.0.0.0") == "http://127.0.0.1:9"  # noqa: S104
    assert url("::1") == "http://[::1]:9"


def test_the_stable_artifact_of_a_registry_is_found(artifact: Path) -> None:
    models = artifact.parent
    (models / "registry.json").write_text('{"stable": "default", "canary": null}', encoding="ascii")
    assert find_artifact(models) == artifact


def test_without_a_registry_the_default_artifact_is_found(artifact: Path) -> None:
    assert find_artifact(artifact.parent) == artifact


def test_no_artifact_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(ArtifactInvalid, match="--artifact"):
        find_artifact(tmp_path)


def test_each_process_has_a_port_of_metrics_of_its_own(tmp_path: Path, artifact: Path) -> None:
    config = StackConfig(
        data=tmp_path / "d", artifact=artifact, port=1, settings={"VERSO_METRICS_PORT": "9100"}
    )
    stack = Stack(config)
    ports = [stack._metrics(name) for name in ("gateway", "worker", "keeper", "trainer")]
    assert ports == [{"VERSO_METRICS_PORT": str(9100 + n)} for n in range(4)]
    assert stack._metrics("syslog") == {
        "VERSO_METRICS_PORT": "0",
        "VERSO_SYSLOG_METRICS_PORT": "9104",
    }
    without = Stack(StackConfig(data=tmp_path / "d", artifact=artifact, port=1))
    assert without._metrics("worker") == {"VERSO_METRICS_PORT": "0"}


@pytest.mark.parametrize("port", ["", "abc", "-1", "65532"])
def test_it_refuses_ports_of_metrics_that_are_none(
    tmp_path: Path, artifact: Path, port: str
) -> None:
    config = StackConfig(
        data=tmp_path / "d", artifact=artifact, settings={"VERSO_METRICS_PORT": port}
    )
    with pytest.raises(RequestInvalid, match="VERSO_METRICS_PORT"):
        Stack(config).start()
    assert not (tmp_path / "d").exists()


def test_a_file_without_a_key_is_refused_before_anything_is_started(
    tmp_path: Path, artifact: Path
) -> None:
    keys = tmp_path / "keys"
    keys.write_text("# none\n")
    config = StackConfig(data=tmp_path / "d", artifact=artifact, api_keys_file=keys)
    with pytest.raises(Unauthorized, match="at least one key"):
        Stack(config).start()
    assert not (tmp_path / "d").exists()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("VERSO_LEASE_S", text) for text in ("", "-1", "inf", "abc")),
        *(("VERSO_LOG_LEVEL", "loud"), ("VERSO_FEED_ROUTES", "*"), ("VERSO_DEVICE", "tpu")),
    ],
)
def test_a_malformed_setting_is_named_before_a_process_is_started(
    tmp_path: Path, artifact: Path, name: str, value: str
) -> None:
    stack = Stack(StackConfig(data=tmp_path / "d", artifact=artifact, settings={name: value}))
    with pytest.raises(RequestInvalid, match=name):
        stack._check_settings(stack.config.settings)
    assert not stack.processes

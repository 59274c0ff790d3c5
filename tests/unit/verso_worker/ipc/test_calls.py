"""The wire carries calls, replies and errors whole, and says so when the other side is gone."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verso_core.errors import (
    Cancelled,
    CollectionUnknown,
    EngineUnavailable,
    RequestInvalid,
    VectorsUnavailable,
    VersoError,
)
from verso_worker.ipc.cancellation import Cancellation
from verso_worker.ipc.client import Client
from verso_worker.ipc.server import Handler, Server, check_caller


def _echo(header: dict[str, Any], blobs: list[bytes]) -> tuple[dict[str, Any], list[bytes]]:
    return header, blobs[::-1]


@contextmanager
def _serving(path: Path, handlers: Mapping[str, Handler], *, threads: int = 8) -> Iterator[Server]:
    server = Server(path, handlers, threads=threads)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server
    finally:
        server.close()
        thread.join(60)
        assert not thread.is_alive()


@pytest.fixture(scope="module")
def echo_path(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("wire") / "s"
    with _serving(path, {"echo": _echo}):
        yield path


@pytest.fixture
def open_client() -> Iterator[Callable[..., Client]]:
    with ExitStack() as stack:

        def make(path: Path, timeout_s: float = 60.0, **options: Any) -> Client:
            client = Client(path, timeout_s, **options)
            stack.callback(client.close)
            return client

        yield make


@given(
    header=st.dictionaries(st.text(), st.integers() | st.text() | st.booleans(), max_size=4),
    blobs=st.lists(st.binary(max_size=300), max_size=5),
)
def test_a_reply_is_what_the_handler_returned(
    echo_path: Path, header: dict[str, Any], blobs: list[bytes]
) -> None:
    client = Client(echo_path, 10.0)
    assert client.call("echo", header, blobs) == (header, blobs[::-1])
    client.close()


def test_a_message_of_many_megabytes_arrives_whole(
    echo_path: Path, open_client: Callable[..., Client]
) -> None:
    blob = bytes(range(256)) * (1 << 16)
    _, blobs = open_client(echo_path).call("echo", {}, [blob])
    assert blobs == [blob]


def test_an_error_is_raised_as_the_class_the_handler_raised(
    tmp_path: Path, open_client: Callable[..., Client]
) -> None:
    def refuse(*_: object) -> tuple[dict[str, Any], list[bytes]]:
        raise CollectionUnknown("no collection named x")

    with (
        _serving(tmp_path / "s", {"get": refuse}),
        pytest.raises(CollectionUnknown, match="named x"),
    ):
        open_client(tmp_path / "s").call("get")


def test_a_foreign_error_arrives_without_its_message(
    tmp_path: Path, open_client: Callable[..., Client]
) -> None:
    def fail(*_: object) -> tuple[dict[str, Any], list[bytes]]:
        raise ValueError("the secret text")

    with _serving(tmp_path / "s", {"get": fail}):
        client = open_client(tmp_path / "s")
        with pytest.raises(VersoError) as caught:
            client.call("get")
        assert caught.value.code == "internal"
        assert "secret" not in caught.value.detail
        client.call("ping")  # the connection lives on


def test_an_unknown_operation_is_a_request_error(
    echo_path: Path, open_client: Callable[..., Client]
) -> None:
    with pytest.raises(RequestInvalid, match="got 'sing'"):
        open_client(echo_path).call("sing")


def test_calls_of_many_threads_do_not_mix(
    echo_path: Path, open_client: Callable[..., Client]
) -> None:
    client = open_client(echo_path)
    wrong: list[int] = []

    def talk(number: int) -> None:
        sent = [{"n": number, "t": turn} for turn in range(20)]
        if [client.call("echo", header)[0] for header in sent] != sent:
            wrong.append(number)

    threads = [threading.Thread(target=talk, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_ping_is_answered_while_every_handler_is_busy(
    tmp_path: Path, open_client: Callable[..., Client]
) -> None:
    release = threading.Event()
    entered = threading.Event()

    def wait(*_: object) -> tuple[dict[str, Any], list[bytes]]:
        entered.set()
        release.wait(60)
        return {}, []

    with _serving(tmp_path / "s", {"wait": wait}, threads=1):
        client = open_client(tmp_path / "s")
        caller = threading.Thread(target=client.call, args=("wait",))
        caller.start()
        assert entered.wait(60)
        assert client.call("ping", timeout_s=60) == ({}, [])
        assert caller.is_alive()
        release.set()
        caller.join()


def test_a_missing_server_is_the_given_unavailable_error(
    tmp_path: Path, open_client: Callable[..., Client]
) -> None:
    with pytest.raises(EngineUnavailable):
        open_client(tmp_path / "none").call("ping")
    with pytest.raises(VectorsUnavailable):
        open_client(tmp_path / "none", unavailable=VectorsUnavailable).call("ping")


def test_a_late_answer_is_an_error_and_never_answers_the_next_call(
    tmp_path: Path, open_client: Callable[..., Client]
) -> None:
    late = threading.Event()

    def answer(header: dict[str, Any], _: list[bytes]) -> tuple[dict[str, Any], list[bytes]]:
        if header["late"]:
            late.wait(60)
        return header, []

    with _serving(tmp_path / "s", {"answer": answer}):
        client = open_client(tmp_path / "s")
        with pytest.raises(EngineUnavailable, match="within"):
            client.call("answer", {"late": True}, timeout_s=0.1)
        late.set()
        assert client.call("answer", {"late": False}) == ({"late": False}, [])


def test_a_client_finds_a_server_that_was_restarted(
    tmp_path: Path, open_client: Callable[..., Client]
) -> None:
    client = open_client(tmp_path / "s")
    for _ in range(2):
        with _serving(tmp_path / "s", {"echo": _echo}):
            assert client.call("echo", {"a": 1})[0] == {"a": 1}
    with pytest.raises(EngineUnavailable):
        client.call("echo")


def test_a_connection_cut_inside_a_reply_is_unavailable(
    tmp_path: Path, open_client: Callable[..., Client]
) -> None:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "s"))
    listener.listen()

    def cut() -> None:
        connection, _ = listener.accept()
        connection.recv(1 << 16)
        connection.sendall(struct.pack("<I", 100) + b"short")
        connection.close()

    thread = threading.Thread(target=cut)
    thread.start()
    with pytest.raises(EngineUnavailable, match="connection lost"):
        open_client(tmp_path / "s").call("echo")
    thread.join()
    listener.close()


def test_a_length_over_the_bound_ends_the_connection_and_no_other(
    echo_path: Path, open_client: Callable[..., Client]
) -> None:
    raw = socket.socket(socket.AF_UNIX)
    raw.connect(str(echo_path))
    raw.sendall(b"\xff\xff\xff\xff")
    raw.settimeout(60)
    assert raw.recv(1) == b""
    raw.close()
    open_client(echo_path).call("ping")


def test_closing_lets_the_call_in_hand_finish(
    tmp_path: Path, open_client: Callable[..., Client]
) -> None:
    entered = threading.Event()

    def slow(*_: object) -> tuple[dict[str, Any], list[bytes]]:
        entered.set()
        time.sleep(0.3)
        return {"done": True}, []

    answers: list[dict[str, Any]] = []
    with _serving(tmp_path / "s", {"slow": slow}):
        client = open_client(tmp_path / "s")
        caller = threading.Thread(target=lambda: answers.append(client.call("slow")[0]))
        caller.start()
        entered.wait(60)
    caller.join()
    assert answers == [{"done": True}]
    assert not (tmp_path / "s").exists()


def test_a_path_longer_than_a_socket_address_works(
    tmp_path: Path, open_client: Callable[..., Client]
) -> None:
    deep = tmp_path / ("d" * 100) / ("e" * 100)
    deep.mkdir(parents=True)
    with _serving(deep / "s", {"echo": _echo}):
        assert open_client(deep / "s").call("echo", {"a": 1})[0] == {"a": 1}


def test_the_socket_is_for_its_owner_only(echo_path: Path) -> None:
    assert echo_path.stat().st_mode & 0o077 == 0


class Batches:
    """A handler that works in small batches until nobody waits for its reply."""

    def __init__(self) -> None:
        self.started = threading.Event()
        self.ended = threading.Event()

    def __call__(self, *_: object) -> tuple[dict[str, Any], list[bytes]]:
        try:
            for _number in range(100_000):
                self.started.set()
                time.sleep(0.01)
                check_caller()
        finally:
            self.ended.set()
        return {}, []


def test_work_ends_when_its_call_has_timed_out(
    tmp_path: Path, open_client: Callable[..., Client]
) -> None:
    batches = Batches()
    with _serving(tmp_path / "s", {"work": batches}):
        with pytest.raises(EngineUnavailable) as caught:
            open_client(tmp_path / "s", 0.2).call("work")
        assert caught.value.timed_out
        assert batches.ended.wait(60.0)


def test_cancelled_work_ends_at_once_on_both_sides(
    tmp_path: Path, open_client: Callable[..., Client]
) -> None:
    batches, cancellation = Batches(), Cancellation()
    client = open_client(tmp_path / "s")
    caught: list[Exception] = []

    def call() -> None:
        try:
            with cancellation.entered():
                client.call("work")
        except Cancelled as error:
            caught.append(error)

    with _serving(tmp_path / "s", {"work": batches, "echo": _echo}):
        thread = threading.Thread(target=call)
        thread.start()
        assert batches.started.wait(60.0)
        cancellation.cancel()
        thread.join(60.0)
        assert batches.ended.wait(60.0)
        assert len(caught) == 1
        with cancellation.entered(), pytest.raises(Cancelled):
            client.call("echo")  # nothing more is asked for it
        assert client.call("echo", {"a": 1}) == ({"a": 1}, [])


def test_a_call_that_waited_for_its_turn_in_vain_is_not_run(
    tmp_path: Path, open_client: Callable[..., Client]
) -> None:
    gate, run = threading.Event(), []

    def work(header: dict[str, Any], _: list[bytes]) -> tuple[dict[str, Any], list[bytes]]:
        run.append(header["n"])
        gate.wait(60.0)
        return {}, []

    with _serving(tmp_path / "s", {"work": work}, threads=1):
        first = threading.Thread(target=open_client(tmp_path / "s").call, args=("work", {"n": 1}))
        first.start()
        while not run:
            time.sleep(0.01)
        with pytest.raises(EngineUnavailable):
            open_client(tmp_path / "s", 0.2).call("work", {"n": 2})
        gate.set()
        first.join()
        open_client(tmp_path / "s").call("work", {"n": 3})
    assert run == [1, 3]

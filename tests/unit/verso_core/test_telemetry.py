"""A log line is one JSON object that says which slice it is about."""

from __future__ import annotations

import io
import json
import logging

from verso_core.telemetry import JsonFormatter, about, adopt


def _line(message: str, **extra: object) -> dict[str, object]:
    record = logging.makeLogRecord(
        {"msg": message, "levelno": logging.INFO, "levelname": "INFO", "name": "verso"} | extra
    )
    parsed: dict[str, object] = json.loads(JsonFormatter("worker").format(record))
    return parsed


def test_a_line_is_json_with_service_time_and_extras() -> None:
    line = _line("two\nlines", count=3)
    assert line["message"] == "two\nlines"
    assert line["service"] == "worker"
    assert line["count"] == 3
    assert str(line["time"]).endswith("Z")


def test_a_line_written_about_a_slice_carries_its_id() -> None:
    with about("job.3"):
        line = _line("x")
        assert (line["job"], line["slice"]) == ("job", "job.3")
    assert "slice" not in _line("x")


def test_a_library_with_handlers_of_its_own_writes_as_everything_else_does() -> None:
    inner = logging.getLogger("chatterbox.inner")
    own = logging.StreamHandler(io.StringIO())
    for logger in (logging.getLogger("chatterbox"), inner):
        logger.addHandler(own)
        logger.propagate = False
    adopt("chatterbox")
    heard: list[logging.LogRecord] = []
    root = logging.getLogger()
    listener = logging.Handler()
    listener.emit = heard.append  # type: ignore[assignment,method-assign]
    root.addHandler(listener)
    try:
        inner.warning("said")
    finally:
        root.removeHandler(listener)
    assert [record.getMessage() for record in heard] == ["said"]
    assert own.stream.getvalue() == ""

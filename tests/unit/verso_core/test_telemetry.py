"""A log line is one JSON object that says which slice it is about."""

from __future__ import annotations

import json
import logging

from verso_core.telemetry import JsonFormatter, about


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

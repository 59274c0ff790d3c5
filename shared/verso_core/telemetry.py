"""Logs: one JSON object a line, with the job and slice that the line belongs to.

Texts, vectors, metadata and keys are never logged; a log line has ids, counts, sizes and times.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from logging.handlers import RotatingFileHandler
from pathlib import Path

AUDIT_FILE_BYTES = 16 * 1024 * 1024
AUDIT_FILES = 4
"""Files of the audit log; the oldest is dropped."""
_slice: ContextVar[str | None] = ContextVar("verso_slice", default=None)
# They log a line for each wake-up and each call of the vector store, which our own lines repeat.
_CHATTY = ("httpx", "celery.app.trace", "celery.worker.strategy")
_KNOWN = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}


@contextmanager
def about(slice_id: str) -> Iterator[None]:
    """Add the id of this slice, and that of its job, to every log line written in the block."""
    token = _slice.set(slice_id)
    try:
        yield
    finally:
        _slice.reset(token)


def subject() -> str | None:
    """Return the id of the slice that the caller works on."""
    return _slice.get()


class JsonFormatter(logging.Formatter):
    """Formats a log record as one line of JSON; the items of ``extra`` become fields."""

    def __init__(self, service: str) -> None:
        super().__init__()
        self._service = service

    def format(self, record: logging.LogRecord) -> str:
        """Return the line. Times are UTC, ISO 8601 with milliseconds."""
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line = {
            "time": f"{stamp}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "service": self._service,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if (slice_id := _slice.get()) is not None:
            line["slice"] = slice_id
            line["job"] = slice_id.rpartition(".")[0]
        line.update({k: v for k, v in record.__dict__.items() if k not in _KNOWN})
        if record.exc_info and record.exc_info[0] is not None:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def configure(service: str, *, level: str = "INFO") -> None:
    """Send the whole process's logs to standard error as JSON lines; called once, by ``main``."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter(service))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    logging.captureWarnings(True)  # they would be lines that are no JSON
    for name in _CHATTY:
        logging.getLogger(name).setLevel(max(logging.WARNING, root.level))


def write_audit(path: Path, service: str) -> None:
    """Send the audit log to a file of its own, rotated; it is kept when the other logs are not."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handler = RotatingFileHandler(
        path, maxBytes=AUDIT_FILE_BYTES, backupCount=AUDIT_FILES - 1, encoding="utf-8", delay=True
    )
    handler.setFormatter(JsonFormatter(service))
    audit = logging.getLogger("verso.audit")
    audit.handlers[:] = [handler]
    audit.propagate = False


def adopt(library: str) -> None:
    """Remove the handlers of a library's own, so that the root handler formats its lines."""
    for name in list(logging.root.manager.loggerDict):
        if name == library or name.startswith(f"{library}."):
            logger = logging.getLogger(name)
            logger.handlers.clear()
            logger.propagate = True

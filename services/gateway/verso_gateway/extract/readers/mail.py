"""E-mail (RFC 5322, MIME): who wrote to whom, when and of what, then the text.

Of a message in several forms the plain one is taken, else HTML. Attachments are named, not read.
"""

from __future__ import annotations

from datetime import datetime
from email import message_from_bytes, policy
from email.headerregistry import HeaderRegistry
from email.message import EmailMessage, MIMEPart
from typing import Any

from resiliparse.parse.encoding import bytes_to_str

from verso_core.errors import FileUnreadable
from verso_gateway.extract.content import Content, cleaned
from verso_gateway.extract.formats import Format
from verso_gateway.extract.readers import web

_GRAMMARS, _PLAIN = HeaderRegistry(), HeaderRegistry(use_default_map=False)
_TEXTS = ("text", "multipart")
_SHOWN = ("From", "To", "Cc", "Date", "Subject")


def read(data: bytes, format: Format) -> Content:  # noqa: A002 - what it is
    """Return a message's text, below its header.

    Raises:
        FileUnreadable: it has no header.
    """
    message = message_from_bytes(data, policy=policy.default.clone(header_factory=_parsed))
    head = [f"{name}: {value}" for name in _SHOWN if (value := _header(message, name))]
    if not head:
        raise FileUnreadable("expected an e-mail with a header, got none")
    names = [f"Attachment: {name}" for name in _attached(message)]
    parts = cleaned(["\n".join([*head, *names, "", _body(message)])])
    return Content(
        format,
        parts,
        title=_header(message, "Subject"),
        time=_time(message),
        facts={"from": _header(message, "From"), "to": _header(message, "To")},
    )


def _parsed(name: str, value: str) -> Any:
    """Return a header by its own grammar, or as plain text where the library fails on it."""
    try:
        return _GRAMMARS(name, value)
    except Exception:  # noqa: BLE001 - malformed addresses and parameters raise many kinds
        return _PLAIN(name, value)


def _header(message: EmailMessage, name: str) -> str:
    return " ".join(str(message.get(name, "")).split())


def _time(message: EmailMessage) -> float | None:
    """Return when the message was written, if its date says so with a time zone."""
    written: datetime | None = getattr(message.get("Date"), "datetime", None)
    return None if written is None or written.tzinfo is None else written.timestamp()


def _body(message: EmailMessage) -> str:
    found = message.get_body(("plain", "html"))
    if found is None and not message.is_multipart() and message.get_content_maintype() in _TEXTS:
        found = message  # said to have parts, and has none
    if found is None:
        return ""
    text = _decoded(found)
    return web.text_of(text) if found.get_content_subtype() == "html" else text


def _decoded(part: MIMEPart) -> str:
    """Return a part as text: in the encoding that it names, or one that fits if that does not."""
    data = part.get_payload(decode=True)
    if not isinstance(data, bytes):
        return ""
    try:
        return data.decode(part.get_content_charset("us-ascii"))
    except (LookupError, ValueError):
        return str(bytes_to_str(data))  # UTF-8, else Windows-1252


def _attached(message: EmailMessage) -> list[str]:
    return [name for part in message.iter_attachments() if (name := part.get_filename())]

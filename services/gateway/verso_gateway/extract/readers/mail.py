"""E-mail (RFC 5322, MIME): who wrote to whom, when and of what, then the text.

Of a message in several forms the plain one is taken, else HTML. Attachments are named, not read.
"""

from __future__ import annotations

from datetime import datetime
from email import message_from_bytes, policy
from email.message import EmailMessage

from verso_core.errors import FileUnreadable
from verso_gateway.extract.content import Content, cleaned
from verso_gateway.extract.formats import Format
from verso_gateway.extract.readers import web

_SHOWN = ("From", "To", "Cc", "Date", "Subject")


def read(data: bytes, format: Format) -> Content:  # noqa: A002 - what it is
    """Return a message's text, below its header.

    Raises:
        FileUnreadable: it has no header.
    """
    message = message_from_bytes(data, policy=policy.default)
    head = [f"{name}: {value}" for name in _SHOWN if (value := _header(message, name))]
    if not head:
        raise FileUnreadable("expected an e-mail with a header, got none")
    names = [f"Attachment: {name}" for name in _attached(message)]
    parts = cleaned(["\n".join([*head, *names, "", _body(message)])])
    sent = message["Date"]
    written: datetime | None = None if sent is None else getattr(sent, "datetime", None)
    return Content(
        format,
        parts,
        title=_header(message, "Subject"),
        time=None if written is None or written.tzinfo is None else written.timestamp(),
        facts={"from": _header(message, "From"), "to": _header(message, "To")},
    )


def _header(message: EmailMessage, name: str) -> str:
    return " ".join(str(message.get(name, "")).split())


def _body(message: EmailMessage) -> str:
    found = message.get_body(("plain", "html"))
    if found is None:
        return ""
    text = str(found.get_content())
    return web.text_of(text) if found.get_content_subtype() == "html" else text


def _attached(message: EmailMessage) -> list[str]:
    return [name for part in message.iter_attachments() if (name := part.get_filename())]

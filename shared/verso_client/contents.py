"""Which documents a collection holds, as steps without input or output."""

from __future__ import annotations

from urllib.parse import quote

from verso_client.answers import DocumentPage
from verso_client.exchange import Call, Steps
from verso_client.retries import Retries, perform


def documents(name: str, retries: Retries, *, after: str | None) -> Steps[DocumentPage]:
    """Yield a page of a collection's documents.

    Raises:
        CollectionUnknown: there is none of this name.
    """
    params = {} if after is None else {"cursor": after}
    path = f"/v1/collections/{quote(name, safe='')}/documents"
    reply = yield from perform(Call("GET", path, params=params), retries)
    return DocumentPage.model_validate(reply.json())

"""Nodes as documents of a collection.

Beside a node's metadata lies what its place in its document is, under :data:`PLACE`: ids, not
copies of other nodes, as metadata has 4 KiB.
"""

from __future__ import annotations

from typing import Any

from llama_index.core.schema import (
    BaseNode,
    MetadataMode,
    NodeRelationship,
    RelatedNodeInfo,
    TextNode,
)

from verso_client import Document
from verso_client.nearest import readable
from verso_core.jobs.reconstruct import StoredText

PLACE = "_place"
"""Key of metadata that holds a node's relations, its offsets, and which metadata are hidden."""
SOURCE = f"metadata.{PLACE}.source"
"""Field of filters: the id of the document that a node is of."""
_RELATIONS = {
    "source": NodeRelationship.SOURCE,
    "previous": NodeRelationship.PREVIOUS,
    "next": NodeRelationship.NEXT,
}

_HIDDEN = ("excluded_llm_metadata_keys", "excluded_embed_metadata_keys")


def document_of(node: BaseNode) -> Document:
    """Return a node as a document.

    Raises:
        ValueError: its metadata has a key of this module's own.
    """
    if PLACE in node.metadata:
        raise ValueError(f"expected metadata without the key {PLACE!r}")
    place: dict[str, Any] = {}
    for name, relation in _RELATIONS.items():
        related = node.relationships.get(relation)
        if isinstance(related, RelatedNodeInfo):
            place[name] = related.node_id
    for name in ("start_char_idx", "end_char_idx"):
        if (offset := getattr(node, name, None)) is not None:
            place[name] = offset
    for name in _HIDDEN:
        if hidden := getattr(node, name):
            place[name] = hidden
    metadata = {**node.metadata, PLACE: place} if place else dict(node.metadata)
    text = node.get_content(metadata_mode=MetadataMode.NONE)
    return Document(text, id=node.node_id, metadata=metadata)


def node_of(stored: StoredText) -> TextNode:
    """Return a document as a node."""
    metadata = dict(stored.metadata)
    kept = metadata.pop(PLACE, None)
    place: dict[str, Any] = kept if isinstance(kept, dict) else {}
    return TextNode(
        id_=stored.id,
        text=readable(stored),
        metadata=metadata,
        relationships={
            relation: RelatedNodeInfo(node_id=place[name])
            for name, relation in _RELATIONS.items()
            if name in place
        },
        start_char_idx=place.get("start_char_idx"),
        end_char_idx=place.get("end_char_idx"),
        **{name: place[name] for name in _HIDDEN if name in place},
    )

"""What the routes that agents send to share."""

from __future__ import annotations

from dataclasses import dataclass

from verso_gateway.feed.acceptance import Acceptance
from verso_gateway.feed.making import CollectionMaker
from verso_gateway.feed.records import FieldMap
from verso_gateway.feed.routing import Routing


@dataclass(frozen=True, slots=True)
class Feed:
    """The parts of the feed.

    Attributes:
        routing: rules from sources to collections.
        fields: which fields of structured records are text, time and labels.
        acceptance: takes records in.
        maker: makes collections that rules name.
        by_content: whether records without an identity have one made of all that they say.
    """

    routing: Routing
    fields: FieldMap
    acceptance: Acceptance
    maker: CollectionMaker
    by_content: bool = False

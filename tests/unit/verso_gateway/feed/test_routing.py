"""Rules from sources to collections."""

from __future__ import annotations

import pytest

from verso_gateway.feed.routing import Routing


def test_the_first_rule_that_fits_counts_and_says_whether_records_are_kept_whole() -> None:
    routing = Routing.parse("audit-*=audit:record, web-?=web, *=logs")
    found = {
        source: (routing.collection(source), routing.keeps_whole(source))
        for source in ("audit-db-2026.11.23", "web-1", "web-10", "")
    }
    assert found == {
        "audit-db-2026.11.23": ("audit", True),
        "web-1": ("web", False),
        "web-10": ("logs", False),
        "": ("logs", False),
    }


def test_a_source_without_a_rule_has_no_collection() -> None:
    routing = Routing.parse("web=web:record")
    assert (routing.collection("app"), routing.keeps_whole("app")) == (None, False)


@pytest.mark.parametrize("text", ["web", "=web", "web=", "web=Web", "web=web:records", "a=:record"])
def test_another_rule_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected|String should"):
        Routing.parse(text)

"""Documents whose metadata and times have all the digits that a number can have."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
from tests.integration.verso_worker.worker_parts import Stores
from tests.wire import Item

from verso_core.jobs import Kind, Status
from verso_worker.records import points
from verso_worker.rules import matching

COUNT = 64


def documents() -> dict[str, tuple[float, float]]:
    """Return a number and a time of each; the times are neighbours."""
    drawn = random.Random(4)
    found, time = {}, 1_767_230_771.35
    for n in range(COUNT):
        time = math.nextafter(time, math.inf)
        found[f"d{n:02}"] = drawn.random() * 10 ** drawn.randrange(-9, 12), time
    return found


def fill(stores: Stores) -> None:
    items = [
        Item({"id": name, "metadata": {"x": x}, "time": time}, name.encode())
        for name, (x, time) in documents().items()
    ]
    assert stores.do(Kind.INGEST, {"collection": "default"}, items)[0] is Status.SUCCEEDED
    stores.fill({})


def rows(stores: Stores, **asked: Any) -> list[tuple[str, float, float]]:
    """Return all rows of a list, page by page."""
    found: list[tuple[str, float, float]] = []
    cursor = None
    while len(found) <= COUNT:
        params = {"collection": "default", "limit": 7, **asked, "cursor": cursor}
        _, [result] = stores.do(Kind.LIST, params, [Item({})])
        page = result.items[0]
        found += [(one["id"], one["metadata"]["x"], one["time"]) for one in page["documents"]]
        cursor = page.get("next_cursor")
        if cursor is None:
            break
    return found


def test_documents_are_sound_and_have_their_numbers(stores: Stores) -> None:
    fill(stores)
    found = stores.scrub()
    assert (found["sound"], found["repaired"], found["damaged"]) == (COUNT, 0, 0)
    expected = [(name, *numbers) for name, numbers in documents().items()]
    assert rows(stores) == expected
    assert rows(stores, order="time") == expected
    assert rows(stores, order="time", descending=True) == expected[::-1]


def test_what_an_earlier_release_wrote_is_repaired(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It gave the engine numbers that came back as their neighbours, and called that damage."""
    with monkeypatch.context() as patched:
        patched.setattr(points, "kept_number", lambda value: value)
        fill(stores)
    expected = [(name, *numbers) for name, numbers in documents().items()]
    assert rows(stores) != expected
    found = stores.scrub()
    assert found["damaged"] == 0
    assert found["repaired"] > 0
    assert rows(stores) == expected
    assert stores.scrub()["sound"] == COUNT


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("limit", [1, 2, 3, 7])
def test_a_list_by_time_has_each_document_of_an_earlier_release_once(
    stores: Stores, monkeypatch: pytest.MonkeyPatch, limit: int, descending: bool
) -> None:
    """Its index goes by the times that were given, and not by those that it gives back."""
    monkeypatch.setattr(matching, "PAGE", 5)
    with monkeypatch.context() as patched:
        patched.setattr(points, "kept_number", lambda value: value)
        fill(stores)
    expected = [(name, time) for name, (_, time) in documents().items()]
    found = rows(stores, order="time", descending=descending, limit=limit)
    times = [(name, time) for name, _, time in found]
    assert times == (expected[::-1] if descending else expected)

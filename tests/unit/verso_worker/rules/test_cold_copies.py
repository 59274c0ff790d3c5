"""Objects of a collection that moves to another ledger: copied in parts, and read back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from verso_core.errors import ObjectsUnavailable
from verso_core.jobs import BucketRange
from verso_core.jobs.scrub import OBJECT_PARTS
from verso_worker.rules.cold.storage import ColdStorage


@dataclass
class Folder:
    """Objects of one ledger among those of all, in memory; ``room`` is how many may be written."""

    ledger: str
    held: dict[str, bytes] = field(default_factory=dict)
    room: list[int] = field(default_factory=lambda: [1000])
    lies: bool = False

    def of(self, ledger: str) -> Folder:
        return replace(self, ledger=ledger)

    def put(self, name: str, data: bytes) -> None:
        if not self.room[0]:
            raise ObjectsUnavailable("full")
        self.room[0] -= 1
        self.held[f"{self.ledger}/{name}"] = data[:1] if self.lies else data

    def get(self, names: Sequence[str]) -> list[bytes | None]:
        return [self.held.get(f"{self.ledger}/{name}") for name in names]

    def parts(self, asked: Sequence[tuple[str, int, int]]) -> list[bytes | None]:
        raise NotImplementedError

    def prefixes(self) -> Iterable[str]:
        raise NotImplementedError

    def delete(self, names: Sequence[str]) -> None:
        raise NotImplementedError

    def list(self, prefix: str) -> Iterable[tuple[str, int]]:
        below = f"{self.ledger}/{prefix}"
        for name, data in [*self.held.items()]:
            if name.startswith(below):
                yield name.removeprefix(f"{self.ledger}/"), len(data)


def filled() -> Folder:
    """Return a folder with lines and documents of collection 7.3, and with others'."""
    made = Folder("home", room=[2000])
    for n in range(OBJECT_PARTS):
        made.put(f"7/{n:02x}aa", b"lines %d" % n)
        made.put(f"7.3.d/{n:02x}bb", b"entries %d" % n)
    for other in ("7.d/00cc", "77/00cc", "8/00cc"):
        made.put(other, b"of another collection")
    return made


def asked(first: int, count: int = OBJECT_PARTS, spend_s: float = 60.0) -> BucketRange:
    return BucketRange(first, count, spend_s, to="b/20")


def copied(folder: Folder) -> dict[str, bytes]:
    return dict(sorted((n, d) for n, d in folder.held.items() if n.startswith("b/")))


def wanted(parts: Iterable[int]) -> dict[str, bytes]:
    return dict(
        sorted(
            [(f"b/20/{n:02x}aa", b"lines %d" % n) for n in parts]
            + [(f"b/20.d/{n:02x}bb", b"entries %d" % n) for n in parts]
        )
    )


def test_all_objects_of_a_collection_are_copied_under_its_new_uid() -> None:
    folder = filled()
    assert ColdStorage(folder).copy("7.3", asked(0)) == OBJECT_PARTS
    assert copied(folder) == wanted(range(OBJECT_PARTS))


def test_a_job_copies_whole_parts_until_its_time_is_over() -> None:
    folder = filled()
    storage = ColdStorage(folder)
    assert storage.copy("7.3", asked(3, 2)) == 2
    assert copied(folder) == wanted([3, 4])
    assert storage.copy("7.3", asked(9, spend_s=0.0)) == 1
    assert copied(folder) == wanted([3, 4, 9])
    assert storage.copy("7.3", asked(250)) == 6


def test_a_part_counts_only_if_all_of_it_was_written() -> None:
    folder = filled()
    folder.room[0] = 5
    storage = ColdStorage(folder)
    assert storage.copy("7.3", asked(0)) == 2
    assert storage.copy("7.3", asked(2)) == 0


def test_a_part_counts_only_if_it_reads_back() -> None:
    folder = filled()
    folder.lies = True
    assert ColdStorage(folder).copy("7.3", asked(0)) == 0


def test_a_store_without_any_object_of_the_collection_is_taken_for_one_that_is_away() -> None:
    """It may be a folder that is not mounted."""
    assert ColdStorage(Folder("home")).copy("7.3", asked(0)) == 0


def test_an_object_that_goes_while_it_is_copied_stops_the_job() -> None:
    class Losing(Folder):
        def get(self, names: Sequence[str]) -> list[bytes | None]:
            return [
                None if name == "7/02aa" else one
                for name, one in zip(names, super().get(names), strict=True)
            ]

    held = filled().held
    assert ColdStorage(Losing("home", held)).copy("7.3", asked(0)) == 2

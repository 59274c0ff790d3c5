"""A sealed backup: every flipped bit, missing and foreign file is found."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from verso_core.backup import MANIFEST_NAME, Backup, check, seal
from verso_core.errors import BackupInvalid


def filled(folder: Path) -> Backup:
    (folder / "vectors" / "default" / "edge").mkdir(parents=True)
    (folder / "ledger.rdb").write_bytes(b"REDIS0011" + bytes(range(256)))
    (folder / "vectors" / "default" / "collection.json").write_text("{}\n")
    (folder / "vectors" / "default" / "edge" / "empty").touch()
    return seal(folder, epoch="a1", seq=7, collections={"default": 3})


def test_a_sealed_backup_checks_and_says_what_is_in_it(tmp_path: Path) -> None:
    made = filled(tmp_path)
    assert check(tmp_path) == made
    assert (made.epoch, made.seq, made.collections) == ("a1", 7, {"default": 3})
    assert made.size_bytes == 9 + 256 + 3
    assert set(made.files) == {
        "ledger.rdb", "vectors/default/collection.json", "vectors/default/edge/empty",
    }  # fmt: skip


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.data())
def test_any_flipped_bit_of_any_file_is_found(tmp_path: Path, data: st.DataObject) -> None:
    if not (tmp_path / MANIFEST_NAME).exists():
        filled(tmp_path)
    names = sorted(p for p in tmp_path.rglob("*") if p.is_file() and p.stat().st_size)
    path = data.draw(st.sampled_from(names))
    good = path.read_bytes()
    at = data.draw(st.integers(0, 8 * len(good) - 1))
    bad = bytearray(good)
    bad[at // 8] ^= 1 << at % 8
    path.write_bytes(bad)
    try:
        with pytest.raises(BackupInvalid):
            check(tmp_path)
    finally:
        path.write_bytes(good)


@pytest.mark.parametrize(
    "harm",
    [
        lambda folder: (folder / MANIFEST_NAME).unlink(),
        lambda folder: (folder / "ledger.rdb").unlink(),
        lambda folder: (folder / "foreign").touch(),
        lambda folder: (folder / "vectors" / "default" / "edge" / "empty").write_bytes(b"x"),
        lambda folder: (folder / "link").symlink_to(folder / "ledger.rdb"),
        lambda folder: (folder / MANIFEST_NAME).write_bytes(b"[]"),
    ],
)
def test_what_is_missing_foreign_or_malformed_is_refused(
    tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    filled(tmp_path)
    harm(tmp_path)
    with pytest.raises(BackupInvalid):
        check(tmp_path)


def test_another_format_is_named(tmp_path: Path) -> None:
    made = filled(tmp_path)
    later = made.model_copy(update={"format": 2})
    (tmp_path / MANIFEST_NAME).write_text(later.model_dump_json())
    with pytest.raises(BackupInvalid, match="format 1, got 2"):
        check(tmp_path)

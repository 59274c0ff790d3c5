"""Table files give back what was written and refuse what is not one."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from verso_codecs import archive
from verso_core.errors import ArtifactInvalid


def test_members_come_back(tmp_path: Path) -> None:
    members = {"counts": np.arange(6).reshape(2, 3), "width": np.array(7)}
    archive.write(tmp_path / "tables.npz", members)
    found = archive.read(tmp_path / "tables.npz", ("counts", "width"))
    np.testing.assert_array_equal(found["counts"], members["counts"])
    assert archive.number(found["width"], "width") == 7


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 and then nothing", b"\x93NUMPY", b"text"])
def test_a_file_that_is_no_archive_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "tables.npz").write_bytes(content)
    with pytest.raises(ArtifactInvalid):
        archive.read(tmp_path / "tables.npz", ("counts",))


def test_a_missing_file_or_member_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArtifactInvalid):
        archive.read(tmp_path / "tables.npz", ("counts",))
    archive.write(tmp_path / "tables.npz", {"width": np.array(7)})
    with pytest.raises(ArtifactInvalid):
        archive.read(tmp_path / "tables.npz", ("counts",))


@pytest.mark.parametrize("member", [np.zeros(2), np.array("seven"), np.zeros(0)])
def test_a_member_that_is_no_number_is_refused(member: NDArray[Any]) -> None:
    with pytest.raises(ArtifactInvalid):
        archive.number(member, "width")

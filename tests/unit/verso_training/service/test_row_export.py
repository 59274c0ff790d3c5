"""What the workers give of a collection is put together up to the limit."""

import numpy as np
from tests.wire import Result

from verso_core.jobs.train import Labelled, pack_rows, unpack_rows
from verso_training.service.row_export import _joined


def frame(ids: list[str], blob: bytes) -> bytes:
    """One slice's result, its labels the ids in capitals."""
    result = Result([])
    labels = [name.upper() for name in ids]
    result.items.append({"ok": True, "ids": ids, "labels": labels, "blob": result.add_blob(blob)})
    return result.pack()


def test_vectors_and_labels_end_at_the_same_row() -> None:
    rows = np.arange(8, dtype="<f4").reshape(4, 2)
    frames = [frame(["a", "b"], rows[:2].tobytes()), frame(["c", "d"], rows[2:].tobytes())]
    found = _joined(frames, row_bytes=8, limit=3)
    assert (found.documents, found.labels) == (["a", "b", "c"], ["A", "B", "C"])
    assert bytes(found.data) == rows[:3].tobytes()
    assert len(_joined(frames, row_bytes=8, limit=9).data) == rows.nbytes


def test_texts_of_several_lines_are_a_row_each() -> None:
    texts = ["one\ntwo", "three\r\nfour\u2028five", ""]
    packed = [pack_rows([Labelled(text, "x")]) for text in texts]
    frames = [frame(["a", "b"], b"".join(packed[:2])), frame(["c"], packed[2])]
    found = _joined(frames, row_bytes=None, limit=2)
    assert [row.text for row in unpack_rows(bytes(found.data))] == texts[:2]
    assert found.documents == ["a", "b"]

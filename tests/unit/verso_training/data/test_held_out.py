"""Held-out texts for tables and for figures."""

from tests.support import tiny_artifact

from verso_training.data import chunks


def test_no_document_serves_both_fitting_and_reporting() -> None:
    texts = chunks.draw_held_out(tiny_artifact.documents(), fit_chunks=60, report_chunks=40)
    assert 0 < len(texts.fitting) <= 60
    assert 0 < len(texts.reporting) <= 40
    assert not {c.text for c in texts.fitting} & {c.text for c in texts.reporting}


def test_the_draw_is_the_same_every_time() -> None:
    one = chunks.draw_held_out(tiny_artifact.documents(), fit_chunks=20, report_chunks=20)
    two = chunks.draw_held_out(tiny_artifact.documents(), fit_chunks=20, report_chunks=20)
    assert one == two

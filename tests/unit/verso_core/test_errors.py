"""Errors keep their class across a process boundary, and foreign ones give nothing away."""

from __future__ import annotations

import pytest

from verso_core import errors
from verso_core.errors import CLASSES, QueueFull, VersoError, error_body, from_body


@pytest.mark.parametrize("cls", CLASSES.values(), ids=lambda cls: cls.__name__)
def test_an_error_keeps_its_class_on_the_wire(cls: type[VersoError]) -> None:
    body = error_body(cls("expected 1, got 2"))
    back = from_body(body)
    assert type(back) is cls
    assert error_body(back) == body


def test_codes_are_unique() -> None:
    def tree(cls: type[VersoError]) -> list[type[VersoError]]:
        # A part may have errors of its own that never cross a process boundary.
        own = [child for child in cls.__subclasses__() if child.__module__ == errors.__name__]
        return [cls, *(found for child in own for found in tree(child))]

    assert len(tree(VersoError)) == len(CLASSES)


@pytest.mark.parametrize("cls", CLASSES.values(), ids=lambda cls: cls.__name__)
def test_every_class_says_when_it_is_raised_and_is_in_the_drawing(cls: type[VersoError]) -> None:
    assert (cls.__doc__ or "").startswith("Raised when")
    assert cls.__name__ in (errors.__doc__ or "")


def test_a_foreign_exception_shows_its_class_alone() -> None:
    body = error_body(ValueError("the secret text"))
    assert body == {"code": "internal", "detail": "ValueError", "retryable": False}


def test_an_unknown_code_gives_the_root() -> None:
    body = from_body({"code": "of_a_later_version", "detail": "x", "retryable": True})
    assert type(body) is VersoError


def test_a_full_queue_says_when_to_come_back() -> None:
    assert QueueFull("full", retry_after_s=3.5).retry_after_s == 3.5

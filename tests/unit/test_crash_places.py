"""The places where tests of crashes end a process exist in the code of today."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import sys
from pathlib import Path

import pytest

_FILE = Path(__file__).parents[1] / "chaos/crash/sitecustomize.py"
_SPEC = importlib.util.spec_from_file_location("crash_places", _FILE)
assert _SPEC is not None
assert _SPEC.loader is not None
_crash = importlib.util.module_from_spec(_SPEC)
sys.modules["crash_places"] = _crash
_SPEC.loader.exec_module(_crash)


@pytest.mark.parametrize("name", _crash.PLACES)
def test_a_place_names_a_function_that_exists(name: str) -> None:
    place = _crash.PLACES[name]
    module = importlib.import_module(place.module)
    assert callable(functools.reduce(getattr, place.function.split("."), module))

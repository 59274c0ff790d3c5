"""A training as a request, and settings as they are typed."""

from __future__ import annotations

import json

import pytest
import typer

from verso_client.cli.heads import settings
from verso_client.operations.heads import CSV, Training


def test_a_file_goes_as_it_is_and_what_is_said_of_it_in_the_query() -> None:
    call = Training("mood", file=b"t,l\n", media_type=CSV, columns=("t", "l"), share=0.5).call()
    assert (call.content, call.headers["Content-Type"]) == (b"t,l\n", CSV)
    assert call.params["text_column"] == "t"
    assert json.loads(str(call.params["settings"]))["share"] == 0.5


@pytest.mark.parametrize(
    ("training", "source"),
    [
        (
            Training("mood", rows=[{"text": "a", "label": "b"}]),
            {"rows": [{"text": "a", "label": "b"}]},
        ),
        (
            Training("mood", collection="logs", label_key="kind"),
            {"collection": "logs", "label_key": "kind"},
        ),
        (Training("mood", squad={"data": []}), {"squad": {"data": []}}),
        (Training("mood", pairs=[{"score": 1.0}]), {"pairs": [{"score": 1.0}]}),
    ],
)
def test_rows_and_collections_go_as_json(training: Training, source: dict[str, object]) -> None:
    body = json.loads(training.call().content or b"")
    assert (body["head"], body["source"]) == ("mood", source)


def test_settings_are_nested_json() -> None:
    given = ["classify.hidden=8", "classify.class_weights=balanced", "seed=1"]
    assert settings(given) == {"classify": {"hidden": 8, "class_weights": "balanced"}, "seed": 1}


@pytest.mark.parametrize("given", [["a"], ["=1"], ["a=1", "a.b=2"]])
def test_settings_that_are_none_are_wrong_usage(given: list[str]) -> None:
    with pytest.raises(typer.BadParameter):
        settings(given)

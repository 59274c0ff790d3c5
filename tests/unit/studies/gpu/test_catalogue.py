"""The entries of the queue are commands that there are, and its page names each of them."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from studies import __main__ as studies
from studies.benches.codecs import bench_segments
from studies.gpu.catalogue import ENTRIES, SEGMENTS, STUDIES, TRAINING, Places, Step
from studies.papers import catalogue as papers
from studies.quality.job import load_recipe
from verso_training import __main__ as training
from verso_training import config

PAGE = (Path(__file__).parents[4] / "training" / "GPU_QUEUE.md").read_text(encoding="utf-8")
PLACES = Places(Path("/data"), Path("/artifact"), Path("/work"))
PARSERS = {
    STUDIES: studies._parser(),
    TRAINING: training._parser(),
    SEGMENTS: bench_segments.parser(),
}
STEPS = {step.name: step for entry in ENTRIES.values() for step in entry.steps}


@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS.keys())
def test_a_step_is_a_command_that_there_is(step: Step) -> None:
    read = PARSERS[step.module].parse_args(PLACES.words(step))
    if "recipe" in read:
        load = load_recipe if read.command is studies._head else config.load
        assert load(read.recipe).name == read.recipe
    if step.name.startswith("papers-"):
        assert set(read.only) <= set(papers.STUDIES)


@pytest.mark.parametrize("entry", ENTRIES)
def test_a_step_stands_behind_those_it_needs(entry: str) -> None:
    before: set[str] = set()
    for step in ENTRIES[entry].steps:
        assert set(step.needs) <= before
        assert step.name not in before
        before.add(step.name)


def test_steps_of_one_name_are_one_step() -> None:
    assert all(STEPS[step.name] == step for entry in ENTRIES.values() for step in entry.steps)


def test_the_page_has_the_command_of_every_entry_and_no_other() -> None:
    told = [*re.findall(r"^    python -m studies (gpu .+)$", PAGE, re.MULTILINE)]
    read = [PARSERS[STUDIES].parse_args(shlex.split(words)) for words in told]
    assert [one.entry for one in read] == [*ENTRIES]
    assert re.findall(r"^## `([a-z]+)`", PAGE, re.MULTILINE) == [*ENTRIES]


@pytest.mark.parametrize("entry", ENTRIES)
def test_the_page_says_after_how_many_minutes_an_entry_is_ended(entry: str) -> None:
    (section,) = re.findall(rf"^## `{entry}`.*?(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert f"ended after {ENTRIES[entry].minutes:g}" in section

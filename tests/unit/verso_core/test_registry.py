"""A channel names one folder, or is a clear error; promote and rollback are inverses."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verso_core import registry
from verso_core.errors import ArtifactInvalid, HeadUnknown, RequestInvalid
from verso_core.registry import REGISTRY_NAME, Channel, assign, channel_of, resolve


@pytest.fixture
def models(tmp_path: Path) -> Path:
    for name in ("one", "two", "heads/mood/v1", "heads/mood/v2"):
        (tmp_path / name).mkdir(parents=True)
    return tmp_path


def test_a_channel_resolves_to_what_was_assigned(models: Path) -> None:
    assign(models, Channel.STABLE, "one")
    assign(models, Channel.CANARY, "two")
    assert resolve(models) == models / "one"
    assert resolve(models, Channel.CANARY) == models / "two"
    assign(models, Channel.CANARY, None)
    with pytest.raises(ArtifactInvalid, match="canary"):
        resolve(models, Channel.CANARY)


@pytest.mark.parametrize(
    "content",
    ["", "[]", '{"stable": "missing"}', '{"stable": "../x"}', '{"stable": "one", "canari": null}'],
)
def test_a_registry_that_names_no_folder_is_refused(models: Path, content: str) -> None:
    (models / REGISTRY_NAME).write_text(content)
    with pytest.raises(ArtifactInvalid):
        resolve(models)


def test_no_registry_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ArtifactInvalid, match=REGISTRY_NAME):
        resolve(tmp_path)


def test_a_file_from_before_there_were_heads_reads(models: Path) -> None:
    (models / REGISTRY_NAME).write_text('{"stable": "one", "canary": null}')
    assert registry.read(models).heads == {}
    assign(models, Channel.CANARY, "v1", head="mood", share=0.5)
    assert resolve(models) == models / "one"
    content = json.loads((models / REGISTRY_NAME).read_text())
    assert content == {
        "stable": "one",
        "canary": None,
        "heads": {
            "mood": {"canary": "v1", "share": 0.5, "trial": content["heads"]["mood"]["trial"]}
        },
    }


@pytest.mark.parametrize(("head", "version"), [(None, "two"), ("mood", "v2")])
def test_each_trial_of_a_canary_has_a_name_of_its_own(
    models: Path, head: str | None, version: str
) -> None:
    """A version that was withdrawn and is tried again starts with sums of zero."""

    def trial() -> str | None:
        return registry.read(models).rollout(head).trial_of_canary

    assign(models, Channel.CANARY, version, head=head)
    first = trial()
    assign(models, Channel.CANARY, version, head=head, share=0.5)
    assert trial() == first is not None
    registry.withdraw(models, version, head=head, reason="it was worse")
    assert trial() is None
    assign(models, Channel.CANARY, version, head=head)
    assert trial() not in (None, first)
    registry.promote(models, head=head)
    assert registry.read(models).rollout(head).trial is None


def test_a_canary_from_before_there_were_trials_is_tried_by_its_version(models: Path) -> None:
    (models / REGISTRY_NAME).write_text('{"stable": "one", "canary": "two"}')
    assert registry.read(models).artifact.trial_of_canary == "two"


def test_only_a_folder_that_is_there_can_be_assigned(models: Path) -> None:
    with pytest.raises(ArtifactInvalid):
        assign(models, Channel.STABLE, "three")
    with pytest.raises(ArtifactInvalid):
        assign(models, Channel.STABLE, "v3", head="mood")
    with pytest.raises(ArtifactInvalid):
        assign(models, Channel.STABLE, "one", head="../..")


@pytest.mark.parametrize(("head", "old", "new"), [(None, "one", "two"), ("mood", "v1", "v2")])
def test_a_canary_is_promoted_and_rolled_back(
    models: Path, head: str | None, old: str, new: str
) -> None:
    assign(models, Channel.STABLE, old, head=head)
    assign(models, Channel.CANARY, new, head=head, share=0.25)
    registry.promote(models, head=head)
    now = registry.read(models).rollout(head)
    assert (now.stable, now.canary, now.previous, now.share) == (new, None, old, 0.25)
    registry.rollback(models, head=head)
    now = registry.read(models).rollout(head)
    assert (now.stable, now.previous) == (old, new)
    registry.rollback(models, head=head)  # and forth again
    assert registry.read(models).rollout(head).stable == new


def test_a_rollback_takes_a_canary_first(models: Path) -> None:
    assign(models, Channel.STABLE, "v1", head="mood")
    assign(models, Channel.CANARY, "v2", head="mood")
    registry.rollback(models, head="mood", reason="worse")
    now = registry.read(models).rollout("mood")
    assert (now.stable, now.canary) == ("v1", None)
    assert now.withdrawn is not None
    assert (now.withdrawn.version, now.withdrawn.reason) == ("v2", "worse")
    with pytest.raises(RequestInvalid, match="earlier"):
        registry.rollback(models, head="mood")


@pytest.mark.parametrize(("head", "old", "new"), [(None, "one", "two"), ("mood", "v1", "v2")])
def test_nothing_is_rolled_back_to_a_folder_that_is_gone(
    models: Path, head: str | None, old: str, new: str
) -> None:
    """What an older release shipped is gone after an upgrade."""
    assign(models, Channel.STABLE, old, head=head)
    before = assign(models, Channel.STABLE, new, head=head)
    folder = models / old if head is None else models / "heads" / head / old
    folder.rename(tmp := folder.with_name("elsewhere"))
    folder.symlink_to("nowhere")
    with pytest.raises(ArtifactInvalid, match=old):
        registry.rollback(models, head=head)
    assert registry.read(models) == before
    folder.unlink()
    tmp.rename(folder)
    assert registry.rollback(models, head=head).rollout(head).stable == old


def test_only_the_canary_that_failed_is_withdrawn(models: Path) -> None:
    assign(models, Channel.CANARY, "v2", head="mood")
    registry.withdraw(models, "v1", head="mood", reason="late news of an older one")
    assert registry.read(models).rollout("mood").canary == "v2"
    registry.withdraw(models, "v2", head="mood", reason="failed")
    assert registry.read(models).rollout("mood").canary is None


def test_what_is_not_there_is_not_promoted(models: Path) -> None:
    assign(models, Channel.STABLE, "one")
    with pytest.raises(RequestInvalid, match="canary"):
        registry.promote(models)
    with pytest.raises(HeadUnknown):
        registry.promote(models, head="mood")
    with pytest.raises(HeadUnknown):
        registry.head(models, "mood")
    assign(models, Channel.STABLE, "v1", head="mood")
    assert registry.head(models, "mood") == models / "heads" / "mood" / "v1"
    with pytest.raises(HeadUnknown, match="canary"):
        registry.head(models, "mood", Channel.CANARY)


def test_changes_made_at_once_are_all_kept(models: Path) -> None:
    names = [f"head-{n}" for n in range(16)]
    for name in names:
        (models / "heads" / name / "v").mkdir(parents=True)
    threads = [
        threading.Thread(target=assign, args=(models, Channel.STABLE, "v"), kwargs={"head": name})
        for name in names
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(registry.read(models).heads) == sorted(names)


@given(st.text(), st.floats(0, 1))
def test_a_jobs_channel_never_changes_and_grows_with_the_share(job: str, share: float) -> None:
    assert channel_of(job, share) is channel_of(job, share)
    assert channel_of(job, 0) is Channel.STABLE
    assert channel_of(job, 1) is Channel.CANARY
    if channel_of(job, share) is Channel.CANARY:
        assert channel_of(job, min(1.0, share * 1.5)) is Channel.CANARY


def test_a_share_is_about_that_share() -> None:
    chosen = sum(channel_of(f"job-{n}", 0.1) is Channel.CANARY for n in range(10_000))
    assert 800 < chosen < 1200


@pytest.mark.parametrize("head", [None, "mood"])
def test_a_change_that_is_asked_for_again_is_made_once(models: Path, head: str | None) -> None:
    old, new = ("one", "two") if head is None else ("v1", "v2")
    assign(models, Channel.STABLE, old, head=head)
    assign(models, Channel.CANARY, new, head=head)
    first = registry.promote(models, head=head, token="a")
    assert registry.promote(models, head=head, token="a") == first
    back = registry.rollback(models, head=head, token="b")
    assert registry.rollback(models, head=head, token="b") == back
    assert registry.promote(models, head=head, token="a") == back
    assert back.rollout(head).stable == old
    assert registry.rollback(models, head=head, token="c").rollout(head).stable == new

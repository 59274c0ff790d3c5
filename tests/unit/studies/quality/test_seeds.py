from pathlib import Path

import pytest

from studies.quality import seeds
from verso_core import heads
from verso_core.errors import HeadInvalid
from verso_core.heads import Head

TESTS = Path(__file__).parents[3]
ARTIFACT = TESTS / "data" / "artifact-tiny"
[ENDINGS] = (TESTS / "data" / "heads-tiny" / "heads" / "endings").iterdir()


def other(head: Head, *, seed: int, gain: float = 0.0, rows: str = "") -> Head:
    """Return a head that differs in its seed, and by how much its sources are better."""
    recipe = {**head.lineage.recipe, "seed": seed}
    lineage = head.lineage.model_copy(update={"recipe": recipe})
    if rows:
        lineage = lineage.model_copy(update={"data_sha256": rows})
    metrics = {
        name: value + gain if name.endswith("/accuracy") else value
        for name, value in head.metrics.items()
    }
    return heads.named(head.model_copy(update={"lineage": lineage, "metrics": metrics}))


def test_a_card_tells_what_other_seeds_give_and_the_weights_stay(tmp_path: Path) -> None:
    head = heads.load(ENDINGS).head
    folders = [ENDINGS]
    for seed, gain in ((1, -0.02), (2, -0.04)):
        folder = tmp_path / str(seed)
        folder.mkdir()
        for path in ENDINGS.iterdir():
            (folder / path.name).write_bytes(path.read_bytes())
        heads.write(other(head, seed=seed, gain=gain), folder)
        folders.append(folder)
    made = seeds.publish(folders, artifact=ARTIFACT, out_dir=tmp_path / "heads")
    found = heads.load(made).head
    assert found.version == made.name != head.version
    assert found.calibration == head.calibration
    assert found.metrics == head.metrics
    assert {n for n in head.files if head.files[n] != found.files[n]} == {heads.CARD}
    card = (made / heads.CARD).read_text(encoding="utf-8")
    assert card.startswith((ENDINGS / heads.CARD).read_text(encoding="utf-8").rstrip("\n"))
    accuracy = 100 * head.metrics["source/gateway/accuracy"]
    each = f"({accuracy:.1f}, {accuracy - 2:.1f}, {accuracy - 4:.1f})"
    assert f"{accuracy - 2:.1f} ± 2.0 {each}" in card
    again = seeds.publish([made, *folders[1:]], artifact=ARTIFACT, out_dir=tmp_path / "heads")
    assert again == made


def test_only_heads_that_differ_in_their_seed_are_compared() -> None:
    head = heads.load(ENDINGS).head
    with pytest.raises(HeadInvalid, match="two heads or more"):
        seeds.section([head])
    with pytest.raises(HeadInvalid, match="expected a seed a head"):
        seeds.section([head, head])
    with pytest.raises(HeadInvalid, match="other rows"):
        seeds.section([head, other(head, seed=1, rows="1" * 64)])
    wide = {**head.lineage.recipe, "classify": {"hidden": 7}}
    lineage = head.lineage.model_copy(update={"recipe": wide})
    with pytest.raises(HeadInvalid, match="other settings"):
        seeds.section([head, heads.named(head.model_copy(update={"lineage": lineage}))])

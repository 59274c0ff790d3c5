"""BERT's objectives on an encoder whose last layer alone is trained."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from transformers import BertModel

from studies.tasks import pretraining, steps
from studies.tasks.pretraining import Example, MaskedReader, NextSentence
from studies.tasks.steps import Task
from verso_training.data.sources import Document, Split

SEP, MASK = 1, 2


def repeated(count: int) -> list[Example]:
    """Texts of one word over and over: a masked one is told by those beside it."""
    words = np.random.default_rng(1).integers(5, 13, count)
    return [Example([0, *[int(word)] * 10, SEP], 12, 1) for word in words]


@pytest.mark.parametrize("extra", [False, True])
def test_masked_tokens_are_recovered_where_the_text_tells_them(
    bert: BertModel, *, extra: bool
) -> None:
    module = MaskedReader(pretraining._last_layer(bert))
    cost = pretraining.masked_losses(module, mask_id=MASK, extra=extra)
    task = Task(
        "masked", module, repeated(512), cost, bert.config.vocab_size, 6, tokens_per_step=256
    )
    steps.train(steps.one_task(task), rates=steps.Rates(5e-3, 5e-3), seed=0, title="masked")
    asked = repeated(64)
    found = pretraining.recovered(module, asked, mask_id=MASK)
    assert found["masked/low"] <= found["masked"] <= found["masked/high"]
    assert found["masked"] > 50 > pretraining.usual(asked, asked)
    lower, last = module.bert.encoder.layer
    for mine, own in zip(lower.parameters(), bert.encoder.layer[0].parameters(), strict=True):
        assert torch.equal(mine, own)
    assert any(p.requires_grad for p in last.parameters())


def test_the_extra_loss_is_that_of_the_changed_tokens(bert: BertModel) -> None:
    module = MaskedReader(bert)
    batch = repeated(32)
    with torch.no_grad():
        plain, more = (
            float(pretraining.masked_losses(module, mask_id=MASK, extra=extra)(batch)["masked"])
            for extra in (False, True)
        )
    assert more > 1.5 * plain


def test_the_most_frequent_token_is_that_of_the_shown_texts() -> None:
    shown = [Example([0, 5, 5, 6, SEP], 5, 1)]
    asked = [Example([0, 6, 6, 5, 7, SEP], 6, 1)]
    assert pretraining.usual(shown, asked) == 25.0


def test_sentences_behind_one_another_come_from_one_split() -> None:
    def text(word: str) -> str:
        return " ".join(f"The {word} number {i} is told of here." for i in range(6))

    documents = [
        Document("books", "books", name, text(name), split)
        for name, split in (
            ("apple", Split.TRAIN),
            ("pear", Split.TRAIN),
            ("plum", Split.VALIDATION),
            ("fig", Split.VALIDATION),
        )
    ]
    logs = replace(documents[0], family="logs", text=text("log"))
    shown, held = pretraining.drawn(iter([*documents, logs]))
    assert len(shown) == len(held) == 10
    for rows, names in ((shown, {"apple", "pear"}), (held, {"plum", "fig"})):
        for row in rows:
            first, second, near, far = (
                one.split()[1:4:2] for one in (row.first, row.second, row.near, row.far)
            )
            assert {first[0], far[0]} == names
            assert first[0] == second[0] == near[0]
            assert int(second[1]) == int(first[1]) + 1
            assert near[1] not in (first[1], second[1])


def test_next_sentence_learns_what_the_second_text_tells(bert: BertModel) -> None:
    rng = np.random.default_rng(2)
    rows = [
        Example([0, int(a), SEP, 20 + follows, SEP], 3, follows)
        for a, follows in zip(rng.integers(5, 20, 128), [0, 1] * 64, strict=True)
    ]
    module = NextSentence(pretraining._last_layer(bert))
    task = Task("next", module, rows, pretraining.next_losses(module), 2, 6, tokens_per_step=80)
    steps.train(steps.one_task(task), rates=steps.Rates(5e-3, 5e-3), seed=0, title="next")
    assert pretraining.accuracy(module, rows) > 95


def test_a_share_of_few_pairs_has_a_wide_interval() -> None:
    assert pretraining._told({"next_far": 50.0, "reported": 100}, "next_far") == "50.0 [40.2, 59.8]"

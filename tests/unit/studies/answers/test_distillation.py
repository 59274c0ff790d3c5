"""What a student of two readers learns from."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

from studies.answers import distillation
from studies.answers.arms import Losses
from studies.papers.question_answering import students
from verso_training.heads.questions import Window
from verso_training.heads.reader import Reader

WINDOWS = [Window(0, [1, 5, 2, 7, 8, 9, 2], 3, [(0, 1), (1, 2), (2, 3)], [4], [5])]


class _Says(nn.Module):
    """One number for each token: a reader with a table."""

    def __init__(self, *values: float) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.tensor(values, dtype=torch.float32))

    def forward(self, ids: Tensor, mask: Tensor, types: Tensor) -> tuple[Tensor, Tensor]:
        said = self.table.expand(len(ids), -1)
        return said, -said


class _Student(_Says):
    """As ``Reader`` has its heads by name."""

    def forward(self, ids: Tensor, mask: Tensor, types: Tensor) -> dict[str, tuple[Tensor, Tensor]]:  # type: ignore[override]
        return {"head": super().forward(ids, mask, types)}


def _readers() -> list[_Says]:
    return [_Says(0, 0, 0, 4, 0, 0, 0), _Says(2, 0, 0, 0, 0, 2, 0)]


def _losses(student: _Student, readers: list[_Says], *, weight: float) -> Losses:
    return students.losses(cast(Reader, student), distillation.mean_of(readers), weight=weight)


def test_the_teacher_is_the_mean_of_the_readers() -> None:
    start, end = distillation.mean_of(_readers())(*(torch.zeros(2, 7),) * 3)
    assert start.tolist() == [[1, 0, 0, 2, 0, 1, 0]] * 2
    assert torch.equal(end, -start)


def test_a_student_comes_to_say_what_the_readers_say_and_they_stay() -> None:
    readers = _readers()
    before = [one.table.clone() for one in readers]
    student = _Student(*[0.0] * 7)
    losses = _losses(student, readers, weight=1.0)
    optimiser = torch.optim.Adam(student.parameters(), lr=0.1)
    first = float(losses(WINDOWS)["head"].detach())
    for _ in range(300):
        optimiser.zero_grad()
        loss = losses(WINDOWS)["head"]
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    assert first > 0.1
    assert float(loss.detach()) < 1e-3
    # a span may be refused at the first token, or lie in the text: 3, 4 and 5
    said = student.table[torch.tensor([0, 3, 4, 5])]
    assert torch.allclose(said - said[2], torch.tensor([1.0, 2.0, 0.0, 1.0]), atol=0.05)
    assert all(torch.equal(a, b.table) for a, b in zip(before, readers, strict=True))


def test_labels_alone_are_the_loss_of_the_right_span() -> None:
    weight = distillation.STUDENTS["labels alone"]
    own = _losses(_Student(*[0.0] * 7), _readers(), weight=weight)(WINDOWS)
    # four places are allowed, and none is likelier than another
    assert torch.isclose(own["head"], torch.tensor(4.0).log())

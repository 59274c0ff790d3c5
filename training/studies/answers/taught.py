"""What a reader that a study has trained was made of: beside its weights, for its card."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

WEIGHTS = "adapter.safetensors"
_ABOUT = "about.json"


@dataclass(frozen=True)
class Taught:
    """Where the weights of a reader come from.

    Attributes:
        command: That trained it.
        start: Version of the head whose weights it started at.
        data: Sets of questions.
        licence: Of these.
        data_sha256: Of the questions.
        learned: What it learned from: ends the sentence "It learned from ...".
    """

    command: str
    start: str
    data: tuple[str, ...]
    licence: str
    data_sha256: str
    learned: str

    @property
    def note(self) -> str:
        """Return the sentences of a card on how it was trained."""
        return (
            f"Trained by `{self.command}` from the weights of version {self.start} on. "
            f"It learned from {self.learned}."
        )

    def write(self, folder: Path) -> None:
        """Keep it beside the weights; a file that says so already stays as it is."""
        if (folder / _ABOUT).exists() and Taught.load(folder) == self:
            return
        draft = folder / f"{_ABOUT}.new"
        draft.write_text(json.dumps(asdict(self), indent=1), encoding="utf-8")
        draft.replace(folder / _ABOUT)

    @classmethod
    def load(cls, folder: Path) -> Taught:
        """Read what lies beside the weights."""
        found = json.loads((folder / _ABOUT).read_text(encoding="utf-8"))
        return cls(**{**found, "data": tuple(found["data"])})

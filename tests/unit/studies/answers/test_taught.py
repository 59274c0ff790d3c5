"""What lies beside the weights of a reader that a study has trained."""

from pathlib import Path

from studies.answers.taught import Taught


def test_what_a_reader_was_made_of_is_read_as_it_was_kept(tmp_path: Path) -> None:
    made = Taught("python -m studies x", "abc", ("qa_squad",), "CC BY-SA 4.0", "0" * 64, "spans")
    made.write(tmp_path)
    assert Taught.load(tmp_path) == made
    assert "from the weights of version abc on. It learned from spans." in made.note

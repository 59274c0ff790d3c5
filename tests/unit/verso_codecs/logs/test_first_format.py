"""Lines that the first formats of shapes, tables and blocks hold are read.

They were recorded by commit 937c44d6 (tests/data/written-before).
"""

from __future__ import annotations

import base64
import json
import lzma
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from verso_codecs.logs import blocks
from verso_codecs.logs.parsing import Lines, parse
from verso_codecs.logs.shapes import Shapes
from verso_codecs.logs.tables import Tables
from verso_core.errors import ArtifactInvalid, RecordCorrupt

_RECORDED = Path(__file__).parents[3] / "data" / "written-before" / "log-lines-1.json.xz"


@pytest.fixture(scope="module")
def recorded() -> dict[str, Any]:
    """Return lines, and what a collection stored of them."""
    with lzma.open(_RECORDED, "rt", encoding="utf-8") as stream:
        held = json.load(stream)
    return {
        "lines": [line.encode("latin-1") for line in held["lines"]],
        "shapes": [base64.b64decode(one) for one in held["shapes"]],
        "tables": base64.b64decode(held["tables"]),
        "blocks": [base64.b64decode(one) for one in held["blocks"]],
    }


@pytest.fixture(scope="module")
def shapes(recorded: dict[str, Any]) -> Shapes:
    """Return the recorded shapes."""
    found = Shapes()
    for packed in recorded["shapes"]:
        assert packed[0] == 1
        found.extend(found.unpack(packed))
    return found


def _lines_of(block: bytes, shapes: Shapes, tables: list[Tables]) -> list[bytes]:
    head = blocks.header(block)
    lines = blocks.decode(block, shapes, tables[head.generation])
    return [lines.line(number) for number in range(head.line_count)]


def test_blocks_of_both_generations_give_their_lines_back(
    recorded: dict[str, Any], shapes: Shapes
) -> None:
    assert recorded["tables"][0] == 1
    tables = [Tables.builtin(), Tables.unpack(recorded["tables"], shapes)]
    assert {block[0] for block in recorded["blocks"]} == {1}
    found = [line for block in recorded["blocks"] for line in _lines_of(block, shapes, tables)]
    assert found == 2 * recorded["lines"]


def test_tables_of_the_first_format_code_new_blocks(
    recorded: dict[str, Any], shapes: Shapes
) -> None:
    tables = Tables.unpack(recorded["tables"], shapes)
    texts = recorded["lines"][:128]
    ends = np.cumsum([0, *map(len, texts)], dtype=np.int64)
    data = np.frombuffer(bytearray(b"".join(texts)), np.uint8)
    parsed = parse(Lines(data, ends[:-1], ends[1:]), shapes)
    assert not parsed.new_rows
    block = blocks.encode(parsed, shapes, tables, first=0, count=128)
    assert block[0] == 2
    assert _lines_of(block, shapes, [Tables.builtin(), tables]) == texts


def test_a_payload_is_read_by_the_rules_of_its_version(
    recorded: dict[str, Any], shapes: Shapes
) -> None:
    body = bytes([2]) + recorded["blocks"][0][1:-4]
    with pytest.raises(RecordCorrupt):
        blocks.decode(body + zlib.crc32(body).to_bytes(4, "little"), shapes, Tables.builtin())
    other = bytes([3]) + recorded["tables"][1:]
    with pytest.raises(ArtifactInvalid, match="expected format 1 or 2, got 3"):
        Tables.unpack(other, shapes)


def test_every_flipped_bit_of_a_block_of_the_first_version_is_found(
    recorded: dict[str, Any], shapes: Shapes
) -> None:
    block = recorded["blocks"][0]
    for bit in range(8 * len(block)):
        flipped = bytearray(block)
        flipped[bit >> 3] ^= 1 << (bit & 7)
        with pytest.raises(RecordCorrupt):
            blocks.decode(bytes(flipped), shapes, Tables.builtin())

"""Heads and artifacts that are worse than their source in one respect, and sound in all others."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from verso_core import heads, manifest

_SIZE = 256
"""Rows of the matrices that are multiplied for nothing."""


def swapped_head(source: Path, models: Path, *, one: str, other: str) -> str:
    """Write a version of a head that takes two labels for each other; returns its name."""
    head = heads.load(source).head
    swap = {one: other, other: one}
    labels = tuple(swap.get(label, label) for label in head.labels)
    return _written(head.model_copy(update={"labels": labels}), source, models)


def slow_head(source: Path, models: Path, *, products: int) -> str:
    """Write a version of a head that says the same after so many products; returns its name."""
    head = heads.load(source).head
    graph = models / "slow.onnx"
    _add_work(source / "head.onnx", graph, products=products)
    files = dict(head.files) | {"head.onnx": manifest.describe(graph)}
    name = _written(head.model_copy(update={"files": files}), source, models)
    graph.replace(models / "heads" / head.name / name / "head.onnx")
    return name


def slow_decoder(source: Path, folder: Path, *, products: int) -> None:
    """Write an artifact whose decoder makes the same payloads after so many products a text."""
    shutil.copytree(source, folder)
    _add_work(source / "memory.onnx", folder / "memory.onnx", products=products)
    seal(folder, "memory.onnx")


def other_encoder(source: Path, folder: Path) -> None:
    """Write an artifact whose graphs have other bytes and say the same: of a space of its own.

    A note at the end of a file is field 6 of ONNX's ModelProto, ``doc_string``.
    """
    shutil.copytree(source, folder)
    names = ("encoder.onnx", "decoder.onnx")
    for name in names:
        with (folder / name).open("ab") as graph:
            graph.write(b"\x32\x04note")
    seal(folder, *names)


def seal(folder: Path, *names: str) -> None:
    """Write an artifact's manifest again after a change of some files."""
    content = json.loads((folder / manifest.MANIFEST_NAME).read_bytes())
    for name in names:
        content["files"][name] = manifest.describe(folder / name).model_dump()
    parsed = manifest.Manifest.model_validate(content)
    content["space"]["id"] = manifest.space_id(parsed.space, parsed.files)
    content["codec"]["id"] = manifest.codec_id(parsed.codec, parsed.files)
    manifest.write(manifest.Manifest.model_validate(content), folder)


def _written(head: heads.Head, source: Path, models: Path) -> str:
    made = heads.named(head)
    folder = Path(shutil.copytree(source, models / "heads" / made.name / made.version))
    heads.write(made, folder)
    return made.version


def _add_work(source: Path, target: Path, *, products: int) -> None:
    """Write a graph whose first output waits for products of matrices, and has the same bits.

    The matrices depend on the first input, or the products would be computed when it is loaded.
    Each product is the constant 1 / size again, and times zero it is added to the output.
    """
    model = onnx.load(source)
    graph = model.graph
    given, said = graph.input[0].name, graph.output[0].name
    for node in graph.node:
        node.output[:] = ["answered_early" if name == said else name for name in node.output]
        node.input[:] = ["answered_early" if name == said else name for name in node.input]
    even = np.full((_SIZE, _SIZE), 1 / _SIZE, np.float32)
    graph.initializer.append(numpy_helper.from_array(even, "work_even"))
    graph.initializer.append(numpy_helper.from_array(np.zeros((), np.float32), "work_zero"))
    nodes = [
        helper.make_node("Cast", [given], ["work_given"], to=TensorProto.FLOAT),
        helper.make_node("ReduceMax", ["work_given"], ["work_one"], keepdims=0),
        helper.make_node("Mul", ["work_one", "work_zero"], ["work_none"]),
        helper.make_node("Add", ["work_even", "work_none"], ["work_0"]),
    ]
    nodes += [
        helper.make_node("MatMul", [f"work_{number}", "work_even"], [f"work_{number + 1}"])
        for number in range(products)
    ]
    nodes += [
        helper.make_node("ReduceMax", [f"work_{products}"], ["work_last"], keepdims=0),
        helper.make_node("Mul", ["work_last", "work_zero"], ["work_done"]),
        helper.make_node("Add", ["answered_early", "work_done"], [said]),
    ]
    graph.node.extend(nodes)
    onnx.save(model, target)

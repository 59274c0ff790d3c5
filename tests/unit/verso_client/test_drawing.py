"""Charts as SVG: whole documents, whose lines lie where their values are."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import pytest

from verso_client.cli.drawing import Bars, Line, bars, chart

_SVG = "{http://www.w3.org/2000/svg}"


def read(text: str) -> ET.Element:
    return ET.fromstring(text)  # noqa: S314 - it was made here


def test_a_chart_is_a_document_with_a_title_axes_and_a_legend() -> None:
    lines = [Line("stack", [10, 100], [0, 8]), Line("a & b <c>", [10, 100], [2, 4])]
    drawn = read(chart("Risk & more", lines, x_label="rows, %", y_label="wrong"))
    assert drawn.find(f"{_SVG}title").text == "Risk & more"  # type: ignore[union-attr]
    texts = [one.text for one in drawn.iter(f"{_SVG}text")]
    assert {"rows, %", "wrong", "stack", "a & b <c>", "100", "8"} <= set(texts)
    first, second = drawn.iter(f"{_SVG}polyline")
    ends = [one.get("points", "").split()[-1].split(",") for one in (first, second)]
    assert ends[0][0] == ends[1][0]
    assert float(ends[0][1]) < float(ends[1][1])  # the larger value lies higher


def test_a_line_of_zeros_lies_on_the_axis() -> None:
    drawn = chart("none wrong", [Line("stack", [10, 100], [0, 0])], x_label="x", y_label="y")
    [line] = read(drawn).iter(f"{_SVG}polyline")
    tops = {point.split(",")[1] for point in line.get("points", "").split()}
    assert len(tops) == 1


def test_bars_are_as_long_as_their_values_and_show_an_interval() -> None:
    rows = [Bars("hybrid & more", [57.0], (50.0, 63.0)), Bars("dense", [28.5])]
    drawn = read(bars("Quality", rows, series=["nDCG"], label="%"))
    frame, first, second = drawn.iter(f"{_SVG}rect")
    assert frame.get("width") == "100%"
    assert float(first.get("width", "")) == pytest.approx(
        2 * float(second.get("width", "")), abs=0.2
    )
    texts = [one.text for one in drawn.iter(f"{_SVG}text")]
    assert {"Quality", "hybrid & more", "dense", "57", "28.5", "%"} <= set(texts)
    assert "nDCG" not in texts  # one series needs no legend
    assert len([one for one in drawn.iter(f"{_SVG}path") if one.get("stroke") == "#3c4048"]) == 1


def test_several_series_have_a_legend_and_colours_of_their_own() -> None:
    drawn = read(bars("Sizes", [Bars("a", [2, 1])], series=["before", "after"], label="bytes"))
    assert {"before", "after"} <= {one.text for one in drawn.iter(f"{_SVG}text")}
    colours = [one.get("fill") for one in drawn.iter(f"{_SVG}rect")][1:]
    assert colours[:2] == colours[2:]  # of the legend, and of the bars
    assert len(set(colours)) == 2

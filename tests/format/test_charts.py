"""Charts as SVG."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mica.format.charts import Box, Column, Dot, Series, Tile, bars, columns, lines, squarify, timeline, treemap

PARTS = (("named", "epoch"), ("used", "session"))
MARKUP = '<script>alert(1)</script>"&'
printable = st.text(max_size=20).map(lambda text: "".join(filter(str.isprintable, text)))


@given(st.lists(st.tuples(st.floats(-1e9, 1e9), st.floats(-1e9, 1e9)), max_size=30), printable)
@example([(0.0, 0.0), (5e-324, 5e-324)], "the smallest number there is")
@example([(1e9, -1e9), (1e9 + 1e-6, -1e9 + 1e-6)], "two values that no picture can tell apart")
def test_every_picture_is_well_formed(points: list[tuple[float, float]], name: str) -> None:
    """Any figures give a valid picture."""
    pictures = [
        lines(name, [Series(name=name, points=points), Series(name="b", points=points, dots=True)], across="x", up="y"),
        bars(name, [(name, abs(y)) for _, y in points], unit="tokens"),
    ]
    for svg in pictures:
        assert ElementTree.fromstring(svg).tag.endswith("svg")
        assert "nan" not in svg


@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 10**6)), max_size=12), printable)
def test_columns_are_well_formed_and_stay_in_the_picture(values: list[tuple[int, int, int]], name: str) -> None:
    weeks = [Column(label=name, parts=(named, used), line=known) for named, used, known in values]

    root = ElementTree.fromstring(columns(name, weeks, parts=PARTS, line=("known", "accent")))

    for rect in root.iter("{http://www.w3.org/2000/svg}rect"):
        assert float(rect.attrib["y"]) >= 0
        assert float(rect.attrib["y"]) + float(rect.attrib["height"]) <= 260


def test_the_axes_of_columns_end_at_round_numbers() -> None:
    weeks = [Column(label="a", parts=(3, 4), line=11)]

    texts = re.findall(r">([0-9]+)</text>", columns("Weeks", weeks, parts=PARTS, line=("known", "accent")))

    assert texts == ["0", "0", "3", "2", "6", "4", "9", "6", "12", "8"]


def test_a_timeline_has_one_dot_for_each_event_in_its_row() -> None:
    dots = [Dot(after_s=0.0, row=0, title="begin", kind="session"), Dot(after_s=90.0, row=2, title="end", kind="bad")]

    root = ElementTree.fromstring(timeline("Chain", dots, rows=["depth 0", "depth 1", "depth 2"]))

    first, last = root.iter("{http://www.w3.org/2000/svg}circle")
    assert float(first.attrib["cx"]) < float(last.attrib["cx"]) <= 520
    assert float(first.attrib["cy"]) < float(last.attrib["cy"])
    assert last.attrib["class"] == "fill bad"


@given(st.lists(st.floats(0.01, 1e6), min_size=1, max_size=60))
@example([983825.0, 0.01])  # the rest of the box is flatter than rounding is exact
def test_tiles_fill_the_box_by_their_values_and_do_not_overlap(values: list[float]) -> None:
    ordered = sorted(values, reverse=True)
    boxes = squarify(ordered, Box(0.0, 0.0, 960.0, 400.0))

    areas = [box.width * box.height for box in boxes]
    assert sum(areas) == pytest.approx(960 * 400)
    for value, area in zip(ordered, areas, strict=True):
        assert area == pytest.approx(value / sum(ordered) * 960 * 400, rel=1e-6)
    for box in boxes:
        assert -1e-6 <= box.x <= box.x + box.width <= 960 + 1e-6
        assert -1e-6 <= box.y <= box.y + box.height <= 400 + 1e-6


@pytest.mark.parametrize("values", [[], [0.0], [0.0, 0.0]])
def test_a_treemap_of_nothing_is_an_empty_picture(values: list[float]) -> None:
    svg = treemap("Files", [Tile(name="a", value=value) for value in values])

    assert "<rect" not in svg
    assert ElementTree.fromstring(svg).tag.endswith("svg")


def test_a_group_has_a_linked_header_and_its_children_inside() -> None:
    inner = (Tile(name="cart.py", value=3, shade=0.8), Tile(name="pricing.py", value=2))
    svg = treemap("Files", [Tile(name="shop", value=5, href="/map?folder=shop", children=inner)])

    root = ElementTree.fromstring(svg)
    assert root.attrib["role"] == "group"  # links inside an image are out of reach for screen readers
    assert [each.attrib["href"] for each in root.iter("{http://www.w3.org/2000/svg}a")] == ["/map?folder=shop"]
    kinds = [each.attrib["class"] for each in root.iter("{http://www.w3.org/2000/svg}rect")]
    assert kinds == ["group", "tile shaded", "tile"]


def test_texts_are_escaped() -> None:
    inside = (Tile(name=MARKUP, value=1, title=MARKUP),)
    drawn = [
        columns(MARKUP, [Column(label=MARKUP, parts=(1, 1), line=1)], parts=PARTS, line=(MARKUP, "accent")),
        timeline(MARKUP, [Dot(after_s=1.0, row=0, title=MARKUP, kind="bad")], rows=[MARKUP]),
        treemap(MARKUP, [Tile(name=MARKUP, value=1, href=MARKUP, children=inside)]),
        bars(MARKUP, [(MARKUP, 1.0)], unit=MARKUP),
    ]
    for svg in drawn:
        assert "<script" not in svg
        ElementTree.fromstring(svg)

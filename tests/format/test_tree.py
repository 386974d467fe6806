"""Flowcharts of chains, valid for every name."""

from __future__ import annotations

import html
import re

from hypothesis import given
from hypothesis import strategies as st

from mica.format.tree import EDGES_MAX, TEXT_CHARACTERS_MAX, flowchart
from mica.model.event import Context, Event
from mica.testing import build

# All that a chart may hold: a header, a style, nodes with a label of harmless characters and codes, edges.
LINE = re.compile(
    r"flowchart TD|    classDef failed stroke:#c00,stroke-width:2px|"
    r'    (n\d+|rest)\["(?P<label>(?:[A-Za-z0-9 ._/-]|#\d+;)*)"\](:::failed)?|    n\d+ --> n\d+'
)


def labels(chart: str) -> list[str]:
    """The visible labels of the nodes. Fails if a line is not valid Mermaid."""
    found = []
    for line in chart.splitlines():
        match = LINE.fullmatch(line)
        assert match, line
        if match["label"] is not None:
            found.append(html.unescape(re.sub(r"#(\d+);", r"&#\1;", match["label"])))
    return found


def test_a_chain_is_drawn_with_its_failures() -> None:
    """keeps: E-30"""
    root = build(1, "session.started", context=Context(agent="scout"))
    child = build(2, "tool.failed", parent=root, error=True)

    assert flowchart([root, child]) == (
        "flowchart TD\n"
        "    classDef failed stroke:#c00,stroke-width:2px\n"
        '    n1["session.started scout"]\n'
        '    n2["tool.failed agent"]:::failed\n'
        "    n1 --> n2\n"
    )


@given(st.lists(st.tuples(st.text(min_size=1, max_size=20), st.text(min_size=1, max_size=70)), max_size=5))
def test_hostile_names_stay_labels(names: list[tuple[str, str]]) -> None:
    """keeps: E-30"""
    chain: list[Event] = []
    for number, (name, agent) in enumerate(names, start=1):
        usable = re.sub(r"[\s*?\x00-\x1f]|[\ud800-\udfff]", "_", name)
        readable = re.sub(r"[\ud800-\udfff\x00-\x1f\x7f-\x9f]", "_", agent)
        parent = chain[-1] if chain else None
        chain.append(build(number, usable, parent=parent, context=Context(agent=readable)))

    shown = labels(flowchart(chain))

    assert len(shown) == len(chain)
    for event, label in zip(chain, shown, strict=True):
        if event.name.isascii() and event.name.isprintable():
            assert event.name in label


def test_special_characters_are_written_as_codes() -> None:
    name = 'style:x"]-->end;#35;`<b>&'
    chart = flowchart([build(1, name)])
    assert labels(chart) == [f"{name} agent"]
    assert ":x" not in chart


def test_a_chart_stays_within_the_limits_of_mermaid() -> None:
    root = build(1)
    long = [root, *(build(n, "x" * 200, parent=root) for n in range(2, 1_500))]
    hostile = [root, *(build(n, "ü" * 200, parent=root) for n in range(2, 400))]

    for chain in (long, hostile):
        chart = flowchart(chain)
        assert chart.count("-->") <= EDGES_MAX
        assert len(chart) <= TEXT_CHARACTERS_MAX + 100
        drawn = len(labels(chart)) - 1
        assert f"and {len(chain) - drawn} more" in chart

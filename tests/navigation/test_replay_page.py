"""The account of a replay, as people look at it."""

from __future__ import annotations

from datetime import UTC, datetime
from xml.etree import ElementTree

from hypothesis import example, given
from hypothesis import strategies as st

from mica.model.event import EventId
from mica.navigation.charts import Series, bars, lines
from mica.navigation.replay import Guess, Replay, Row, Spent, account
from mica.navigation.replay_page import charts, facts, page


def told(*nets: int, prompt: str = "mend it") -> Replay:
    rows = [
        Row(
            task=EventId(f"t{index}"),
            prompt=prompt,
            shape="fix",
            session="s1",
            at=datetime(2026, 3, 2, tzinfo=UTC),
            offered=(Guess(path="a.py", probability=0.5),),
            needed=("a.py",),
            named=False,
            spent=Spent(calls=2, searches=1, tokens=900, search_tokens=300, seconds=4, files=("a.py",), edits=True),
            cost_tokens=50,
            saved_tokens=50 + net,
            saved_generous=300,
            saved_calls=1,
            dollars=None,
            rank=1,
            found_10=1.0,
        )
        for index, net in enumerate(nets)
    ]
    return account(rows, [(0.5, True)] * len(rows), prices_at="2026-11-15")


def test_a_loss_is_on_the_page_like_a_gain() -> None:
    """TA-06: losses are listed too."""
    shown = page(told(-50, 250))
    assert '<td class="loss">-50' in shown
    assert '<td class="gain">+250' in shown
    assert "1 tasks gain, 1 lose" in shown


def test_what_a_prompt_says_stays_text() -> None:
    """TA-13: a prompt is data on the page, never markup."""
    shown = page(told(1, prompt="<script>alert(1)</script>"))
    assert "<script>" not in shown
    assert "&lt;script&gt;" in shown


def test_an_empty_history_has_an_honest_page() -> None:
    """TA-05: nothing is claimed where nothing was measured."""
    assert "nothing can be said" in page(told())
    assert "nothing to show yet" in charts(told())["net"]
    assert not any("dollar" in said.lower() for said in facts(told()))


@given(st.lists(st.tuples(st.floats(-1e9, 1e9), st.floats(-1e9, 1e9)), max_size=30), st.text(max_size=20))
@example([(0.0, 0.0), (5e-324, 5e-324)], "the smallest number there is")
@example([(1e9, -1e9), (1e9 + 1e-6, -1e9 + 1e-6)], "two values that no picture can tell apart")
def test_every_chart_is_well_formed(points: list[tuple[float, float]], name: str) -> None:
    """A-29: whatever the figures are, the picture can be read."""
    name = "".join(character for character in name if character.isprintable())
    drawn = [
        lines(name, [Series(name=name, points=points), Series(name="b", points=points, dots=True)], across="x", up="y"),
        bars(name, [(name, abs(y)) for _, y in points], unit="tokens"),
    ]
    for svg in drawn:
        assert ElementTree.fromstring(svg).tag.endswith("svg")
        assert "nan" not in svg

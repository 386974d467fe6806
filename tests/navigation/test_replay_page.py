"""A replay as charts and as an HTML page."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec

from mica.model.event import EventId
from mica.navigation.replay import Effort, Guess, Replay, ReplayTask, summarize
from mica.navigation.replay_page import describe, draw_charts, render_page


def replay_of(*nets: int, prompt: str = "mend it") -> Replay:
    rows = [
        ReplayTask(
            task=EventId(f"t{index}"),
            prompt=prompt,
            shape="fix",
            session="s1",
            at=datetime(2026, 3, 2, tzinfo=UTC),
            offered=(Guess(path="a.py", probability=0.5),),
            needed=("a.py",),
            named=False,
            spent=Effort(calls=2, searches=1, tokens=900, search_tokens=300, seconds=4, files=("a.py",), edits=True),
            cost_tokens=50,
            saved_tokens=50 + net,
            saved_generous=300,
            saved_calls=1,
            dollars=None,
            rank=1,
            recall_10=1.0,
        )
        for index, net in enumerate(nets)
    ]
    return summarize(rows, [(0.5, True)] * len(rows), prices_at="2026-11-15")


def test_the_page_shows_losses_and_gains() -> None:
    """keeps: TA-06. Losses are listed too."""
    shown = render_page(replay_of(-50, 250))
    assert '<td class="loss">-50' in shown
    assert '<td class="gain">+250' in shown
    assert "2 tasks (one for each prompt that led to work) took" in shown
    assert "in 2 searches; 1 task gains, 1 loses." in shown
    assert "They save 600 if a task whose files were all offered needs no search at all." in shown


def test_counts_of_one_are_grammatical() -> None:
    sentences = " ".join(describe(replay_of(1)))
    assert "1 task (a prompt) took " in sentences
    assert "in 1 search; 1 task gains, 0 lose." in sentences
    priced = describe(msgspec.structs.replace(replay_of(1), dollars=0.5, unpriced=1))
    assert any(sentence.endswith("; 1 task has no known price.") for sentence in priced)


def test_prompts_are_escaped_on_the_page() -> None:
    """A prompt is data on the page, never markup."""
    shown = render_page(replay_of(1, prompt="<script>alert(1)</script>"))
    assert "<script>" not in shown
    assert "&lt;script&gt;" in shown


def test_the_page_of_an_empty_history_claims_nothing() -> None:
    """keeps: TA-05. Without measurements there are no claims."""
    assert "there is nothing to measure" in render_page(replay_of())
    assert "nothing to show yet" in draw_charts(replay_of())["net"]
    assert not any("dollar" in sentence.lower() for sentence in describe(replay_of()))

"""The first look: what mica found, the next brief, recent sessions and health on one screen."""

from __future__ import annotations

import io
from pathlib import Path

from rich.console import Console

import mica
from mica.cli.first_look import FirstLook, first_look
from mica.cli.sample import transcripts
from mica.format.beliefs import summarize


async def drawn(memory: mica.Memory, *, advice: tuple[str, ...] = ()) -> str:
    console = Console(file=io.StringIO(), width=120)
    look = FirstLook(
        title="shop",
        overview=await memory.events.overview(),
        brief=await memory.brief(budget_tokens=600, is_preview=True),
        found=summarize(await memory.beliefs.in_force()),
        advice=advice,
    )
    console.print(first_look(look))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


async def test_the_first_look_answers_four_questions_in_order() -> None:
    async with mica.open(":memory:") as memory:
        await memory.clients.import_transcripts(sorted(transcripts().rglob("*.jsonl")), root=Path("/home/dev/shop"))
        await memory.beliefs.add("rule", "Always use uv run, never python directly")

        screen = await drawn(memory)

    questions = ["What mica found", "What the next agent will receive", "What happened lately", "Is all well?"]
    assert screen.startswith("shop  122 events since")
    assert sorted(questions, key=screen.index) == questions
    assert "Always use uv run, never python directly" in screen
    assert "auth/session.py" in screen
    assert "Yes. Nothing is waiting" in screen
    assert max(map(len, screen.splitlines())) <= 120


async def test_the_first_look_names_what_needs_attention() -> None:
    async with mica.open(":memory:") as memory:
        screen = await drawn(memory, advice=("3 hooks failed lately: `mica upkeep hooks status` shows why",))

    assert "→ 3 hooks failed lately" in screen
    assert "Nothing is waiting" not in screen


async def test_the_first_look_at_an_empty_space_says_why_it_is_empty() -> None:
    async with mica.open(":memory:") as memory:
        screen = await drawn(memory)

    assert screen.startswith("shop  0 events")
    assert "nothing yet: this space has no marks" in screen
    assert "No rules, decisions or open ends yet" in screen
    assert "What happened lately" not in screen

"""The first look: sessions, files and the next brief on one screen."""

from __future__ import annotations

import io
from pathlib import Path

from rich.console import Console

import mica
from mica.cli.first_look import first_look
from mica.cli.sample import transcripts
from mica.events.activity import Overview
from mica.model.brief import Brief


def drawn(seen: Overview, brief: Brief) -> str:
    console = Console(file=io.StringIO(), width=120)
    console.print(first_look("shop", seen, brief))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


async def test_the_first_look_shows_sessions_files_and_the_next_brief() -> None:
    async with mica.open(":memory:") as memory:
        await memory.clients.import_transcripts(sorted(transcripts().rglob("*.jsonl")), root=Path("/home/dev/shop"))

        screen = drawn(await memory.events.overview(), await memory.brief(budget_tokens=600, is_preview=True))

    assert screen.startswith("shop  121 events since")
    assert "What your agents did lately" in screen
    assert "auth/session.py" in screen
    assert "What the next agent would receive" in screen
    assert max(map(len, screen.splitlines())) <= 120


async def test_the_first_look_at_an_empty_space_says_why_it_is_empty() -> None:
    async with mica.open(":memory:") as memory:
        screen = drawn(await memory.events.overview(), await memory.brief(is_preview=True))

    assert screen.startswith("shop  0 events")
    assert "nothing yet: this space has no marks" in screen
    assert "What your agents did lately" not in screen

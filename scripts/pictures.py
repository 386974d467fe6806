"""Draw the pictures of the documentation from the bundled sample: `.venv/bin/python scripts/pictures.py`."""

from __future__ import annotations

import asyncio
import io
import re
import tempfile
from pathlib import Path

from rich.console import Console
from textual.widgets import OptionList

import mica
from mica.cli.view import first_look
from mica.crystals import LEVELS
from mica.observe.clients import claude_code
from mica.sample import transcripts
from mica.tui.app import Dashboard

WIDTH = 124
DOCS = Path(__file__).parent.parent / "docs"


async def draw() -> None:
    settings = mica.load_settings({"HOME": "/nonexistent"})
    async with mica.open(":memory:", settings=settings) as memory:
        await memory.import_transcripts(claude_code.find(transcripts()), root=Path("/home/dev/shop"))
        seen = await memory.overview()
        brief = await memory.brief(budget_tokens=600, deadline_s=5, is_preview=True)
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    console.print(first_look("sample", seen, brief))
    keep("first-look.svg", console.export_svg(title="mica up", unique_id="mica"))


def keep(name: str, picture: str) -> None:
    """The picture must look the same offline: the fonts it would fetch give way to the reader's own."""
    without_fonts = re.sub(r"@font-face \{.*?\}", "", picture, flags=re.DOTALL)
    (DOCS / name).write_text(without_fonts, encoding="utf-8")


async def draw_dashboard() -> None:
    settings = mica.load_settings({"HOME": "/nonexistent"})
    with tempfile.TemporaryDirectory() as folder:
        async with mica.open(Path(folder) / "shop.db", settings=settings) as memory:
            await drawn_dashboard(memory)


async def drawn_dashboard(memory: mica.Memory) -> None:
    await memory.import_transcripts(claude_code.find(transcripts()), root=Path("/home/dev/shop"))
    for level in LEVELS[:3]:
        await memory.crystallize(level=level)
    app = Dashboard(memory)
    async with app.run_test(size=(WIDTH, 36)) as pilot:
        while len(app.query_one("#recent", OptionList).options) == 0:
            await pilot.pause(0.05)
        await pilot.press("j", "j")
        await pilot.pause(0.5)
        picture = app.export_screenshot(title="mica tui")
    keep("tui.svg", re.sub(r"terminal-\d+", "mica", picture))


asyncio.run(draw())
asyncio.run(draw_dashboard())

"""Draw the pictures of the documentation from the bundled sample: `.venv/bin/python scripts/pictures.py`."""

from __future__ import annotations

import asyncio
import io
import re
from pathlib import Path

from rich.console import Console

import mica
from mica.cli.view import first_look
from mica.observe.clients import claude_code
from mica.sample import transcripts

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
    picture = console.export_svg(title="mica up", unique_id="mica")
    # The picture must look the same offline: the fonts it would fetch give way to the reader's own.
    without_fonts = re.sub(r"@font-face \{.*?\}", "", picture, flags=re.DOTALL)
    (DOCS / "first-look.svg").write_text(without_fonts, encoding="utf-8")


asyncio.run(draw())

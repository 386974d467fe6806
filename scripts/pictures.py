"""Draw the pictures of the documentation: `.venv/bin/python -m scripts.pictures`. Their content is made up."""

from __future__ import annotations

import asyncio
import io
import re
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import uvicorn
from playwright.async_api import async_playwright
from rich.console import Console
from tests.sample_work import work
from textual.widgets import OptionList

import mica
from mica.cli.first_look import FirstLook, first_look
from mica.cli.sample import transcripts
from mica.clients.claude_code import transcript as claude_code
from mica.format.beliefs import summarize
from mica.model.crystal import LEVELS
from mica.model.event import EventQuery, utc_now
from mica.tui.app import Dashboard
from mica.web.access import Access
from mica.web.app import application
from mica.web.memory_pool import MemoryPool
from mica.web.process import listen
from mica.web.tokens import SCOPES, TokenFile

WIDTH = 124
SETTLED = "() => [...document.querySelectorAll('.waiting')].every((each) => !each.checkVisibility())"
DOCS = Path(__file__).parent.parent / "docs"


async def draw() -> None:
    settings = mica.load_settings({"HOME": "/nonexistent"})
    async with mica.open(":memory:", settings=settings) as memory:
        await memory.clients.import_transcripts(claude_code.find(transcripts()), root=Path("/home/dev/shop"))
        look = FirstLook(
            title="sample",
            overview=await memory.events.overview(),
            brief=await memory.brief(budget_tokens=600, deadline_s=5, is_preview=True),
            found=summarize(await memory.beliefs.in_force()),
        )
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    console.print(first_look(look))
    save("first-look.svg", console.export_svg(title="mica up", unique_id="mica"))


def save(name: str, picture: str) -> None:
    """Save a picture without web fonts, so that it looks the same offline."""
    without_fonts = re.sub(r"@font-face \{.*?\}", "", picture, flags=re.DOTALL)
    (DOCS / name).write_text(without_fonts, encoding="utf-8")


async def draw_dashboard() -> None:
    settings = mica.load_settings({"HOME": "/nonexistent"})
    with tempfile.TemporaryDirectory() as folder:
        async with mica.open(Path(folder) / "shop.db", settings=settings) as memory:
            await save_dashboard(memory)


async def save_dashboard(memory: mica.Memory) -> None:
    await memory.clients.import_transcripts(claude_code.find(transcripts()), root=Path("/home/dev/shop"))
    for level in LEVELS[:3]:
        await memory.crystals.make(level=level)
    app = Dashboard(memory)
    async with app.run_test(size=(WIDTH, 36)) as pilot:
        while len(app.query_one("#recent", OptionList).options) == 0:
            await pilot.pause(0.05)
        await pilot.press("j", "j")
        await pilot.pause(0.5)
        picture = app.export_screenshot(title="mica server tui")
    save("tui.svg", re.sub(r"terminal-\d+", "mica", picture))


def browser() -> str:
    """Return the path of the Chromium that the tests use."""
    script = DOCS.parent / "scripts" / "browser"
    return subprocess.run([script], check=True, capture_output=True, text=True).stdout.strip()


async def draw_pages(chromium: str) -> None:
    """Take screenshots of the dashboard's pages for a made-up space."""
    with tempfile.TemporaryDirectory() as folder:
        settings = mica.load_settings({"HOME": folder, "MICA_SEMANTIC": "off"})
        pool = MemoryPool(Path(folder) / "shop.db", settings=settings)
        memory = await pool.memory()
        await work(memory, now=utc_now())
        await declare(memory)
        listening = listen("127.0.0.1", 0, home=settings.home)
        access = Access(TokenFile(settings.home), port=listening.getsockname()[1])
        config = uvicorn.Config(application(pool, access=access), log_config=None, ws="websockets-sansio")
        server = uvicorn.Server(config)
        serving = asyncio.create_task(server.serve([listening]))
        try:
            await photograph(memory, access, chromium)
        finally:
            server.should_exit = True
            await serving


async def declare(memory: mica.Memory) -> None:
    """Declare two sources that disagree, and one that is unavailable."""

    def unavailable(concept: object) -> object:
        raise ConnectionError("connection refused; is it running?")

    def source_of(value: str, text: str, confidence: float) -> Callable[[object], object]:
        at = utc_now().isoformat()
        fragment = {"key": "verdict", "text": text, "value": value, "confidence": confidence, "at": at}
        return lambda concept: [fragment]

    memory.sources.register(
        "reviews", source_of("yes", "Approved: the tests cover the redirect", 0.9), rank=10, concepts="judgment:*"
    )
    memory.sources.register(
        "board", source_of("no", "Rejected: the migration is missing", 0.7), rank=40, concepts="judgment:*"
    )
    memory.sources.register("builds", unavailable, rank=20, concepts="judgment:*")
    for number in range(3):
        await memory.sources.gather(f"judgment:code_review:{number}")


async def photograph(memory: mica.Memory, access: Access, chromium: str) -> None:
    address = f"http://127.0.0.1:{access.cookie.removeprefix('mica_')}"
    mark = (await memory.events.query(EventQuery(session="now", names=("mark",), limit=1)))[0]
    crystal = (await memory.crystals.list(level="session"))[-1]
    pictures = {
        "today": "/",
        "beliefs": "/beliefs",
        "crystals": "/crystals",
        "crystal": f"/crystals/{crystal.id}",
        "trails": "/admin/patterns",
        "event": f"/events/{mark.id}",
        "sources": "/sources?concept=judgment:code_review:1",
        "briefs": "/briefs",
        "health": "/status",
    }
    async with async_playwright() as playwright:
        opened = await playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        context = await opened.new_context(viewport={"width": 1280, "height": 860}, reduced_motion="reduce")
        page = await context.new_page()
        await page.goto(f"{address}/enter?key={access.new_key(SCOPES)}")

        async def shoot(name: str, path: str) -> None:
            await page.goto(address + path)
            await page.wait_for_function(SETTLED)
            if name == "crystals":
                for place in range(2):
                    await page.locator(".forest summary").nth(place).click()
                    await page.wait_for_function(SETTLED)
            if name == "map":
                await page.locator("#p-map").evaluate("(title) => title.scrollIntoView()")
            await page.wait_for_function("() => document.querySelector('[data-live]').dataset.state === 'live'")
            await page.screenshot(path=DOCS / f"dashboard-{name}.png")

        for name, path in pictures.items():
            await shoot(name, path)
        await page.emulate_media(color_scheme="dark")
        await shoot("map", "/admin/patterns")
        await page.emulate_media(color_scheme="light")
        await page.set_viewport_size({"width": 390, "height": 780})
        await shoot("phone", "/crystals")
        await opened.close()


asyncio.run(draw())
asyncio.run(draw_dashboard())
asyncio.run(draw_pages(browser()))

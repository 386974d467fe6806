"""Templates: times, texts, static files, problem pages."""

from __future__ import annotations

import html
import re
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import httpx2
import msgspec
import pytest
from tests.web.pages.dashboard import page

import mica
from mica.format.lines import ZONE, format_time, to_user_zone
from mica.model.event import EventQuery
from mica.settings import Settings
from mica.web.memory_pool import MemoryPool
from mica.web.pages.templates import FOLDER
from mica.web.views import today


@pytest.mark.parametrize("at", [datetime(9999, 12, 31, 23, 30, tzinfo=UTC), datetime(1, 1, 1, 0, 30, tzinfo=UTC)])
@pytest.mark.parametrize("zone", ["Asia/Tokyo", "America/New_York", "UTC"])
async def test_the_ends_of_the_calendar_are_shown_in_every_zone(at: datetime, zone: str) -> None:
    """keeps: K-46. An imported log may have any time; one that a zone cannot represent is shown in UTC."""
    token = ZONE.set(ZoneInfo(zone))
    try:
        async with mica.open(":memory:") as memory:
            memory.emit("session.started", context=mica.Context(session="odd"), at=at)
            day = await today.latest_day(memory, now=at)
        assert day is not None
        assert format_time(at)
        assert to_user_zone(at) == at
        assert to_user_zone(day.begins_at) <= to_user_zone(at)
    finally:
        ZONE.reset(token)


@pytest.mark.parametrize(
    ("zone", "name", "clock"), [("Asia/Kathmandu", "Asia/Kathmandu", "01:15:00 +0545"), ("UTC", "UTC", "19:30:00 UTC")]
)
async def test_times_are_shown_in_the_configured_zone(
    client: httpx2.AsyncClient, pool: MemoryPool, zone: str, name: str, clock: str
) -> None:
    """As on the command line; without the setting, the zone of this machine."""
    memory = await pool.memory()
    with memory.context(session="s1"):
        ref = memory.mark("The cookie is set before the redirect", at=datetime(2024, 11, 4, 19, 30, tzinfo=UTC))
    await memory.durable()
    pool.settings = msgspec.structs.replace(pool.settings, time_zone=zone)

    shown = await page(client, f"/events/{ref.id}")
    today = await page(client, "/today/happened")
    pool.settings = msgspec.structs.replace(pool.settings, time_zone=None)
    here = await page(client, "/")

    assert f"Times: {name}" in shown
    assert clock in shown
    assert ("Tuesday 5 November" if zone != "UTC" else "Monday 4 November") in today
    assert f"Times: {datetime.now().astimezone():%Z}, the server's" in html.unescape(here)


async def test_a_form_that_is_too_large_is_refused(client: httpx2.AsyncClient, memory: mica.Memory) -> None:
    mark = (await memory.events.query(EventQuery(names=("mark",), limit=1)))[0]

    answer = await client.post(f"/retract/{mark.id}", data={"reason": "x" * 100_000})

    assert (answer.status_code, "bytes" in answer.text) == (422, True)


async def test_only_files_of_the_static_folder_are_served(client: httpx2.AsyncClient) -> None:
    for path in ("mica.css", "mica.js", "icons.svg", "vendor/htmx-2.0.11.min.js", "fonts/inter.woff2"):
        assert (await client.get(f"/static/{path}")).status_code == 200
    for path in ("../app.py", "..%2fapp.py", "%2e%2e/app.py", "vendor/../../app.py"):
        assert (await client.get(f"/static/{path}")).status_code in (404, 400)


def test_pages_use_no_foreign_resources_and_no_inline_scripts() -> None:
    for template in (FOLDER / "templates").rglob("*.html"):
        text = template.read_text(encoding="utf-8")
        assert not re.search(r"(src|href|action)=\"(https?:)?//", text), template
        assert not re.search(r"<script(?![^>]*(src=|application/json))", text), template
        assert not re.search(r"\son[a-z]+=", text), template
        assert not re.search(r"\sstyle=", text), template
        assert "|safe" not in text, template


def test_static_files_are_small() -> None:
    for file in (FOLDER / "static").rglob("*"):
        assert not file.is_file() or file.stat().st_size < 1_500_000, file


async def test_links_keep_the_space_that_was_chosen(
    client: httpx2.AsyncClient, pool: MemoryPool, home: Settings, memory: mica.Memory
) -> None:
    async with mica.open(home.home / "spaces" / "other.db", settings=home) as other:
        other.mark("a mark of the other space", tags="finding")

    first = await page(client, "/crystals")
    second = await page(client, "/crystals?space=other")
    found = await page(client, "/events/rows?space=other")

    assert 'href="/events"' in first
    assert 'href="/events?space=other"' in second
    assert "/crystals/forest?space=other" in second
    assert "a mark of the other space" in found
    assert "space=other" in found
    assert "a mark of the other space" not in await page(client, "/events/rows")


async def test_a_refusal_is_a_page_for_browsers_and_a_document_for_programs(
    calling: object, client: httpx2.AsyncClient
) -> None:
    """keeps: U-09"""
    assert callable(calling)
    html = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}

    async with calling() as anonymous:
        person, program = await anonymous.get("/", headers=html), await anonymous.get("/")
    missing = await client.get("/<b>nowhere</b>", headers=html)

    assert person.status_code == program.status_code == 401
    assert person.headers["content-type"].startswith("text/html")
    assert "<code>mica server open</code>" in person.text
    assert person.headers["www-authenticate"] == program.headers["www-authenticate"]
    assert "script-src 'self'" in person.headers["content-security-policy"]
    assert program.headers["content-type"] == "application/problem+json"
    assert (missing.status_code, "Not found" in missing.text, "<b>" in missing.text) == (404, True, False)
    assert missing.text.lower().split("<body>")[1].count("not found") == 1
    assert "`" not in person.text, "commands are set as code"
    assert "<code>mica" in person.text

"""Pages over HTTP, without a browser: what they say, what they refuse, and that text stays text."""

from __future__ import annotations

import html
import json
import re
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import httpx2
import msgspec
import pytest

import mica
from mica.model.event import EventQuery, utc_now
from mica.settings import Settings
from mica.sources.protocol import Concept
from mica.testing.sample_work import work
from mica.testing.sources import declared
from mica.web.access import Access
from mica.web.memory_pool import House
from mica.web.pages.templates import FOLDER, PAGES

NOW = datetime.now(UTC)
SCRIPT = "<script>alert('x')</script><img src=x onerror=alert(1)> {{ 7 * 7 }}"
PARTS = (
    "/today/happened",
    "/today/open",
    "/today/next",
    "/today/worth",
    "/today/worth?period=day",
    "/today/figures",
    "/today/warnings",
    "/crystals/forest",
    "/crystals/forest?q=cookie",
    "/crystals/forest?q=%3F%21",
    "/crystals/crystallize",
    "/admin/patterns/hot",
    "/admin/patterns/map",
    "/admin/patterns/evolution",
    "/events/rows",
    "/events/rows?bundle=full&names=mark",
    "/briefs/list",
    "/briefs/arms",
    "/briefs/helped",
    "/sources/answered",
    "/sources/declared",
    "/sources/gathered?concept=judgment:code_review:1",
    "/status/space",
    "/status/errors",
    "/status/uncovered",
)


@pytest.fixture
async def memory(house: House) -> mica.Memory:
    """The server's own space, after some work."""
    opened = await house.memory()
    await work(opened, now=NOW, weeks=2)
    return opened


async def page(client: httpx2.AsyncClient, address: str) -> str:
    answer = await client.get(address, headers={"hx-request": "true"} if address in PARTS else {})
    assert answer.status_code == 200, (address, answer.text)
    assert answer.headers["content-type"].startswith("text/html")
    return answer.text


async def test_every_page_and_part_is_shown(client: httpx2.AsyncClient, memory: mica.Memory) -> None:
    """A-21, B-32."""
    crystal = (await memory.crystals(level="session"))[0]
    trail = (await memory.trails.list())[0]
    brief = (await memory.events(EventQuery(names=("brief",))))[0]
    of_one = [
        f"/crystals/{crystal.id}",
        f"/crystals/{crystal.id}/sources",
        f"/retract/{crystal.id}",
        f"/purge/{crystal.id}",
        f"/admin/patterns/{trail.key}",
        f"/admin/patterns/{trail.key}/drift",
        f"/events/{crystal.sources[0]}",
        f"/events/{crystal.sources[0]}/chain",
        f"/briefs/{brief.id}",
    ]

    for address in [*(address for address, *_ in PAGES), *PARTS, *of_one]:
        assert "This cannot be shown" not in await page(client, address)


async def test_every_page_of_an_empty_space_says_what_to_do(client: httpx2.AsyncClient) -> None:
    said = {address: await page(client, address) for address in [*PARTS, "/"]}

    for address, words in {
        "/": "mica import",
        "/today/open": "No session goes on",
        "/today/worth": "There is no interval yet",
        "/crystals/forest": "mica mark",
        "/crystals/forest?q=cookie": "Nothing answers",
        "/crystals/forest?q=%3F%21": "Nothing answers",
        "/admin/patterns/hot": "mica install",
        "/admin/patterns/map": "No file was opened yet",
        "/admin/patterns/evolution": "Nothing has evolved yet",
        "/events/rows": "No event yet",
        "/briefs/list": "mica brief",
        "/sources/answered": "No source was asked yet",
        "/sources/declared": "No source of yours is declared",
        "/status/space": "this space is empty",
    }.items():
        assert words in said[address], address


@pytest.mark.parametrize(
    ("zone", "said", "clock"), [("Asia/Kathmandu", "Asia/Kathmandu", "01:15:00 +0545"), ("UTC", "UTC", "19:30:00 UTC")]
)
async def test_times_are_those_of_the_zone_that_is_set_and_say_so(
    client: httpx2.AsyncClient, house: House, zone: str, said: str, clock: str
) -> None:
    """B-65: as on the command line; where none is set, those of this machine."""
    memory = await house.memory()
    with memory.context(session="s1"):
        ref = memory.mark("The cookie is set before the redirect", at=datetime(2024, 11, 4, 19, 30, tzinfo=UTC))
    await memory.durable()
    house.settings = msgspec.structs.replace(house.settings, time_zone=zone)

    shown = await page(client, f"/events/{ref.id}")
    today = await page(client, "/today/happened")
    house.settings = msgspec.structs.replace(house.settings, time_zone=None)
    here = await page(client, "/")

    assert f"Times: {said}" in shown
    assert clock in shown
    assert ("Tuesday 5 November" if zone != "UTC" else "Monday 4 November") in today
    assert f"Times: {datetime.now().astimezone():%Z}, the server's" in html.unescape(here)


async def test_today_tells_what_there_is_and_no_list_of_zeros(client: httpx2.AsyncClient, house: House) -> None:
    """Of a space with one mark: what was seen and what the next agent is told, then why there are no figures yet."""
    memory = await house.memory()
    with memory.context(session="s1", agent="me"):
        memory.mark("The cookie is set before the redirect")
    today, happened, worth = [await page(client, path) for path in ("/", "/today/happened", "/today/worth")]

    assert "1 session: 1 mark." in happened
    assert "0 prompts" not in happened
    assert ("No task was seen this week" in worth, "<table" in worth) == (True, False)
    assert today.index("/today/next") < today.index("/today/worth")
    assert "was offered nothing yet" in await page(client, "/today/figures")


async def test_the_source_that_the_empty_page_shows_works_as_it_stands(
    client: httpx2.AsyncClient, tmp_path: Path
) -> None:
    said = await page(client, "/sources/declared")
    shown = re.search(r"<pre>(.*?)</pre>", said, re.DOTALL)
    assert shown is not None
    with closing(sqlite3.connect(tmp_path / "reviews.db")) as connection, connection:
        connection.execute("CREATE TABLE reviews (id TEXT, verdict TEXT, note TEXT)")
        connection.execute("INSERT INTO reviews VALUES ('abc123', 'GROWL', 'no types')")

    sources = declared(html.unescape(shown[1]), folder=tmp_path)
    (found,) = await sources["reviews"].fragments(Concept.parse("judgment:code_review:abc123"), now=utc_now())
    await sources.close()

    assert (found.key, found.value, found.text) == ("verdict", "GROWL", "GROWL: no types")
    assert "mica/config.toml" in said


async def test_html_and_script_in_what_agents_say_stay_text(client: httpx2.AsyncClient, house: House) -> None:
    """U-10."""
    memory = await house.memory()
    with memory.context(session=f"s {SCRIPT}", agent=SCRIPT, task=SCRIPT):
        walk = memory.walk(SCRIPT, [{"path": f"a/{SCRIPT}.py", "operation": "read"}], outcome="success")
        for number in range(6):
            memory.mark(f"{SCRIPT} was seen {number} times, which is why it must be escaped", tags="question")
        memory.emit("custom", {"text": SCRIPT, "<b>key</b>": SCRIPT}, parent=walk, error=True)
        await memory.brief(SCRIPT, deadline_s=5)
        await memory.crystallize()
    brief = (await memory.events(EventQuery(names=("brief",))))[0]
    crystal = (await memory.crystals())[0]
    addresses = [
        *PARTS,
        "/",
        f"/events/{walk.id}",
        f"/events/{walk.id}/chain",
        f"/briefs/{brief.id}",
        f"/crystals/{crystal.id}",
        f"/crystals/{crystal.id}/sources",
        f"/crystals/forest?q={SCRIPT}",
        f"/events?names={SCRIPT}&session={SCRIPT}",
    ]

    for address in addresses:
        text = (await client.get(address)).text
        assert "<script>alert" not in text, address
        assert "<img" not in text, address
        assert " 49 " not in text, address
    assert "&lt;script&gt;alert" in (await client.get(f"/events/{walk.id}")).text


async def test_what_is_not_there_is_a_page_that_says_so(client: httpx2.AsyncClient) -> None:
    for address, words in {
        "/events/999": "999",
        "/crystals/999": "999",
        "/admin/patterns/none": "none",
        "/briefs/999": "999",
        "/?space=other": "other",
    }.items():
        answer = await client.get(address)
        assert (answer.status_code, words in answer.text) == (404, True), address
        assert "This cannot be shown" in answer.text


async def test_a_retraction_needs_a_reason_and_takes_a_mark_out_of_search(
    client: httpx2.AsyncClient, memory: mica.Memory
) -> None:
    """B-32."""
    mark = (await memory.search("accountants"))[0]

    refused = await client.post(f"/retract/{mark.id}", data={"reason": " "})
    done = await client.post(f"/retract/{mark.id}", data={"reason": "it was another shop"})

    assert (refused.status_code, "say why" in refused.text) == (422, True)
    assert done.status_code == 200
    assert "mica:crystal" in done.headers["hx-trigger"]
    assert mark.id not in {hit.id for hit in await memory.search("accountants")}


async def test_a_purge_asks_for_the_number_of_what_goes(client: httpx2.AsyncClient, memory: mica.Memory) -> None:
    """U-08."""
    mark = (await memory.events(EventQuery(names=("mark",), limit=1)))[0]

    asked = await client.get(f"/purge/{mark.id}")
    refused = await client.post(f"/purge/{mark.id}", data={"number": "1"})
    kept = await memory.event(mark.id)
    done = await client.post(f"/purge/{mark.id}", data={"number": f"#{mark.position}", "reason": "private"})

    assert "cannot be undone" in asked.text
    assert (refused.status_code, "nothing was removed" in refused.text) == (422, True)
    assert kept.name == "mark"
    assert done.status_code == 200
    assert (await memory.event(mark.id)).name == "event.purged"


async def test_a_purge_says_what_became_of_crystals(client: httpx2.AsyncClient, house: House) -> None:
    """K-53"""
    memory = await house.memory()
    with memory.context(session="s1"):
        refs = [
            memory.mark(
                f"The {word} cookie is set before the redirect, so the session of {word} is lost on every login"
            )
            for word in ("first", "second", "third", "fourth", "fifth", "sixth")
        ]
    await memory.crystallize()

    told = []
    for ref in refs[:2]:
        done = await client.post(f"/purge/{ref.id}", data={"number": str((await memory.event(ref)).position)})
        told.append(json.loads(done.headers["hx-trigger"])["mica:said"])

    [pool] = await memory.crystals()
    anew = "2 events purged; 1 crystal made anew of what is left"
    assert told == [anew, f"{anew}; session:s1 is no crystal any more (what is left of it is in {pool.period} now)"]


async def test_one_click_crystallizes_a_trail_and_another_suspends_it(
    client: httpx2.AsyncClient, memory: mica.Memory
) -> None:
    """A-21."""
    trail = next(each for each in await memory.trails.list(limit=None) if not each.version)

    named = await client.post(f"/admin/patterns/{trail.key}/crystallize", data={"slug": "by-hand"})
    refused = await client.post(f"/admin/patterns/{trail.key}/crystallize", data={"slug": "Not A Name"})
    suspended = await client.post(f"/admin/patterns/{trail.key}/suspend")

    assert named.status_code == suspended.status_code == 200
    assert (refused.status_code, "cannot be called" in refused.text) == (422, True)
    shown = await memory.trails.show("by-hand")
    assert (shown.version, shown.suspended) == (1, "suspended on the dashboard")
    await client.post(f"/admin/patterns/{trail.key}/resume")
    assert (await memory.trails.show("by-hand")).suspended is None


async def test_crystallizing_shows_first_what_would_be_made(client: httpx2.AsyncClient, memory: mica.Memory) -> None:
    """B-32."""
    with memory.context(session="later"):
        for number in range(6):
            memory.mark(f"The importer read file number {number} of the accountants, and took its time over it")
    before = len(await memory.crystals(limit=None))

    asked = await client.get("/crystals/crystallize")
    untouched = len(await memory.crystals(limit=None))
    done = await client.post("/crystals/crystallize")

    assert "importer" in asked.text
    assert untouched == before
    assert done.status_code == 200
    assert any("importer" in crystal.text for crystal in await memory.crystals(limit=None))


async def test_the_laws_are_checked_and_what_is_due_is_done_on_request(
    client: httpx2.AsyncClient, memory: mica.Memory
) -> None:
    laws = await client.post("/status/laws")
    ticked = await client.post("/status/tick")

    assert "All laws hold" in laws.text
    assert "crystallize" in ticked.headers["hx-trigger"]
    assert {work.kind for work in await memory.planned()} >= {"crystallize", "evolve"}


async def test_briefs_are_switched_off_and_on(client: httpx2.AsyncClient, memory: mica.Memory) -> None:
    """C-22."""
    off = await client.post("/briefs/switch", data={"on": "0"})
    told = await memory.brief("login")
    shown = await page(client, "/briefs/helped")
    on = await client.post("/briefs/switch", data={"on": "1"})

    assert off.status_code == on.status_code == 200
    assert told.text == ""
    assert "briefs are off" in shown
    assert await memory.briefs_are_on()


async def test_rows_after_a_position_are_only_the_new_ones(client: httpx2.AsyncClient, memory: mica.Memory) -> None:
    first = await client.get("/events/rows")
    memory.mark("just now", tags="finding")

    later = await client.get("/events/rows", params={"after": first.headers["mica-position"]})

    assert later.text.count("<tr") == 1
    assert "just now" in later.text
    assert int(later.headers["mica-position"]) == int(first.headers["mica-position"]) + 1


async def test_pages_need_a_token_and_a_foreign_origin_changes_nothing(
    calling: object, access: Access, memory: mica.Memory
) -> None:
    """U-09."""
    mark = (await memory.events(EventQuery(names=("mark",), limit=1)))[0]
    assert callable(calling)

    async with calling() as nobody, calling(access.tokens.make("t")[0], origin="http://evil.example") as foreign:
        for address, *_ in PAGES:
            assert (await nobody.get(address)).status_code == 401
        answer = await foreign.post(f"/purge/{mark.id}", data={"number": str(mark.position)})

    assert answer.status_code == 403
    assert (await memory.event(mark.id)).name == "mark"


async def test_a_token_of_one_space_sees_no_other(
    calling: object, access: Access, house: House, memory: mica.Memory
) -> None:
    """U-09."""
    assert callable(calling)

    async with calling(access.tokens.make("t", spaces=("elsewhere",))[0]) as client:
        answer = await client.get(f"/?space={house.default}")

    assert answer.status_code == 403
    assert "accountants" not in answer.text


async def test_a_form_that_is_too_large_is_refused(client: httpx2.AsyncClient, memory: mica.Memory) -> None:
    mark = (await memory.events(EventQuery(names=("mark",), limit=1)))[0]

    answer = await client.post(f"/retract/{mark.id}", data={"reason": "x" * 100_000})

    assert (answer.status_code, "bytes" in answer.text) == (422, True)


async def test_files_are_ours_and_nothing_outside_of_their_folder_is_served(client: httpx2.AsyncClient) -> None:
    for path in ("mica.css", "mica.js", "icons.svg", "vendor/htmx-2.0.11.min.js", "fonts/inter.woff2"):
        assert (await client.get(f"/static/{path}")).status_code == 200
    for path in ("../app.py", "..%2fapp.py", "%2e%2e/app.py", "vendor/../../app.py"):
        assert (await client.get(f"/static/{path}")).status_code in (404, 400)


def test_pages_fetch_nothing_from_elsewhere_and_have_no_script_of_their_own() -> None:
    for template in (FOLDER / "templates").rglob("*.html"):
        text = template.read_text(encoding="utf-8")
        assert not re.search(r"(src|href|action)=\"(https?:)?//", text), template
        assert not re.search(r"<script(?![^>]*(src=|application/json))", text), template
        assert not re.search(r"\son[a-z]+=", text), template
        assert not re.search(r"\sstyle=", text), template
        assert "|safe" not in text, template


def test_no_file_that_browsers_are_sent_is_large() -> None:
    for file in (FOLDER / "static").rglob("*"):
        assert not file.is_file() or file.stat().st_size < 1_500_000, file


async def test_links_keep_the_space_that_was_chosen(
    client: httpx2.AsyncClient, house: House, home: Settings, memory: mica.Memory
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


async def test_who_is_refused_reads_why_as_a_page_and_programs_as_a_document(
    calling: object, client: httpx2.AsyncClient
) -> None:
    """U-09."""
    assert callable(calling)
    html = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}

    async with calling() as nobody:
        person, program = await nobody.get("/", headers=html), await nobody.get("/")
    missing = await client.get("/<b>nowhere</b>", headers=html)

    assert person.status_code == program.status_code == 401
    assert person.headers["content-type"].startswith("text/html")
    assert "mica open" in person.text
    assert person.headers["www-authenticate"] == program.headers["www-authenticate"]
    assert "script-src 'self'" in person.headers["content-security-policy"]
    assert program.headers["content-type"] == "application/problem+json"
    assert (missing.status_code, "Nothing is here" in missing.text, "<b>" in missing.text) == (404, True, False)


@pytest.mark.parametrize("after", ["9" * 5_000, str(2**70), "-1", "²", "nonsense"])
async def test_an_impossible_position_shows_the_latest(client: httpx2.AsyncClient, house: House, after: str) -> None:
    (await house.memory()).mark("the only one")

    found = await client.get("/events/rows", params={"after": after})

    assert (found.status_code, "the only one" in found.text) == (200, True)


@pytest.mark.parametrize("path", [address for address, *_ in PAGES])
async def test_a_space_that_is_not_there_is_said_with_those_that_are(
    client: httpx2.AsyncClient, memory: mica.Memory, path: str
) -> None:
    answer = await client.get(f"{path}?space=nothere")

    assert answer.status_code == 404
    assert "There is no space &#39;nothere&#39; here" in answer.text
    assert f'<a href="{path}?space=shop">shop</a>' in answer.text
    assert 'href="/events"' in answer.text  # its links lead to a space that is there

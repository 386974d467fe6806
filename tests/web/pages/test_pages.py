"""All pages: shown, empty, escaped, behind a token."""

from __future__ import annotations

import httpx2
import pytest
from tests.web.pages.dashboard import PARTS, page

import mica
from mica.model.event import EventQuery
from mica.web.access import Access
from mica.web.memory_pool import MemoryPool
from mica.web.pages.templates import PAGES

SCRIPT = "<script>alert('x')</script><img src=x onerror=alert(1)> {{ 7 * 7 }}"


async def test_every_page_and_part_is_shown(client: httpx2.AsyncClient, memory: mica.Memory) -> None:
    """keeps: A-21, B-32"""
    crystal = (await memory.crystals.list(level="session"))[0]
    trail = (await memory.trails.list())[0]
    brief = (await memory.events.query(EventQuery(names=("brief",))))[0]
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
        f"/correct/{crystal.sources[0]}",
    ]

    for address in [*(address for address, *_ in PAGES), *PARTS, *of_one]:
        assert "This cannot be shown" not in await page(client, address)


async def test_every_page_of_an_empty_space_says_what_to_do(client: httpx2.AsyncClient) -> None:
    pages = {address: await page(client, address) for address in [*PARTS, "/"]}

    for address, words in {
        "/": "mica import",
        "/today/open": "No active session",
        "/today/found": "mica beliefs add",
        "/beliefs/list": "mica beliefs add",
        "/admin/patterns/worth": "There is no interval yet",
        "/crystals/forest": "mica mark",
        "/crystals/forest?q=cookie": "Nothing matches",
        "/crystals/forest?q=%3F%21": "Nothing matches",
        "/admin/patterns/hot": "mica install",
        "/admin/patterns/map": "No files opened yet",
        "/admin/patterns/evolution": "Nothing has evolved yet",
        "/events/rows": "No event yet",
        "/briefs/list": "mica brief",
        "/sources/answered": "No source was asked yet",
        "/sources/declared": "No sources declared",
        "/status/space": "this space is empty",
    }.items():
        assert words in pages[address], address


async def test_html_and_script_in_recorded_text_are_escaped(client: httpx2.AsyncClient, pool: MemoryPool) -> None:
    """keeps: U-10"""
    memory = await pool.memory()
    with memory.context(session=f"s {SCRIPT}", agent=SCRIPT, task=SCRIPT):
        walk = memory.trails.record(SCRIPT, [{"path": f"a/{SCRIPT}.py", "operation": "read"}], outcome="success")
        for number in range(6):
            memory.mark(f"{SCRIPT} was seen {number} times, which is why it must be escaped", tags="question")
        memory.emit("custom", {"text": SCRIPT, "<b>key</b>": SCRIPT}, parent=walk, error=True)
        await memory.brief(SCRIPT, deadline_s=5)
        await memory.crystals.make()
    brief = (await memory.events.query(EventQuery(names=("brief",))))[0]
    crystal = (await memory.crystals.list())[0]
    belief = await memory.beliefs.add("rule", f"Always {SCRIPT} the login page")
    addresses = [
        *PARTS,
        "/",
        "/beliefs",
        f"/beliefs/{belief.id}",
        f"/beliefs/{belief.id}/end",
        f"/correct/{belief.id}",
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


async def test_a_missing_event_trail_or_space_is_a_404_page(client: httpx2.AsyncClient) -> None:
    for address, words in {
        "/events/999": "999",
        "/crystals/999": "999",
        "/admin/patterns/none": "none",
        "/briefs/999": "999",
        "/beliefs/bxxxxxxxxxxxx": "bxxxxxxxxxxxx",
        "/?space=other": "other",
    }.items():
        answer = await client.get(address)
        assert (answer.status_code, words in answer.text) == (404, True), address
        assert "This cannot be shown" in answer.text


async def test_pages_need_a_token_and_a_foreign_origin_changes_nothing(
    calling: object, access: Access, memory: mica.Memory
) -> None:
    """keeps: U-09"""
    mark = (await memory.events.query(EventQuery(names=("mark",), limit=1)))[0]
    assert callable(calling)

    async with calling() as anonymous, calling(access.tokens.make("t")[0], origin="http://evil.example") as foreign:
        for address, *_ in PAGES:
            assert (await anonymous.get(address)).status_code == 401
        answer = await foreign.post(f"/purge/{mark.id}", data={"number": str(mark.position)})

    assert answer.status_code == 403
    assert (await memory.events.get(mark.id)).name == "mark"


async def test_a_token_of_one_space_sees_no_other(
    calling: object, access: Access, pool: MemoryPool, memory: mica.Memory
) -> None:
    """keeps: U-09"""
    assert callable(calling)

    async with calling(access.tokens.make("t", spaces=("elsewhere",))[0]) as client:
        answer = await client.get(f"/?space={pool.default}")

    assert answer.status_code == 403
    assert "accountants" not in answer.text


@pytest.mark.parametrize("path", [address for address, *_ in PAGES])
async def test_an_unknown_space_is_reported_with_a_list_of_spaces(
    client: httpx2.AsyncClient, memory: mica.Memory, path: str
) -> None:
    answer = await client.get(f"{path}?space=nothere")

    assert answer.status_code == 404
    assert "There is no space &#39;nothere&#39; here" in answer.text
    assert f'<a href="{path}?space=shop">shop</a>' in answer.text
    assert 'href="/events"' in answer.text  # links lead to an existing space

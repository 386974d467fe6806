"""The page Crystals."""

from __future__ import annotations

import json

import httpx2

import mica
from mica.model.event import EventQuery
from mica.web.memory_pool import MemoryPool


async def test_a_retraction_needs_a_reason_and_takes_a_mark_out_of_search(
    client: httpx2.AsyncClient, memory: mica.Memory
) -> None:
    """keeps: B-32"""
    mark = (await memory.search("accountants"))[0]

    refused = await client.post(f"/retract/{mark.id}", data={"reason": " "})
    done = await client.post(f"/retract/{mark.id}", data={"reason": "it was another shop"})

    assert (refused.status_code, "say why" in refused.text) == (422, True)
    assert done.status_code == 200
    assert "mica:crystal" in done.headers["hx-trigger"]
    assert mark.id not in {hit.id for hit in await memory.search("accountants")}


async def test_a_purge_needs_the_number_of_the_event(client: httpx2.AsyncClient, memory: mica.Memory) -> None:
    """keeps: U-08"""
    mark = (await memory.events.query(EventQuery(names=("mark",), limit=1)))[0]

    dialog = await client.get(f"/purge/{mark.id}")
    refused = await client.post(f"/purge/{mark.id}", data={"number": "1"})
    unchanged = await memory.events.get(mark.id)
    done = await client.post(f"/purge/{mark.id}", data={"number": f"#{mark.position}", "reason": "private"})

    assert "cannot be undone" in dialog.text
    assert (refused.status_code, "nothing was removed" in refused.text) == (422, True)
    assert unchanged.name == "mark"
    assert done.status_code == 200
    assert (await memory.events.get(mark.id)).name == "event.purged"


async def test_a_purge_reports_the_affected_crystals(client: httpx2.AsyncClient, pool: MemoryPool) -> None:
    """keeps: K-53"""
    memory = await pool.memory()
    with memory.context(session="s1"):
        refs = [
            memory.mark(
                f"The {word} cookie is set before the redirect, so the session of {word} is lost on every login"
            )
            for word in ("first", "second", "third", "fourth", "fifth", "sixth")
        ]
    await memory.crystals.make()

    notices = []
    for ref in refs[:2]:
        done = await client.post(f"/purge/{ref.id}", data={"number": str((await memory.events.get(ref)).position)})
        notices.append(json.loads(done.headers["hx-trigger"])["mica:notice"])

    [pooled] = await memory.crystals.list()
    remade = "2 events purged; 1 crystal made again from the remaining marks"
    assert notices == [
        remade,
        f"{remade}; session:s1 has no crystal any more (its other sources are in {pooled.period} now)",
    ]


async def test_crystallizing_shows_a_preview_first(client: httpx2.AsyncClient, memory: mica.Memory) -> None:
    """keeps: B-32"""
    with memory.context(session="later"):
        for number in range(6):
            memory.mark(f"The importer read file number {number} of the accountants, and took its time over it")
    before = len(await memory.crystals.list(limit=None))

    dialog = await client.get("/crystals/crystallize")
    untouched = len(await memory.crystals.list(limit=None))
    done = await client.post("/crystals/crystallize")

    assert "importer" in dialog.text
    assert untouched == before
    assert done.status_code == 200
    assert any("importer" in crystal.text for crystal in await memory.crystals.list(limit=None))

"""The page Beliefs."""

from __future__ import annotations

import httpx2
from tests.web.conftest import Calling
from tests.web.pages.dashboard import page

from mica.web.access import Access
from mica.web.memory_pool import MemoryPool

RULE = "Always use uv run, never python directly"
PART = {"hx-request": "true"}


async def test_the_page_shows_what_holds_by_kind_and_what_ended(client: httpx2.AsyncClient, pool: MemoryPool) -> None:
    """It is in the page itself, so it can be read without JavaScript."""
    memory = await pool.memory()
    await memory.beliefs.add("rule", RULE)
    gone = await memory.beliefs.add("task", "Write the migration")
    await memory.beliefs.end(gone, ending="done", reason="it is merged")

    shown = await page(client, "/beliefs")
    rules = await page(client, "/beliefs?kind=rule")

    assert shown.index("Rules") < shown.index(RULE) < shown.index("Ended") < shown.index("Write the migration")
    assert "it is merged" in shown
    assert RULE in rules
    assert "Write the migration" not in rules


async def test_the_history_of_a_belief_links_to_its_evidence(client: httpx2.AsyncClient, pool: MemoryPool) -> None:
    memory = await pool.memory()
    old = await memory.beliefs.add("decision", "We go with the unique index")
    new = await memory.beliefs.correct(old, "We go with a partial index")

    shown = await page(client, f"/beliefs/{new.id}")

    assert shown.index("We go with a partial index") < shown.index("We go with the unique index")
    assert f"/events/{old.evidence[0]}" in shown
    assert f"replaced by {new.id}" in shown


async def test_a_belief_is_corrected_confirmed_ended_and_added_by_forms(
    client: httpx2.AsyncClient, pool: MemoryPool
) -> None:
    memory = await pool.memory()
    rule = await memory.beliefs.add("rule", RULE)

    dialog = await client.get(f"/correct/{rule.id}", headers=PART)
    done = await client.post(f"/correct/{rule.id}", data={"text": "Always use uv run"}, headers=PART)
    [corrected] = await memory.beliefs.list()
    await client.post(f"/beliefs/{corrected.id}/confirm", headers=PART)
    [confirmed] = await memory.beliefs.list()
    await client.post(f"/beliefs/{corrected.id}/end", data={"reason": "uv is gone"}, headers=PART)
    await client.post("/beliefs/add", data={"kind": "fact", "text": "The queue holds 10 jobs"}, headers=PART)

    assert RULE in dialog.text
    assert "mica:belief" in done.headers["hx-trigger"]
    assert (corrected.text, confirmed.state) == ("Always use uv run", "settled")
    assert [each.text for each in await memory.beliefs.list()] == ["The queue holds 10 jobs"]


async def test_a_form_works_without_javascript(client: httpx2.AsyncClient, pool: MemoryPool) -> None:
    memory = await pool.memory()
    rule = await memory.beliefs.add("rule", RULE)

    done = await client.post(f"/beliefs/{rule.id}/confirm")

    assert (done.status_code, done.headers["location"]) == (303, f"/beliefs/{rule.id}")


async def test_both_sides_of_a_conflict_are_shown(client: httpx2.AsyncClient, pool: MemoryPool) -> None:
    memory = await pool.memory()
    with memory.context(session="s1", user="ann"):
        memory.mark("The timeout of the gateway is 30 seconds", tags=["fact"], origin="user")
    with memory.context(session="s2", user="ben"):
        memory.mark("The timeout of the gateway is 60 seconds", tags=["fact"], origin="user")
    held = await memory.beliefs.list()

    shown = await page(client, "/beliefs")

    assert {each.user for each in held} == {"ann", "ben"}
    assert all(each.conflicts for each in held)
    assert "2 beliefs" in shown
    assert shown.count("conflicts with") == 2


async def test_a_wrong_form_is_refused_with_a_message(client: httpx2.AsyncClient, pool: MemoryPool) -> None:
    memory = await pool.memory()
    rule = await memory.beliefs.add("rule", RULE)

    for address, fields, words in (
        (f"/correct/{rule.id}", {"text": " "}, "needs a text"),
        (f"/beliefs/{rule.id}/end", {"ending": "gone"}, "there is no ending"),
        ("/beliefs/add", {"kind": "law", "text": "x"}, "there is no kind"),
    ):
        refused = await client.post(address, data=fields, headers=PART)
        assert (refused.status_code, words in refused.text) == (422, True), address
    assert [each.text for each in await memory.beliefs.list()] == [RULE]


async def test_foreign_pages_and_readers_change_nothing(calling: Calling, access: Access, pool: MemoryPool) -> None:
    """keeps: U-09"""
    memory = await pool.memory()
    rule = await memory.beliefs.add("rule", RULE)
    token, reader = access.tokens.make("t")[0], access.tokens.make("r", scopes=("read",))[0]

    async with calling(token, origin="http://evil.example") as foreign, calling(reader) as reading:
        answers = [await each.post(f"/beliefs/{rule.id}/end", data={}) for each in (foreign, reading)]

    assert [answer.status_code for answer in answers] == [403, 403]
    assert [each.text for each in await memory.beliefs.list()] == [RULE]

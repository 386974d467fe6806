"""Interned words may contain any character."""

from __future__ import annotations

from mica.model.event import Context, EventQuery
from mica.testing import build
from mica.testing.postgres import LocalPostgres, opened


async def test_words_with_nul_read_back_equal(server: LocalPostgres) -> None:
    context = Context(session="s\0", agent="a\0b", user="\0", task="t\0", correlation="c\0", labels=(("k", "v\0"),))
    async with opened(server.address()) as store:
        await store.log.append(
            [build(1, "mark", {"text": "one\0two"}, context=context), build(2, context=Context(agent="a"))]
        )

        assert [
            event.context for event in await store.log.query(EventQuery(session="s\0", agent="a\0b", user="\0"))
        ] == [context]
        assert len(await store.chains.chain("c\0")) == 1
        assert await store.chains.agents() == ["a", "a\0b"]
        assert (await store.texts.postings(["two"])).by_term["two"][0].session == "s\0"

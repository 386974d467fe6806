"""Predicted files for callers that cannot wait: saved for the next process, read ahead, and deleted by a purge."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import cast

import msgspec
import pytest
from tests.navigation.shop import PROMPT, Shop

import mica
from mica.model.event import Event, EventQuery
from mica.navigation.engine.lookup_file import LookupFile, build_file
from mica.navigation.navigator import Navigator, past_file, saved_at
from mica.navigation.tree_index import index_file
from mica.settings import ObserveSettings
from mica.store.protocol import EventLog


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


@pytest.fixture
async def memory(shop: Shop) -> AsyncIterator[mica.Memory]:
    async with shop.open(observe=ObserveSettings(holdout=0.0)) as memory:
        await shop.work(memory)
        yield memory


@pytest.mark.parametrize("target", [":memory:", "postgres"])
async def test_the_files_of_a_brief_are_those_of_navigate_without_hooks(
    shop: Shop, target: str, request: pytest.FixtureRequest
) -> None:
    """The ranking is the same in every store, and new steps of the session count at once."""
    settings = msgspec.structs.replace(shop.settings, brief=msgspec.structs.replace(shop.settings.brief, deadline_s=30))
    address = request.getfixturevalue("server").address() if target == "postgres" else target

    async def files_line(memory: mica.Memory) -> str:
        with memory.context(session="new"):
            brief = await memory.brief(PROMPT)
        (passage,) = [each for each in brief.passages if each.source == "files"]
        assert passage.kind == "files for such a task"
        return passage.text

    async with mica.open(address, settings=settings, clock=shop.clock) as memory:
        shop.walk(memory)
        before = await files_line(memory)
        assert [part.partition(" (")[0].partition(":")[0] for part in before.split(", ")] == [
            place.path
            for place in await memory.navigate(PROMPT, root=shop.root, session="new")
            if place.path == "auth/session.py"  # a brief leaves out what was only used recently
        ]
        step = {"path": "billing/invoice.py", "operation": "read"}
        memory.trails.record("Look at the total", [step], session="new", at=shop.clock())
        assert "this session" not in before
        assert "billing/invoice.py (used in this session)" in await files_line(memory)


async def test_the_saved_history_serves_the_next_process_until_a_purge(
    shop: Shop, request: pytest.FixtureRequest
) -> None:
    """keeps: K-53.

    The file contains words of prompts. After a purge, even one during a read, no purged word remains.
    """
    address = request.getfixturevalue("server").address()
    async with mica.open(address, settings=shop.settings, clock=shop.clock) as memory:
        memory.emit("session.started", {"cwd": str(shop.root)})
        walk = memory.trails.record(
            PROMPT, [{"path": "auth/session.py", "operation": "read"}], session="s0", at=shop.clock()
        )
        shop.clock.move(hours=2)
        await memory.brief(PROMPT, deadline_s=30)
        file = past_file(shop.home, space=memory.space)

    assert b"cookie is lost" in file.read_bytes()
    async with mica.open(address, settings=shop.settings, clock=shop.clock) as memory:
        assert saved_at(file, generation=memory._store.purges.generation) is not None
        store = memory._store
        log = LogPurgedMeanwhile(store.log, purge=lambda: memory.purge(ids=[walk.id]))
        navigating = Navigator(cast(EventLog, log), store.trails, shop.root, space=store.space, home=shop.home)
        await navigating.save(file.with_name("other"), now=shop.clock())
        assert log.is_purged
        assert not [each for each in file.parent.iterdir() if b"cookie is lost" in each.read_bytes()]
        await navigating.save(file, now=shop.clock())
        assert saved_at(file, generation=(await memory._store.trails.learned_up_to()).generation) is not None
        assert b"cookie is lost" not in file.read_bytes()


class LogPurgedMeanwhile:
    """A log in which something is purged right after it was read."""

    def __init__(self, log: EventLog, *, purge: Callable[[], Awaitable[object]]) -> None:
        self._log = log
        self._purge = purge
        self.is_purged = False

    def __getattr__(self, name: str) -> object:
        return getattr(self._log, name)

    async def query(self, query: EventQuery) -> list[Event]:
        events = await self._log.query(query)
        if not self.is_purged:
            self.is_purged = True
            await self._purge()
        return events


@pytest.mark.parametrize("target", ["file", "postgres"])
async def test_a_purge_by_another_process_removes_a_files_reasons(
    shop: Shop, target: str, request: pytest.FixtureRequest
) -> None:
    """keeps: K-53. This holds even if this process has read the history and written nothing since."""
    address = request.getfixturevalue("server").address() if target == "postgres" else shop.root.parent / "other.db"
    elsewhere = msgspec.structs.replace(
        shop.settings, home=shop.root.parent / "elsewhere"
    )  # with a separate data folder

    async def files_line(memory: mica.Memory) -> str:
        brief = await memory.brief("The cookie is lost after a login redirect", deadline_s=30, is_preview=True)
        return "".join(each.text for each in brief.passages if each.source == "files")

    async with (
        mica.open(address, settings=shop.settings, clock=shop.clock) as memory,
        mica.open(address, settings=elsewhere, clock=shop.clock) as other,
    ):
        memory.emit("session.started", {"cwd": str(shop.root)})
        step = {"path": "auth/session.py", "operation": "read"}
        first, second = (
            memory.trails.record(prompt, [step], session=prompt, at=shop.clock())
            for prompt in (PROMPT, "Look around here")
        )
        shop.clock.move(hours=2)
        assert "similar task" in await files_line(memory)
        await other.purge(ids=[first.id])
        assert "cookie" not in await files_line(memory)

        file = past_file(shop.home, space=memory.space)
        await memory.navigate(PROMPT, root=shop.root)
        assert b"Look around" in file.read_bytes()
        await other.purge(ids=[second.id])
        memory.emit("more", {})
        await memory.events.query()
        assert not file.exists()


async def test_a_command_starts_no_background_read(shop: Shop, request: pytest.FixtureRequest) -> None:
    """A command uses saved files of any age. `mica upkeep tick` saves them; a search never reads the log for them."""
    address = request.getfixturevalue("server").address()

    async def files_line(*, reads_ahead: bool) -> str:
        opening = mica.open(address, settings=shop.settings, clock=shop.clock, reads_ahead=reads_ahead)
        async with opening as memory:
            brief = await memory.brief(PROMPT, deadline_s=30, is_preview=True)
            await memory.search("What became of auth/session.py?")
            return next(each.kind for each in brief.passages if each.source == "files")

    async with mica.open(address, settings=shop.settings, clock=shop.clock) as memory:
        memory.emit("session.started", {"cwd": str(shop.root)})
        memory.trails.record(PROMPT, [{"path": "auth/session.py", "operation": "read"}], session="s0", at=shop.clock())
        memory.mark("auth/session.py renews the cookie")
        shop.clock.move(hours=2)
        await memory.search("What became of auth/session.py?")
        file = past_file(shop.home, space=memory.space)

    assert not file.exists()
    assert await files_line(reads_ahead=False) == "files used for such prompts"
    assert not file.exists()
    async with mica.open(address, settings=shop.settings, clock=shop.clock, reads_ahead=False) as memory:
        await memory.upkeep.tick()
    saved = file.read_bytes()
    shop.clock.move(hours=2)
    assert await files_line(reads_ahead=False) == "files for such a task"
    assert file.read_bytes() == saved
    assert await files_line(reads_ahead=True) == "files for such a task"
    assert file.read_bytes() != saved


async def test_a_brief_of_the_past_ranks_files_as_navigate_did(shop: Shop) -> None:
    """The answer as of a time equals the answer at that time, without anything learned since."""

    def files(brief: mica.Brief) -> list[tuple[str, str]]:
        return [(each.kind or "", each.text) for each in brief.passages if each.source == "files"]

    async with mica.open(":memory:", settings=shop.settings, clock=shop.clock) as memory:
        shop.walk(memory)
        then, original = shop.clock(), await memory.brief(PROMPT, deadline_s=30)
        shop.clock.move(hours=2)
        for number in range(6):
            step = {"path": "auth/redirect.py", "operation": "read"}
            memory.trails.record(PROMPT, [step], session=f"later{number}", at=shop.clock())
            shop.clock.move(hours=2)

        back, now = await memory.brief(PROMPT, at=then), await memory.brief(PROMPT, deadline_s=30)

    assert files(original)[0][0] == "files for such a task"
    assert files(back) == files(original) != files(now)


async def test_a_repeated_search_does_not_rank_again(shop: Shop) -> None:
    """The files of a question are cached while neither the saved history nor the saved tree changes."""
    target = shop.root.parent / "other.db"
    async with mica.open(target, settings=shop.settings, clock=shop.clock) as memory:
        memory.emit("session.started", {"cwd": str(shop.root)})
        memory.trails.record(PROMPT, [{"path": "auth/session.py", "operation": "read"}], session="s0", at=shop.clock())
        memory.mark("auth/session.py renews the cookie")
        shop.clock.move(hours=2)
        await memory.navigate(PROMPT, root=shop.root)
        tree = index_file(shop.home, space=memory.space, root=shop.root)

    async with mica.open(target, settings=shop.settings, clock=shop.clock) as memory:

        async def is_raised(query: str) -> bool:
            return any("files" in hit.parts for hit in await memory.search(query))

        assert await is_raised("session cookie")
        written = tree.stat()
        with tree.open("rb") as file:
            names = [("names.name", key, raw) for key, raw in LookupFile(file.fileno()).raws("names.name")]
        tree.write_bytes(build_file(names))  # without the tables that ranking needs
        os.utime(tree, ns=(written.st_atime_ns, written.st_mtime_ns))
        assert await is_raised("session cookie")
        assert not await is_raised("cookie session")
        os.utime(tree, ns=(written.st_atime_ns, written.st_mtime_ns + 1))
        assert not await is_raised("session cookie")

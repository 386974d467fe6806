"""What is purged while sources are asked is not shown, and every doubt is named."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

import mica
from mica.errors import StoreUnavailable
from mica.model.event import Ref
from mica.navigation.places import RankFiles
from mica.settings import Settings
from mica.sources.pipeline import PURGED_MEANWHILE, PURGES_UNKNOWN
from mica.sources.protocol import Fragment, Question
from mica.store.protocol import EventLog, TrailTable
from mica.testing import HandClock

SECRET = "vault-NeedleInTheHay"


async def test_text_purged_while_a_brief_is_made_is_not_shown(memory: mica.Memory, clock: HandClock) -> None:
    """keeps: U-08.

    The brief is made again from the rest; if every attempt meets a purge, it shows nothing from the log.
    """
    secret = memory.mark(f"{SECRET} broke the login")
    memory.mark("The login works again")
    going: list[Ref] = [secret]

    async def purging(concept: object) -> list[object]:
        for each in going[:1]:
            going.remove(each)
            await memory.purge(ids=[each.id])
            clock.move(seconds=1)
        return []

    assert SECRET in (await memory.brief("login")).text
    memory.sources.register("purging", purging, is_live=True, concepts="service:*", timeout_s=60)

    once = await memory.brief("login", concept="service:app:login")
    going += [memory.mark(f"Old thing {number}") for number in range(9)]
    always = await memory.brief("login", concept="service:app:login")

    assert SECRET not in once.text
    assert "The login works again" in once.text
    assert "The login works again" not in always.text
    assert always.missing == dict.fromkeys(["log", "mica"], PURGED_MEANWHILE)


async def test_purged_text_is_not_shown_after_the_deadline(
    tmp_path: Path, home: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """keeps: U-08. The purge check runs even then, so a busy machine brings nothing back."""
    path, loop = tmp_path / "space.db", asyncio.get_running_loop()
    real, is_read = loop.time, asyncio.Event()
    async with mica.open(path, settings=home) as memory, mica.open(path, settings=home) as other:
        memory.mark(f"{SECRET} broke the login")
        assert SECRET in (await memory.brief("login")).text
        marks = memory.sources._own[1]

        class Marks:
            declared = marks.declared

            async def fragments(self, question: Question) -> Sequence[Fragment]:
                fragments = await marks.fragments(question)
                is_read.set()
                return fragments

            async def close(self) -> None:
                """Release nothing."""

        async def purging(concept: object) -> list[object]:
            await is_read.wait()
            await other.purge(value=SECRET)
            monkeypatch.setattr(loop, "time", lambda: real() + 3_600)
            return []

        memory.sources._own[1] = Marks()
        memory.sources.register("purging", purging, is_live=True, concepts="service:*", timeout_s=60)
        brief = await memory.brief("login", concept="service:app:login", is_preview=True)  # which stores nothing

    assert SECRET not in brief.text
    assert brief.missing.keys() & {"log", "marks"}


async def test_a_brief_shows_nothing_from_the_log_if_the_purge_check_fails(
    tmp_path: Path, home: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """keeps: U-08. Statements of other systems are shown, and the omission is named."""
    at = datetime(2026, 1, 5, tzinfo=UTC)

    async def away() -> None:
        raise StoreUnavailable("the disk is away")

    async with mica.open(tmp_path / "space.db", settings=home) as memory:
        memory.mark("Somebody broke the login")
        memory.sources.register("app", lambda concept: [Fragment(key="state", text="It is up", source="app", at=at)])
        assert "broke" in (await memory.brief("login", concept="service:app:login")).text
        monkeypatch.setattr(memory._store.trails, "learned_up_to", away)
        gathered = await memory.sources.gather("service:app:login")
        brief = await memory.brief("login", concept="service:app:login")

    assert "broke" not in gathered.injection + brief.text
    assert "It is up" in gathered.injection
    assert "It is up" in brief.text
    assert gathered.missing == {"mica": PURGES_UNKNOWN}
    assert brief.missing == dict.fromkeys(["log", "mica"], PURGES_UNKNOWN)


async def test_a_brief_of_the_past_is_made_again_after_a_purge(
    memory: mica.Memory, clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """keeps: U-08. It is made from a copy of the log, and the second copy is made after the purge."""
    secret = memory.mark(f"{SECRET} broke the login")
    memory.mark("The login works again")
    clock.move(seconds=1)
    rank, going = memory.briefs._rank_past, [secret]

    @asynccontextmanager
    async def purging(log: EventLog, trails: TrailTable, at: datetime) -> AsyncIterator[RankFiles]:
        for each in going[:1]:
            going.remove(each)
            await memory.purge(ids=[each.id])
        async with rank(log, trails, at) as ranked:
            yield ranked

    monkeypatch.setattr(memory.briefs, "_rank_past", purging)
    brief = await memory.brief("login", at=clock())

    assert going == []
    assert SECRET not in brief.text
    assert "The login works again" in brief.text
    assert brief.missing == {}

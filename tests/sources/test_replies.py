"""Cached replies: fresh until their age or an event says otherwise."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from pathlib import Path

import msgspec
import pytest
from tests.sources.gated_source import GatedSource

import mica
from mica import Memory
from mica.settings import Settings
from mica.sources.judgments import JudgmentSource
from mica.sources.protocol import (
    Concept,
    SourceDeclaration,
)
from mica.sources.replies import FIBONACCI, ttl_s
from mica.testing import HandClock

CONCEPT = "judgment:code_review:abc123"


@pytest.fixture
def given_up_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Judgments have half a second of the 30 s that all others have, however busy the machine is."""
    monkeypatch.setattr(JudgmentSource, "declared", msgspec.structs.replace(JudgmentSource.declared, time_share=0.02))


def _hang_judgments(memory: Memory) -> _Hung:
    """Let the source of judgments wait for a store that does not answer."""
    source = memory.sources.all["judgments"]
    assert isinstance(source, JudgmentSource)
    source._stored = hung = _Hung()
    return hung


class _Hung:
    """A flush that never ends."""

    is_asked = False

    async def __call__(self) -> None:
        self.is_asked = True
        await asyncio.Event().wait()


@pytest.mark.usefixtures("given_up_soon")
async def test_a_retracted_judgment_does_not_replace_a_late_answer(memory: Memory) -> None:
    """keeps: C-15, C-17. An old reply may replace it, but not a retracted one."""
    wrong = memory.sources.judge(CONCEPT, "GROWL", confidence=0.9)
    assert "GROWL" in (await memory.sources.gather(CONCEPT, deadline_s=1_000)).injection
    _hang_judgments(memory)

    await memory.retract(wrong.id, reason="it was the wrong branch")
    answer = await memory.sources.gather(CONCEPT)

    assert "GROWL" not in answer.injection
    # A gather in the background, which the judgment started, may have stored an empty reply after the retraction.
    assert [*answer.missing, *(each.source for each in answer.degraded)] == ["judgments"]


@pytest.mark.usefixtures("given_up_soon")
@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
async def test_a_retracted_judgment_is_not_read_from_the_cache_of_another_process(
    request: pytest.FixtureRequest, tmp_path: Path, home: Settings, engine: str
) -> None:
    """keeps: C-15. A reply cached by another process is not used after the retraction."""
    target = tmp_path / "space.db" if engine == "sqlite" else request.getfixturevalue("server").address()
    async with mica.open(target, settings=home) as memory:
        wrong = memory.sources.judge(CONCEPT, "GROWL", confidence=0.9)
        assert "GROWL" in (await memory.sources.gather(CONCEPT, deadline_s=1_000)).injection
        await memory.sources._replies.close()  # saves it
        _hang_judgments(memory)
        await memory.retract(wrong.id, reason="it was the wrong branch")
    async with mica.open(target, settings=home) as other:
        hung = _hang_judgments(other)

        answer = await other.sources.gather(CONCEPT)

        assert hung.is_asked
        assert "GROWL" not in answer.injection
        assert (answer.degraded, list(answer.missing)) == ((), ["judgments"])


async def test_a_changed_file_is_read_again_even_if_another_process_cached_it(home: Settings, tmp_path: Path) -> None:
    """keeps: K-24. Replies are cached for minutes, but never longer than the file stays unchanged."""
    file = tmp_path / "mood.json"
    table: dict[str, object] = {"driver": "json", "path": str(file), "fragment": {"key": "mood", "text": "{mood}"}}
    settings = msgspec.structs.replace(home, sources={"rb": table})

    def write(mood: str, *, written_s: int) -> None:
        file.write_text(json.dumps({"mood": mood}))
        os.utime(file, (written_s, written_s))

    async with (
        mica.open(tmp_path / "space.db", settings=settings) as one,
        mica.open(tmp_path / "space.db", settings=settings) as other,
    ):
        write("good", written_s=1_000)
        assert "good" in (await one.sources.gather("state:self:now", deadline_s=5)).injection
        assert (await one.sources.gather("state:self:now", deadline_s=5)).cached == ("rb",)  # it did not change

        write("grim", written_s=2_000)  # no longer than before

        for memory in (one, other):
            told = await memory.sources.gather("state:self:now", deadline_s=5)
            assert ("grim" in told.injection, told.missing, told.degraded) == (True, {}, ())
        write("calm", written_s=3_000)
        assert "calm" in (await one.brief(concept="state:self:now", deadline_s=5)).text
    write("warm", written_s=4_000)
    async with mica.open(tmp_path / "space.db", settings=settings) as later:
        assert "warm" in (await later.sources.gather("state:self:now", deadline_s=5)).injection


async def test_a_file_on_a_hung_disk_delays_no_other_source(
    home: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """keeps: TC-03, C-09. A thread checks whether it changed, before a cached reply is used and before it is read."""
    file, back = tmp_path / "mood.json", threading.Event()
    file.write_text('{"mood": "good"}')
    os.utime(file, (1_000, 1_000))
    table: dict[str, object] = {"driver": "json", "path": str(file), "fragment": {"key": "mood", "text": "{mood}"}}
    settings = msgspec.structs.replace(home, sources={"rb": table})
    real, came_back = Path.stat, []

    def hang(path: Path, *, follow_symlinks: bool = True) -> os.stat_result:
        if path == file:
            came_back.append(back.wait(60))
        return real(path, follow_symlinks=follow_symlinks)

    async with mica.open(tmp_path / "space.db", settings=settings) as memory:
        await memory.sources.gather("state:self:now", deadline_s=10)
        monkeypatch.setattr(Path, "stat", hang)
        known = await memory.sources.gather("state:self:now", deadline_s=2)
        other = await memory.sources.gather("state:self:other", deadline_s=2)
        waited_for = len(came_back)
        back.set()

    assert waited_for == 0
    assert [each.source for each in known.degraded] == ["rb"]
    assert "good" in known.injection
    assert "no answer" in other.missing["rb"]


@pytest.fixture(params=["sqlite", "postgres"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A space that several processes share."""
    if request.param == "sqlite":
        return str(tmp_path / "shared.db")
    return str(request.getfixturevalue("server").address())


async def until(memory: Memory, source: GatedSource, count: int) -> None:
    """Ask until a source was asked so often: events of others are heard soon, not at once."""
    while len(source.asked) < count:
        await memory.sources.gather(CONCEPT)
        await asyncio.sleep(0.01)


async def test_a_reply_is_used_until_it_expires(memory: Memory, clock: HandClock) -> None:
    """keeps: C-04"""
    app, live = GatedSource("app", ttl_s=100), GatedSource("live", is_live=True)
    memory.sources.add(app)
    memory.sources.add(live)

    await memory.sources.gather(CONCEPT)
    clock.move(seconds=50)
    second = await memory.sources.gather(CONCEPT)
    clock.move(seconds=50)
    third = await memory.sources.gather(CONCEPT)

    assert ("app" in second.cached, "live" in second.cached, "app" in third.cached) == (True, False, False)
    assert (len(app.asked), len(live.asked)) == (2, 3)


@pytest.mark.parametrize(
    ("domain", "minutes"), [("judgment", 21), ("learning", 34), ("pattern", 55), ("psychology", 13), ("else", 8)]
)
def test_replies_expire_after_fibonacci_minutes_by_domain(domain: str, minutes: int) -> None:
    """keeps: C-11, C-27, K-24. A source may set its own duration."""
    concept = Concept(domain, "x", "1")

    assert ttl_s(SourceDeclaration(name="app"), concept) == minutes * 60
    assert minutes in FIBONACCI
    assert ttl_s(SourceDeclaration(name="app", ttl_s=5), concept) == 5
    assert ttl_s(SourceDeclaration(name="app", is_live=True, ttl_s=5), concept) == 0


async def test_an_ageing_reply_is_refreshed_in_the_background(home: Settings, clock: HandClock) -> None:
    async with mica.open(":memory:", settings=home, clock=clock) as memory:
        app = GatedSource("app", ttl_s=100)
        memory.sources.add(app)
        await memory.sources.gather(CONCEPT)
        clock.move(seconds=70)
        app.value = 9090

        answer = await memory.sources.gather(CONCEPT)
        while (await memory.sources.gather(CONCEPT)).fragments[0].value != 9090:
            await asyncio.sleep(0)

        assert answer.fragments[0].value == 8080
        assert "app" in answer.cached


async def test_an_old_reply_replaces_a_failed_answer_and_is_labelled(memory: Memory, clock: HandClock) -> None:
    """keeps: TC-08, C-17. The label gives the reason and the age."""
    app = GatedSource("app", ttl_s=60)
    memory.sources.add(app)
    await memory.sources.gather(CONCEPT)
    clock.move(minutes=5)
    app.error = RuntimeError("down")

    answer = await memory.sources.gather(CONCEPT)

    assert [(each.source, each.reason, each.age_s) for each in answer.degraded] == [("app", "RuntimeError: down", 300)]
    assert "- stale: app is represented by its reply from 5 min ago (RuntimeError: down)" in answer.injection
    assert answer.is_degraded
    assert answer.fragments[0].value == 8080


async def test_an_event_named_by_a_source_expires_its_replies_at_once(memory: Memory) -> None:
    """keeps: K-24. This happens before the event is stored, for the concept it names or for all."""
    app = GatedSource("app", invalidated_by=("deploy.*",))
    memory.sources.add(app)
    for concept in ("a:b:1", "a:b:2"):
        await memory.sources.gather(concept)

    memory.emit("deploy.done", {"concept": "a:b:1"})
    for concept in ("a:b:1", "a:b:2"):
        await memory.sources.gather(concept)
    assert app.asked == ["1", "2", "1"]

    memory.emit("deploy.done", {"concept": "a:*"})
    await memory.sources.gather("a:b:2")
    memory.emit("deploy.done")
    await memory.sources.gather("a:b:2")
    memory.emit("something.else")
    await memory.sources.gather("a:b:2")
    assert app.asked == ["1", "2", "1", "2", "2"]


async def test_an_event_during_a_call_expires_its_reply(memory: Memory) -> None:
    app = GatedSource("app", invalidated_by=("deploy.done",))
    app.gate.clear()
    memory.sources.add(app)
    asking = asyncio.ensure_future(memory.sources.gather(CONCEPT))
    while not app.asked:
        await asyncio.sleep(0)
    memory.emit("deploy.done")
    await memory.events.position()
    app.gate.set()
    await asking

    await memory.sources.gather(CONCEPT)

    assert len(app.asked) == 2


@pytest.mark.parametrize(
    ("name", "about"),
    [
        ("judgment.made", {"concept": CONCEPT}),
        ("judgment.withdrawn", {}),
        ("learning.updated", {"concept": "judgment:*"}),
        ("session.ended", {}),
        ("quality.degraded", {}),
    ],
)
async def test_every_trigger_expires_replies(home: Settings, name: str, about: dict[str, object]) -> None:
    """keeps: TC-08, C-15"""
    async with mica.open(":memory:", settings=home) as memory:
        app = GatedSource()
        memory.sources.add(app)
        await memory.sources.gather(CONCEPT)

        memory.emit(name, about)
        answer = await memory.sources.gather(CONCEPT)

        assert "app" not in answer.cached
        assert len(app.asked) == 2


async def test_a_reply_is_shared_through_the_store_until_an_event_expires_it(
    address: str, home: Settings, clock: HandClock
) -> None:
    """keeps: C-24. Invalidation works across processes."""
    here, there = (
        GatedSource("app", invalidated_by=("deploy.done",)),
        GatedSource("app", invalidated_by=("deploy.done",)),
    )
    async with mica.open(address, settings=home, clock=clock) as first:
        first.sources.add(here)
        await first.sources.gather(CONCEPT)
    async with mica.open(address, settings=home, clock=clock) as second:
        second.sources.add(there)
        answer = await second.sources.gather(CONCEPT)
        assert (answer.fragments[0].value, "app" in answer.cached, there.asked) == (8080, True, [])

        async with mica.open(address, settings=home, clock=clock) as third:
            third.emit("deploy.done")
            await third.events.position()
        await until(second, there, 1)

    async with mica.open(address, settings=home, clock=clock) as fourth:
        again = GatedSource("app", invalidated_by=("deploy.done",), rank=11)
        fourth.sources.add(again)
        await fourth.sources.gather(CONCEPT)
        assert len(again.asked) == 1, "a source that is declared otherwise is another"


async def test_a_reply_older_than_an_event_is_expired_for_a_new_process(
    address: str, home: Settings, clock: HandClock
) -> None:
    async with mica.open(address, settings=home, clock=clock) as first:
        first.sources.add(GatedSource("app", invalidated_by=("deploy.done",)))
        await first.sources.gather(CONCEPT)
    async with mica.open(address, settings=home, clock=clock) as second:
        second.emit("deploy.done")
    async with mica.open(address, settings=home, clock=clock) as third:
        app = GatedSource("app", invalidated_by=("deploy.done",))
        third.sources.add(app)

        await third.sources.gather(CONCEPT)

        assert len(app.asked) == 1


async def test_a_purge_reaches_cached_replies(address: str, home: Settings, clock: HandClock) -> None:
    """keeps: U-08. It reaches this process, the store and other processes."""
    async with (
        mica.open(address, settings=home, clock=clock) as first,
        mica.open(address, settings=home, clock=clock) as second,
    ):
        sources = GatedSource("app"), GatedSource("app")
        for memory, app in zip((first, second), sources, strict=True):
            memory.sources.add(app)
            await memory.sources.gather(CONCEPT)
        secret = first.mark("the code word is Ararat")

        await first.purge(ids=[secret.id])

        await first.sources.gather(CONCEPT)
        assert len(sources[0].asked) == 2
        await until(second, sources[1], len(sources[1].asked) + 1)


async def test_a_query_after_an_event_gets_no_older_answer(memory: Memory) -> None:
    """keeps: K-24. This holds even while an earlier caller still waits."""
    app = GatedSource("app", 1, invalidated_by=("deploy.done",))
    app.gate.clear()
    memory.sources.add(app)
    early = asyncio.ensure_future(memory.sources.gather(CONCEPT))
    while not app.asked:
        await asyncio.sleep(0)

    memory.emit("deploy.done", {})
    late = asyncio.ensure_future(memory.sources.gather(CONCEPT))
    while len(app.asked) < 2 and not late.done():
        await asyncio.sleep(0)
    app.gate.set()
    await asyncio.gather(early, late)

    assert len(app.asked) == 2
    assert "app" in (await memory.sources.gather(CONCEPT)).cached


async def test_an_answer_from_before_a_purge_is_not_cached(memory: Memory) -> None:
    """keeps: U-08. It may contain purged text."""
    app = GatedSource("app")
    app.gate.clear()
    memory.sources.add(app)
    early = asyncio.ensure_future(memory.sources.gather(CONCEPT))
    while not app.asked:
        await asyncio.sleep(0)
    secret = memory.mark("the code word is Ararat")

    await memory.purge(ids=[secret.id])
    app.gate.set()
    await early

    assert "app" not in (await memory.sources.gather(CONCEPT)).cached
    assert len(app.asked) == 2


async def test_a_reply_of_an_earlier_declaration_is_not_used(address: str, tmp_path: Path) -> None:
    """keeps: K-24. A corrected path is read at once, not when the old reply expires."""
    declared = tmp_path / "home/.config/mica/config.toml"
    declared.parent.mkdir(parents=True)
    for said in ("old", "new"):
        (tmp_path / f"{said}.json").write_text(f'[{{"key": "port", "text": "{said}"}}]')
        declared.write_text(f'[sources.app]\ndriver = "json"\npath = "{tmp_path / said}.json"\nttl_s = 600\n')
        settings = mica.load_settings({"HOME": str(tmp_path / "home"), "MICA_BRIEF_DEADLINE_S": "30"})
        async with mica.open(address, settings=settings) as memory:
            answer = await memory.sources.gather(CONCEPT)

        assert [each.text for each in answer.fragments] == [said]

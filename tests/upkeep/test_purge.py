"""Purge through the public API, on every engine: removed and retained events, later arrivals, and residue on disk."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from pathlib import Path

import apsw
import pytest
from tests.residue import residue

import mica
from mica.errors import InvalidInput, UnknownEvent
from mica.events.log_export import record_export
from mica.events.segment import DAMAGED
from mica.model.event import Appended, Event, EventQuery, Ref
from mica.settings import Settings
from mica.sources.protocol import Fragment, Question
from mica.testing import HandClock
from mica.testing.builders import START_AT

SECRET = "vault-NeedleInTheHay"
LONG_S = 1_000  # a deadline that no busy machine misses


async def names(memory: mica.Memory) -> list[str]:
    return [event.name for event in await memory.events.query(EventQuery(limit=None))]


# -- Selection ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("conditions", "purged"),
    [
        ({"value": SECRET}, {2, 4, 5}),
        ({"session": "s1"}, {1, 2}),
        ({"agent": "scout"}, {2, 3}),
        ({"user": "ann"}, {3}),
        ({"since": START_AT + timedelta(seconds=3)}, {3, 4, 5}),
        ({"until": START_AT + timedelta(seconds=3)}, {1, 2}),
        ({"session": "s1", "agent": "scout"}, {2}),
        ({"ids": ["#1", 4]}, {1, 4}),
        ({"ids": [1, 2, 3], "value": SECRET}, {2}),
        ({"value": "nowhere"}, set()),
    ],
)
async def test_a_purge_takes_events_that_match_every_condition(
    memory: mica.Memory, clock: HandClock, conditions: dict[str, object], purged: set[int]
) -> None:
    """keeps: K-53, U-08"""
    recorded: list[tuple[dict[str, str], dict[str, object]]] = [
        ({"session": "s1"}, {"n": 1}),
        ({"session": "s1", "agent": "scout"}, {"text": f"use {SECRET}!"}),
        ({"agent": "scout", "user": "ann"}, {"n": 3}),
        ({}, {"n": SECRET.lower()}),
        ({"session": SECRET}, {"n": 5}),
    ]
    for where, data in recorded:
        clock.move(seconds=1)
        with memory.context(**where):  # type: ignore[arg-type]  # labels are texts, too
            memory.emit("it.happened", data)
    clock.move(seconds=1)

    tried = await memory.purge(**conditions, dry_run=True)  # type: ignore[arg-type]  # one table for all kinds
    assert (tried.events, tried.record) == (len(purged), None)
    assert await names(memory) == ["it.happened"] * 5
    done = await memory.purge(**conditions, reason="leaked")  # type: ignore[arg-type]

    events = await memory.events.query(EventQuery(names=("it.happened", "event.purged"), limit=None))
    assert {event.position for event in events if event.name == "event.purged"} == purged
    assert {event.id for event in events if event.name == "event.purged"} == set(done.ids)
    assert await memory.upkeep.verify() == []


async def test_the_record_of_a_purge_does_not_contain_the_purged_text(memory: mica.Memory) -> None:
    """keeps: TE-16.

    A reference resolves to content or to a tombstone with its reason; the record says who, when and why.
    """
    with memory.context(session="s1"):
        leaked = memory.emit("it.happened", {"key": SECRET})
    with memory.context(agent="keeper"):
        done = await memory.purge(value=SECRET, reason="leaked key")

    assert done.record is not None
    record = await memory.events.get(done.record)
    assert record.name == "log.purged"
    assert record.data == {"conditions": ["value"], "events": 1, "reason": "leaked key"}
    assert (record.context.agent, record.origin) == ("keeper", "user")
    [tombstone] = (await memory.events.resolve([leaked])).events
    assert tombstone.data == {"purge": done.record, "reason": "leaked key"}
    assert await memory.search("key") == []


async def test_a_user_who_purges_all_their_own_events_is_not_named(memory: mica.Memory) -> None:
    with memory.context(user="ann"):
        memory.emit("it.happened")
        done = await memory.purge(user="ann")

    assert done.record is not None
    assert (await memory.events.get(done.record)).context.user is None
    assert (await memory.purge(user="ann", dry_run=True)).events == 0


async def test_records_of_purges_and_exports_outlive_a_purge_by_time(memory: mica.Memory, tmp_path: Path) -> None:
    (tmp_path / "some.jsonl").touch()
    record_export(memory._log, tmp_path / "some.jsonl", events=0)
    memory.emit("it.happened")
    await memory.purge(value="nowhere")

    assert (await memory.purge(since=START_AT)).events == 1
    assert await names(memory) == ["log.exported", "event.purged", "log.purged", "log.purged"]


async def test_a_default_reason_may_contain_the_purged_value(memory: mica.Memory) -> None:
    memory.emit("it.happened", {"text": "a hand"})
    assert (await memory.purge(value="hand")).events == 1


NOBODY = "00000000000000000000000000-0000000000000001"


@pytest.mark.parametrize(
    ("conditions", "message"),
    [
        ({}, "nothing is selected, and a purge never removes everything"),
        ({"value": ""}, "the value to purge is ''"),
        ({"value": " \n"}, "would match nearly everything"),
        ({"session": ""}, "the session to purge is ''"),
        ({"value": "x" * 10_001}, "10,001 characters; give 10,000 or fewer"),
        ({"since": START_AT, "until": START_AT}, "is not before until"),
        ({"since": START_AT + timedelta(1), "until": START_AT}, "is not before until"),
        ({"since": START_AT.replace(tzinfo=None)}, "has no time zone"),
        ({"value": "key", "reason": "my key"}, "the reason contains the content to purge"),
        ({"value": "key", "reason": " "}, "must have 1 to 200 characters"),
        ({"value": "key", "reason": "x" * 201}, "must have 1 to 200 characters"),
        ({"ids": ["nonsense"]}, "'nonsense' is not an event id"),
        ({"ids": "12"}, r"ids is '12', a single string; pass a list: ids=\['12'\]"),
        ({"value": 5}, "the value to purge is 5, which is no text"),
        ({"session": b"s1"}, "which is no text"),
        ({"since": "yesterday"}, "since is 'yesterday', which is not a time"),
        ({"until": 5}, "until is 5, which is not a time"),
        ({"value": "key", "reason": 5}, "the reason 5 is not a string"),
    ],
)
async def test_an_impossible_purge_is_refused(memory: mica.Memory, conditions: dict[str, object], message: str) -> None:
    memory.emit("it.happened", {"key": "key"})
    with pytest.raises(InvalidInput, match=message):
        await memory.purge(**conditions)  # type: ignore[arg-type]  # that is the point
    assert await names(memory) == ["it.happened"]


@pytest.mark.parametrize("unknown", [NOBODY, "99", "#99"])
async def test_an_unknown_id_is_refused_and_nothing_is_purged(memory: mica.Memory, unknown: str) -> None:
    event = memory.emit("it.happened")
    with pytest.raises(UnknownEvent, match=unknown):
        await memory.purge(ids=[event, unknown])
    assert await names(memory) == ["it.happened"]


# -- Later arrivals ------------------------------------------------------------------------------------------


async def test_a_purged_value_is_recognized_later_in_any_spelling(memory: mica.Memory, clock: HandClock) -> None:
    """keeps: U-08, K-53. Only its digest is stored; it matches as whole words."""
    await memory.purge(value="Ann Lee")
    for text in ("Ann Lee", "for Ann Lee.", "(Ann Lee)", "by:Ann Lee", '{"name":"Ann Lee"}', "-Ann Lee"):
        memory.emit("it.happened", {"list": [{text: 1}]})
    with memory.context(user="Ann Lee"):
        memory.emit("it.happened")
    for text in ("Ann  Lee", "ann Lee", "AnnLee", "ANN-LEE!", "Ａｎｎ Ｌｅｅ", "see ann_lee."):
        memory.emit("it.happened", {"text": text})
    for text in ("JoAnn Lee", "Ann Le", "Ann Leeward", "lee ann"):
        memory.emit("it.happened", {"text": text})
    clock.move(seconds=1)
    memory.emit("it.happened", {"text": "Ann Lee again"})

    assert await names(memory) == ["log.purged"] + ["event.purged"] * 13 + ["it.happened"] * 5
    tried = await memory.purge(value="Ann Lee", dry_run=True)
    assert (tried.events, {each.text for each in tried.inside}) == (1, {"JoAnn Lee", "Ann Leeward"})
    assert (await memory.purge(value="Ann Lee", anywhere=True)).events == 3


async def test_a_preview_lists_every_spelling_with_its_neighbours_and_what_stays(memory: mica.Memory) -> None:
    """keeps: K-53. Issue 18. Text that contains the value only inside of longer words stays, and is named."""
    texts = [f"ssh {SECRET} now", f"then {SECRET}, again", f"{SECRET.upper()}!", f"scp {SECRET}-backup there"]
    for number, text in enumerate(texts):
        memory.emit("it.happened", {"text": text, "more": [f"{number} {SECRET}."] if number < 2 else []})

    tried = await memory.purge(value=SECRET, dry_run=True)
    everywhere = await memory.purge(value=SECRET, anywhere=True, dry_run=True)
    done = await memory.purge(value=SECRET)

    assert [(each.text, each.events) for each in tried.matches] == [(SECRET, 2), (SECRET.upper(), 1)]
    assert set(tried.matches[0].around) < {*texts[:2], f"0 {SECRET}.", f"1 {SECRET}."}
    assert len(tried.matches[0].around) == 3
    assert tried.spellings == {SECRET: 2, SECRET.upper(): 1}
    [inside] = tried.inside
    assert (inside.text, inside.events, inside.around) == (f"{SECRET}-backup", 1, (texts[3],))
    assert (tried.events, everywhere.events, everywhere.inside) == (3, 4, ())
    assert {each.text for each in everywhere.matches} == {SECRET, SECRET.upper(), f"{SECRET}-backup"}
    assert (done.events, done.matches, done.inside) == (3, (), ())
    left = await memory.events.query(EventQuery(names=("it.happened",)))
    assert [event.data["text"] for event in left] == [texts[3]]
    assert await memory.upkeep.verify() == []


async def test_a_damaged_segment_with_a_longer_name_stays(home: Settings, clock: HandClock, tmp_path: Path) -> None:
    """keeps: K-53. Segments are searched by the same rule, in every spelling."""
    async with mica.open(tmp_path / "space.db", settings=home, clock=clock) as memory:
        folder = tmp_path / "space.db-segments" / "another"
        folder.mkdir(parents=True)
        hit, packed, other = (folder / f"{number}.segment{DAMAGED}" for number in range(3))
        hit.write_bytes(b"\x93" + f'{{"text":"see \\n{SECRET.lower()}\\n"}}'.encode() + b"\0")
        packed.write_bytes(b"\x93\xd9A" + SECRET.encode() + b"\xa1")
        other.write_bytes(b"\x93" + f"{SECRET}-backup".encode() + b"\0")

        done = await memory.purge(value=SECRET)

        assert sorted(done.removed) == [str(hit), str(packed)]
        assert other.exists()


async def test_a_short_value_matches_only_as_written(memory: mica.Memory) -> None:
    """keeps: K-53. Another spelling of three letters is another word."""
    for text in ("a-b", "A-B", "ab", "see a-b"):
        memory.emit("it.happened", {"text": text})
    with pytest.raises(InvalidInput, match="fewer than 4 characters, so it may match much that is not meant"):
        await memory.purge(value="a-b")
    assert (await memory.purge(value="a-b", really=True)).events == 2


async def test_the_record_of_a_purge_is_not_purged_by_its_number(memory: mica.Memory) -> None:
    """keeps: K-53. Tombstones refer to it; nothing else is purged with it by mistake."""
    event = memory.emit("tool.ran", {"text": SECRET})
    other = memory.emit("tool.ran", {"text": "another"})
    purged = await memory.purge(ids=[event.id])
    record = await memory.events.get(purged.record or "")

    for dry_run in (True, False):
        with pytest.raises(InvalidInput, match=f"{record.number} records a purge and cannot be purged"):
            await memory.purge(ids=[other.id, record.id], dry_run=dry_run)

    assert await memory.events.get(record.id) == record
    assert (await memory.events.get(other.id)).data == {"text": "another"}


async def test_a_purged_value_may_be_marked_again_once_allowed(memory: mica.Memory, clock: HandClock) -> None:
    """keeps: K-53. The refusal names the command that lifts it; the purged events stay purged."""
    memory.mark("The login page is slow")
    late = clock()
    purged = await memory.purge(value="login", reason="not to be spoken of")
    clock.move(minutes=1)
    refusals = [
        ("the Login flow was rewritten", "Login"),
        ("so we log in, and wait", "log in"),
    ]
    for text, word in refusals:
        with pytest.raises(InvalidInput) as refused:
            memory.mark(text)
        assert str(refused.value).startswith(f"'{word}' was purged on ")
        assert f"(not to be spoken of; record {purged.record})" in str(refused.value)
        assert str(refused.value).endswith(f"`mica purge --allow {word if word == 'Login' else repr(word)}`")
    for other in ("log", "the login page", "cookies"):
        with pytest.raises(InvalidInput, match=r"no purge of the value .* is in force here"):
            await memory.upkeep.allow(other)

    assert await memory.upkeep.allow("LOGIN") == [purged.record]

    for text, _ in refusals:
        memory.mark(text)
    brief = await memory.brief("login flow")
    assert "Login flow" in brief.text
    assert (await memory.events.get(brief.receipt or "")).name == "brief"
    memory.emit("tool.ran", {"text": "the login failed"}, at=late)
    assert (await names(memory)).count("event.purged") == 2
    assert await memory.upkeep.verify() == []
    with pytest.raises(InvalidInput, match="no purge of the value 'login' is in force here"):
        await memory.upkeep.allow("login")
    await memory.purge(value="login")
    with pytest.raises(InvalidInput, match="'Login' was purged"):
        memory.mark(refusals[0][0])


async def test_a_mark_that_repeats_purged_text_is_refused(memory: mica.Memory, clock: HandClock) -> None:
    """keeps: K-53. The refusal gives the reason and covers other spellings; plain events are not refused."""
    await memory.purge(value="Ann Lee", reason="left the company")
    clock.move(seconds=1)
    for text in ("Ann Lee was right", "see ann_lee"):
        with pytest.raises(InvalidInput, match="left the company"):
            memory.mark(text)
    memory.mark("JoAnn was right")
    memory.emit("it.happened", {"text": "Ann Lee"})
    assert await names(memory) == ["log.purged", "mark", "it.happened"]


async def test_purged_text_cannot_be_a_name_or_a_reason(memory: mica.Memory, clock: HandClock) -> None:
    """keeps: K-53. This covers names of epochs and trees, and reasons for retracting, promoting and withdrawing."""
    root = memory.mark("The cookie is set before the redirect, so the session is lost on every login")
    for word in ("first", "second", "third", "fourth", "fifth"):
        memory.mark(f"The {word} cookie is set before the redirect, so the session of {word} is lost", parent=root)
    judged = memory.sources.judge("judgment:code_review:fair", "GROWL", confidence=0.9)
    [tree] = await memory.crystals.make(tree=root.id)
    await memory.crystals.promote(tree.id, by="ann")
    await memory.purge(value="Ann Lee", reason="left the company")
    clock.move(seconds=1)
    before = await memory.events.position()

    for attempt in (
        lambda: memory.crystals.make(level="epoch", label="Ann Lee"),
        lambda: memory.crystals.make(tree=root.id, label="of ann_lee"),
        lambda: memory.crystals.commit(
            [("It is lost", [root.id])], period="session:s1", sources=[root.id], label="Ann Lee"
        ),
        lambda: memory.crystals.promote(tree.id, by="ann lee"),
        lambda: memory.crystals.promote(tree.id, reason="Ann Lee says so"),
        lambda: memory.crystals.withdraw(tree.id, reason="Ann Lee says so"),
        lambda: memory.retract(tree.id, reason="Ann Lee says so"),
        lambda: memory.retract(judged.id, reason="Ann Lee says so"),
    ):
        with pytest.raises(InvalidInput, match="left the company"):
            await attempt()

    assert await memory.events.position() == before


async def test_purged_text_does_not_return_through_a_receipt(memory: mica.Memory, clock: HandClock) -> None:
    """keeps: U-08, K-53. A receipt is made from earlier reads, however new it is."""
    await memory.purge(value="Ann Lee")
    clock.move(seconds=1)
    memory.emit("defrag", {"fragments": [{"text": "see ann_lee"}]}, origin="recalled")
    memory.emit("prompt.offered", {"text": "Ann Lee"}, origin="recalled")
    memory.emit("brief", {"text": "JoAnn Lee"}, origin="recalled")
    memory.emit("it.happened", {"text": "Ann Lee"})

    assert await names(memory) == ["log.purged", "event.purged", "event.purged", "brief", "it.happened"]


@pytest.mark.parametrize("by", ["value", "ids"])
async def test_a_gather_that_began_before_a_purge_brings_nothing_back(
    memory: mica.Memory, clock: HandClock, by: str
) -> None:
    """keeps: U-08. Its receipt is written after the purge, from data read before it."""
    queried, purged = asyncio.Event(), asyncio.Event()

    async def slow(concept: object) -> list[object]:
        queried.set()
        await purged.wait()
        return []

    judged = memory.sources.judge("judgment:code_review:fair", "GROWL", confidence=0.9, reasons=[SECRET])
    await memory.sources.gather("judgment:code_review:fair")
    memory.sources.register("slow", slow, is_live=True, timeout_s=60)  # a purge is slow on a busy machine
    gathering = asyncio.ensure_future(memory.sources.gather("judgment:code_review:fair"))
    await queried.wait()
    await memory.purge(**({"value": SECRET} if by == "value" else {"ids": [judged]}))
    clock.move(seconds=1)
    purged.set()

    assert SECRET not in (await gathering).injection  # although it was read before the purge
    assert [event.name for event in await memory.events.query() if SECRET in str(event.data)] == []
    assert SECRET not in (await memory.sources.gather("judgment:code_review:fair")).injection
    assert [event.name for event in await memory.events.query() if SECRET in str(event.data)] == []


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
async def test_a_purge_by_another_process_during_a_query_is_respected(
    engine: str, request: pytest.FixtureRequest, tmp_path: Path, home: Settings
) -> None:
    """keeps: U-08. A running gather or brief does not show data that this process read before the purge."""
    target = tmp_path / "space.db" if engine == "sqlite" else request.getfixturevalue("server").address()
    async with mica.open(target, settings=home) as memory, mica.open(target, settings=home) as other:
        texts = [f"{SECRET} broke the login {number}" for number in range(2)]
        marks = [memory.mark(text) for text in texts]
        memory.mark("The login works again")
        await memory.events.position()
        going: list[Ref] = []

        async def purging(concept: object) -> list[object]:
            while going:
                await other.purge(ids=[going.pop().id])
            return []

        memory.sources.register("purging", purging, is_live=True, concepts="service:*", timeout_s=60)
        assert texts[0] in (await memory.sources.gather("service:app:login", deadline_s=LONG_S)).injection

        # A receipt that quotes a purged mark is buried when it is stored, which counts as a purge: store it before.
        await memory.events.position()
        going.append(marks[0])
        gathered = await memory.sources.gather("service:app:login", deadline_s=LONG_S)
        await memory.events.position()
        going.append(marks[1])
        brief = await memory.brief("login", concept="service:app:login", deadline_s=LONG_S)

    assert texts[0] not in gathered.injection
    assert texts[1] in gathered.injection
    assert SECRET not in brief.text
    assert "The login works again" in brief.text


@pytest.mark.parametrize("engine", ["sqlite", "postgres", "http"])
async def test_the_first_brief_of_a_process_omits_text_purged_meanwhile(
    engine: str, request: pytest.FixtureRequest, tmp_path: Path, home: Settings
) -> None:
    """keeps: U-08. The process does not yet know the number of earlier purges."""
    target: str | Path = tmp_path / "space.db"
    if engine != "sqlite":
        target = request.getfixturevalue("server" if engine == "postgres" else "web_server").address()
    async with mica.open(target, settings=home) as other:
        secret = other.mark(f"{SECRET} broke the login")
        other.mark("The login works again")
        await other.events.position()
        async with mica.open(target, settings=home) as memory:
            marks, going = memory.sources._own[1], [secret]

            class Marks:
                declared = marks.declared

                async def fragments(self, question: Question) -> Sequence[Fragment]:
                    fragments = await marks.fragments(question)
                    while going:
                        await other.purge(ids=[going.pop().id])
                    return fragments

                async def close(self) -> None:
                    """Release nothing."""

            memory.sources._own[1] = Marks()
            brief = await memory.brief("login")

    assert SECRET not in brief.text
    assert "The login works again" in brief.text


@pytest.mark.parametrize(
    "conditions",
    [
        {"session": "s1"},
        {"agent": "scout"},
        {"user": "ann"},
        {"session": "s1", "user": "ann", "value": "a word"},
        {"since": START_AT, "until": START_AT + timedelta(seconds=1)},
    ],
)
async def test_every_condition_applies_to_events_that_arrive_later(
    memory: mica.Memory, clock: HandClock, conditions: dict[str, object]
) -> None:
    """keeps: U-08. It applies only to events that happened before the purge."""
    await memory.purge(**conditions)  # type: ignore[arg-type]  # one table for all kinds
    with memory.context(session="s1", agent="scout", user="ann"):
        memory.emit("it.happened", {"text": "here is a word"})
    with memory.context(session="s2", agent="other", user="bob"):
        memory.emit("other.happened", {"text": "here is a word"}, at=clock() - timedelta(days=1))
    clock.move(seconds=1)
    with memory.context(session="s1", agent="scout", user="ann"):
        memory.emit("later.happened", {"text": "here is a word"})

    assert await names(memory) == ["other.happened", "log.purged", "event.purged", "later.happened"]


async def test_a_segment_found_later_brings_nothing_back(home: Settings, clock: HandClock, tmp_path: Path) -> None:
    """keeps: U-08. Neither its events nor their words return."""
    path = tmp_path / "space" / "space.db"
    async with mica.open(path, settings=home, clock=clock) as memory:
        with memory.context(session="q7zxsession"):
            event = memory.emit("q7zxname", {"q7zxkey": "x" * 6_000})
        shutil.copytree(tmp_path / "space" / "space.db-segments", tmp_path / "backup")
        assert residue(tmp_path / "backup", ["q7zx"])
        await memory.purge(ids=[event])

    shutil.copytree(tmp_path / "backup", tmp_path / "space" / "space.db-segments", dirs_exist_ok=True)
    async with mica.open(path, settings=home, clock=clock) as memory:
        assert await names(memory) == ["event.purged", "log.purged"]
        assert await memory.upkeep.verify() == []
    assert residue(tmp_path / "space", ["q7zx"]) == []


async def test_a_second_import_brings_nothing_back(memory: mica.Memory, tmp_path: Path) -> None:
    """keeps: U-08. It reports how many events a purge excludes."""
    log = tmp_path / "foreign.jsonl"
    line = {"event_name": "told", "_event_id": "e1", "timestamp": 1_700_000_000, "data": {"text": SECRET}}
    log.write_text(json.dumps(line) + "\n")
    assert (await memory.events.import_log(log)).purged == 0
    await memory.purge(value=SECRET)

    again = await memory.events.import_log(log)
    other = await memory.events.import_log(log, source="elsewhere")

    assert (again.events, again.repeated, again.purged) == (0, 0, 1)
    assert (other.events, other.repeated, other.purged) == (1, 0, 1)
    assert await names(memory) == ["event.purged", "event.purged", "log.purged"]


async def test_a_purge_during_an_import_is_counted(
    home: Settings, clock: HandClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """keeps: U-08. The count is based on what was stored, and no purge is applied twice."""
    log = tmp_path / "foreign.jsonl"
    line = {"event_name": "told", "_event_id": "e1", "timestamp": 1_700_000_000, "data": {"text": SECRET}}
    log.write_text(json.dumps(line) + "\n")
    async with (
        mica.open(tmp_path / "space.db", settings=home, clock=clock) as memory,
        mica.open(tmp_path / "space.db", settings=home, clock=clock) as other,
    ):
        append = memory._log.append

        async def late(events: Sequence[Event]) -> Appended:
            await other.purge(value=SECRET)
            return await append(events)

        monkeypatch.setattr(memory._log, "append", late)
        done = await memory.events.import_log(log)
        assert await names(memory) == ["event.purged", "log.purged"]

    assert (done.events, done.repeated, done.purged) == (1, 0, 1)


async def test_a_copy_includes_tombstones_and_purges(
    memory: mica.Memory, clock: HandClock, home: Settings, tmp_path: Path
) -> None:
    """keeps: K-53. An earlier copy that has the content loses it with the next copy."""
    memory.emit("it.happened", {"text": SECRET})
    memory.emit("it.happened", {"text": "open"})
    await memory.upkeep.copy_to(tmp_path / "copy.db")
    assert residue(tmp_path, [SECRET])
    await memory.purge(value=SECRET)

    await memory.upkeep.copy_to(tmp_path / "copy.db")

    async with mica.open(tmp_path / "copy.db", settings=home, clock=clock) as copied:
        assert await names(copied) == ["event.purged", "it.happened", "log.purged"]
        copied.emit("late", {"text": SECRET})
        assert "late" not in await names(copied)
        assert await copied.upkeep.verify() == []


@pytest.mark.parametrize("conditions", [{"session": "s1"}, {"value": SECRET}])
async def test_events_stored_during_a_purge_are_purged(
    memory: mica.Memory, monkeypatch: pytest.MonkeyPatch, conditions: dict[str, str]
) -> None:
    """keeps: U-08. No event slips through between search and removal, and the record counts the removed ones."""
    emitted = []

    def emit() -> None:
        with memory.context(session="s1"):
            emitted.append(memory.emit("it.happened", {"text": f"use {SECRET}"}))

    def then_emits(read: Callable[..., Awaitable[list[mica.Event]]]) -> Callable[..., Awaitable[list[mica.Event]]]:
        async def reading(*args: object, **kwargs: object) -> list[mica.Event]:
            events = await read(*args, **kwargs)
            if len(emitted) < 3 and args[0] != EventQuery(names=("log.exported",), limit=None):
                emit()
                await memory._log.stored()
            return events

        return reading

    emit()
    await memory._log.stored()
    log = memory._store.log
    for name in ("query", "read"):
        monkeypatch.setattr(log, name, then_emits(getattr(log, name)))

    done = await memory.purge(**conditions)  # type: ignore[arg-type]  # one table for all kinds
    monkeypatch.undo()

    assert done.record is not None
    assert (await memory.events.get(done.record)).data["events"] == done.events == len(done.ids)
    assert len(emitted) > 1
    assert [(await memory.events.get(each)).name for each in emitted] == ["event.purged"] * len(emitted)


# -- Exports --------------------------------------------------------------------------------------------------


def export(memory: mica.Memory, path: Path, events: list[mica.Event], **fields: object) -> None:
    from mica.format.documents import event_line

    path.write_bytes(b"".join(event_line(event, **fields) + b"\n" for event in events))  # type: ignore[arg-type]
    record_export(memory._log, path, events=len(events))


async def test_exports_are_rewritten(memory: mica.Memory, tmp_path: Path, clock: HandClock) -> None:
    """keeps: U-08. Only the purged lines change; a file that cannot be rewritten is named."""
    memory.emit("it.happened", {"text": SECRET})
    memory.emit("it.happened", {"text": "open"})
    events = await memory.events.query()
    ours, bare, foreign, missing = (tmp_path / name for name in ("ours", "bare", "foreign", "gone"))
    export(memory, ours, events)
    ours.chmod(0o640)
    ours.rename(tmp_path / "elsewhere")
    ours.symlink_to(tmp_path / "elsewhere")
    export(memory, bare, events, fields=("name", "data"))
    export(memory, missing, events)
    missing.unlink()
    export(memory, foreign, events)
    foreign.write_text(f"my notes: {SECRET}\n")
    before = ours.read_bytes().splitlines()

    done = await memory.purge(value=SECRET)

    assert done.exports == (str(ours),)
    after = ours.read_bytes().splitlines()
    assert after[1:] == before[1:]
    assert json.loads(after[0])["data"] == {"purge": done.record, "reason": "purged by hand"}
    assert SECRET.encode() not in (tmp_path / "elsewhere").read_bytes()
    assert ours.is_symlink()
    assert ours.stat().st_mode & 0o777 == 0o640
    problems = " ".join(done.unreached)
    assert all(str(path) in problems for path in (bare, foreign, missing))
    assert str(ours) not in problems
    assert foreign.read_text() == f"my notes: {SECRET}\n"
    again = await memory.events.import_log(ours)
    assert (again.events, again.repeated, again.purged) == (0, 1, 1)


# -- Residue on disk -----------------------------------------------------------------------------------------

WHERE = ("session", "agent", "user", "task", "correlation", "branch", "text", "why", "tag", "key", "large", "name")


async def planted(folder: Path, home: Settings, clock: HandClock, *, aged: bool = False) -> mica.Memory:
    """A space with needles in every place that can hold text, among enough other events to split pages of the file."""
    memory = await mica.open(folder / "space.db", settings=home, clock=clock)
    for number in range(600):
        word = f"{number * 7_919 % 600:03}"
        needle = f"q7zx{{}}{word}" if number % 20 == 0 else f"{word}w{{}}"
        texts = {where: needle.format(where) for where in WHERE}
        with memory.context(**{where: texts[where] for where in WHERE[:6]}):  # type: ignore[arg-type]  # texts
            memory.mark(texts["text"], why=texts["why"], tags=[texts["tag"]])
            memory.emit("it.happened", {texts["key"]: [{"deep": texts["text"]}], "n": "x" * number})
            memory.emit(texts["name"], {"large": [texts["large"], *range(1_500)]})
    await memory.upkeep.sizes()
    clock.move(seconds=1)
    if aged:
        assert await memory.upkeep.age(timedelta(0)) == 1_800
    return memory


NEEDLES = [form for where in WHERE for form in (f"q7zx{where}", f"q7zx{where}".upper())]
PURGES: dict[str, Callable[[], dict[str, object]]] = {
    "value": lambda: {"value": "q7zx", "anywhere": True},
    "time": lambda: {"since": START_AT},
    "ids": lambda: {"ids": range(1, 1_801)},
}


@pytest.mark.parametrize("aged", [False, True])
@pytest.mark.parametrize("way", [*PURGES, "session", "agent", "user"])
async def test_no_purged_text_remains_in_the_files(
    home: Settings, clock: HandClock, tmp_path: Path, way: str, aged: bool
) -> None:
    """keeps: U-08, K-53.

    Rows, blocks, indexes, words, payloads, write-ahead log, free pages and segments are searched, later too.
    """
    folder = tmp_path / "space"
    memory = await planted(folder, home, clock, aged=aged)
    assert len(residue(folder, NEEDLES)) > len(WHERE)

    if way in PURGES:
        done = await memory.purge(**PURGES[way]())  # type: ignore[arg-type]  # one table for all kinds
        assert done.unreached == ()
    else:
        for number in range(0, 600, 20):
            await memory.purge(**{way: f"q7zx{way}{number * 7_919 % 600:03}"})  # type: ignore[arg-type]

    assert residue(folder, NEEDLES) == []
    assert await memory.upkeep.verify() == []
    await memory.close()
    assert residue(folder, NEEDLES) == []
    async with mica.open(folder / "space.db", settings=home, clock=clock) as again:
        again.emit("later")
        assert await again.upkeep.rebuild() > 1_800
        clock.move(seconds=1)
        assert await again.upkeep.age(timedelta(0)) > 0
        assert await again.upkeep.verify() == []
        assert residue(folder, NEEDLES) == []
    assert residue(folder, NEEDLES) == []


async def test_the_residue_search_can_fail(home: Settings, clock: HandClock, tmp_path: Path) -> None:
    """It finds text in rows, frames, the write-ahead log, free pages and segments."""
    folder = tmp_path / "space"
    memory = await planted(folder, home, clock)
    memory.emit("it.happened", {"text": "q7zxsegment"})
    [place] = residue(folder, ["q7zxsegment"])
    assert place.endswith(".segment")
    await memory.close()
    places = " ".join(residue(folder, NEEDLES))
    assert "in a frame of space.db" in places
    assert "in a row of space.db" in places
    async with mica.open(folder / "space.db", settings=home, clock=clock) as again:
        await again.upkeep.age(timedelta(0))
        await again._store.purges.scrub()
        assert "b'q7zxkey' in space.db" not in residue(folder, ["q7zxkey"])
        assert "b'q7zxkey' in a row of space.db" in residue(folder, ["q7zxkey"])  # in a block, compressed

    connection = apsw.Connection(str(folder / "space.db"))
    connection.execute("CREATE TABLE planted (text TEXT)")
    connection.execute("INSERT INTO planted SELECT 'q7zxplanted' || hex(randomblob(2000)) FROM names")
    assert "b'q7zxplanted' in space.db-wal" in residue(folder, ["q7zxplanted"])
    connection.pragma("secure_delete", "off")
    connection.execute("DROP TABLE planted")
    connection.close()
    assert residue(folder, ["q7zxplanted"]) == ["b'q7zxplanted' in space.db"]


async def test_zeroing_rows_alone_would_leave_copies(
    home: Settings, clock: HandClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This is why the file is rewritten: split pages retain their earlier content."""
    memory = await planted(tmp_path / "space", home, clock)
    monkeypatch.setattr("mica.store.sqlite.purges.compact", lambda core: None)
    await memory.purge(value="q7zx", anywhere=True)
    await memory.close()
    assert residue(tmp_path / "space", NEEDLES)


async def test_a_reader_that_blocks_the_log_is_named(
    home: Settings, clock: HandClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mica.store.sqlite.purges.READERS_S", 0)
    memory = await planted(tmp_path / "space", home, clock)
    reader = apsw.Connection(str(tmp_path / "space" / "space.db"))
    reader.execute("BEGIN")
    reader.execute("SELECT * FROM events LIMIT 1").fetchone()

    done = await memory.purge(value="q7zx", anywhere=True)

    assert "space.db-wal is read by another process" in " ".join(done.unreached)
    assert await memory.purge(value="q7zx", anywhere=True, dry_run=True) == mica.Purged(
        events=0, ids=(), names={}, sessions=(), first=()
    )
    reader.execute("COMMIT")
    assert (await memory.purge(value="q7zx", anywhere=True)).unreached == ()
    assert residue(tmp_path / "space", NEEDLES) == []
    reader.close()
    await memory.close()


async def test_damaged_segments_are_removed_or_named(home: Settings, clock: HandClock, tmp_path: Path) -> None:
    """keeps: K-53, U-08. Segments that cannot be folded are searched too."""
    async with mica.open(tmp_path / "space.db", settings=home, clock=clock) as memory:
        memory.emit("it.happened", {"text": SECRET})
        folder = tmp_path / "space.db-segments" / "someone"
        folder.mkdir(parents=True)
        hit, other = folder / f"1.segment{DAMAGED}", folder / f"2.segment{DAMAGED}"
        hit.write_bytes(b"\x93" + SECRET.encode() + b"\0")
        other.write_bytes(b"something else")

        by_time = await memory.purge(since=START_AT, until=START_AT + timedelta(microseconds=1), dry_run=False)
        assert [str(hit) in line or str(other) in line for line in by_time.unreached] == [True, True]
        assert hit.exists()

        done = await memory.purge(value=SECRET)
        assert done.removed == (str(hit),)
        assert (hit.exists(), other.exists()) == (False, True)


LIVING = """
import asyncio, sys, mica
async def main():
    memory = await mica.open(sys.argv[1], settings=mica.load_settings({"HOME": sys.argv[2]}))
    memory.emit("it.happened", {"text": sys.argv[3]})
    await memory.upkeep.sizes()
    print("ready", flush=True)
    sys.stdin.readline()
    memory.emit("another")
    await memory.upkeep.sizes()
    await memory.upkeep.sizes()
    print("done", flush=True)
    sys.stdin.readline()
    await memory.close()
asyncio.run(main())
"""


async def test_another_process_drops_its_copy_with_its_next_event(home: Settings, tmp_path: Path) -> None:
    """The segment of a live writer is named; with its next event the writer notices the purge and leaves it."""
    command = [sys.executable, "-c", LIVING, str(tmp_path / "space.db"), str(tmp_path), SECRET]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as living:
        assert living.stdin is not None
        assert living.stdout is not None
        assert living.stdout.readline() == "ready\n"
        async with mica.open(tmp_path / "space.db", settings=home) as memory:
            done = await memory.purge(value=SECRET)
            assert done.events == 1
            assert "belongs to a running process" in " ".join(done.unreached)

            living.stdin.write("\n")
            living.stdin.flush()
            assert living.stdout.readline() == "done\n"

            assert residue(tmp_path, [SECRET]) == []
            assert (await memory.purge(value=SECRET)).unreached == ()
            living.stdin.write("\n")
            living.stdin.flush()
            assert living.wait() == 0


async def test_emitting_continues_during_purges(memory: mica.Memory) -> None:
    """keeps: TE-07. Leaving segments repeatedly loses and doubles no event of any thread."""
    threads, each = 4, 2_000

    def emit(thread: int) -> None:
        for number in range(each):
            memory.emit("it.happened", {"n": thread * each + number})

    async def purge() -> None:
        while not all(task.done() for task in emitting):
            await memory.purge(value="nowhere")

    emitting = [asyncio.create_task(asyncio.to_thread(emit, thread)) for thread in range(threads)]
    await asyncio.gather(purge(), *emitting)

    events = await memory.events.query(EventQuery(names=("it.happened",), limit=None))
    assert sorted(str(event.data["n"]) for event in events) == sorted(map(str, range(threads * each)))
    assert len({event.id for event in events}) == threads * each
    assert await memory.upkeep.verify() == []


# -- Interrupted purges ---------------------------------------------------------------------------------------

KILLED = """
import asyncio, os, signal, sys, mica
from mica.store.sqlite.worker import SqliteWorker
STEPS = "_append", "add_purge", "bury", "compact", "truncate_log"
real, left = SqliteWorker.run, int(sys.argv[3])
async def run(store, method, *args, **kwargs):
    global left
    result = await real(store, method, *args, **kwargs)
    if method.__name__ in STEPS:
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
    return result
async def main():
    memory = await mica.open(sys.argv[1], settings=mica.load_settings({"HOME": sys.argv[2]}))
    SqliteWorker.run = run
    await memory.purge(value="q7zx", reason="cut off")
asyncio.run(main())
"""


@pytest.mark.parametrize("aged", [False, True])
@pytest.mark.parametrize("after", range(6))
async def test_a_killed_purge_is_finished_by_the_next(home: Settings, tmp_path: Path, after: int, aged: bool) -> None:
    """After `kill -9` between any two steps each event is complete or gone, and a second run removes the rest."""
    async with mica.open(tmp_path / "space.db", settings=home) as memory:
        for number in range(1_200):
            memory.emit("it.happened", {"n": number, "text": "q7zx" if number % 2 else "open"})
        if aged:
            assert await memory.upkeep.age(timedelta(0)) > 1_000
    command = [sys.executable, "-c", KILLED, str(tmp_path / "space.db"), str(tmp_path), str(after)]
    killed = await asyncio.to_thread(subprocess.run, command, check=False)
    assert killed.returncode == -signal.SIGKILL

    async with mica.open(tmp_path / "space.db", settings=home) as memory:
        assert await memory.upkeep.verify() == []
        left = [
            event.data.get("n") for event in await memory.events.query(EventQuery(names=("it.happened",), limit=None))
        ]
        assert {number for number in range(1_200) if not number % 2} <= set(left)
        await memory.purge(value="q7zx", anywhere=True)
        assert await memory.upkeep.verify() == []
        counted = await names(memory)
        assert (counted.count("it.happened"), counted.count("event.purged")) == (600, 600)
    assert residue(tmp_path, ["q7zx"]) == []

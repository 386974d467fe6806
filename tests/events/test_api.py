"""The events of a space: read, followed and counted through `memory.events`."""

from __future__ import annotations

import io
import json
from datetime import UTC, timedelta
from pathlib import Path

import pytest

from mica import EventQuery, Memory
from mica.errors import (
    Backlogged,
    InvalidEvent,
    InvalidInput,
    UnknownEvent,
)
from mica.testing import HandClock
from mica.testing.builders import START_AT, build


async def test_a_chain_is_every_event_of_one_correlation(memory: Memory) -> None:
    """keeps: E-30. Several roots that answer one request form one chain; without a correlation the root names it."""
    with memory.context(correlation="req-1"):
        first = memory.emit("asked")
        memory.emit("looked", parent=first)
        memory.emit("asked.again")
    alone = memory.emit("alone")
    memory.emit("alone.too", parent=alone)

    chain = await memory.events.chain(await memory.events.get(first))

    assert [event.name for event in chain] == ["asked", "looked", "asked.again"]
    assert [event.name for event in await memory.events.chain(await memory.events.get(alone))] == ["alone", "alone.too"]


async def test_unknown_events_are_named(memory: Memory) -> None:
    with pytest.raises(UnknownEvent, match="'12'"):
        await memory.events.get(12)
    with pytest.raises(UnknownEvent):
        await memory.events.get(build(1).id)
    with pytest.raises(InvalidEvent, match="'nonsense'"):
        await memory.events.get("nonsense")


async def test_an_overview_counts_what_agents_did(memory: Memory) -> None:
    started_at = START_AT
    with memory.context(session="s1", agent="scout"):
        prompt = memory.mark("fix the login", tags=["prompt"], at=started_at)
        with memory.context(parent=prompt):
            step = {"path": "a.py", "tokens": 10}
            memory.emit("file.read", step, at=started_at + timedelta(seconds=1))
            memory.emit("file.read", step | {"tokens": None}, at=started_at + timedelta(seconds=2))
            memory.emit("file.edit", step, at=started_at + timedelta(seconds=3))
            memory.emit("file.read", {"path": "gone.py"}, error=True, at=started_at + timedelta(seconds=4))
            memory.emit("shell.run", {"command": "make"}, at=started_at + timedelta(seconds=5))
            memory.emit("model.answer", {"input_tokens": 5, "output_tokens": 7}, at=started_at + timedelta(seconds=6))
            memory.mark("the login works", tags=["closing"], at=started_at + timedelta(seconds=7))

    overview = await memory.events.overview()

    [line] = overview.sessions
    assert (line.prompt, line.closing, line.prompts) == ("fix the login", "the login works", 1)
    assert (line.reads, line.edits, line.commands, line.failures, line.tokens_read) == (2, 1, 1, 1, 10)
    assert [(file.path, file.sessions, file.reads, file.edits, file.tokens) for file in overview.files] == [
        ("a.py", 1, 2, 1, 10)
    ]
    assert (overview.usage.answers, overview.usage.input_tokens, overview.usage.output_tokens) == (1, 5, 7)
    assert overview.since == started_at.astimezone(UTC)


async def test_events_of_several_references_come_in_their_order(memory: Memory) -> None:
    one, two = memory.emit("one"), memory.emit("two")
    lost = build(9).id

    resolved = await memory.events.resolve([2, lost, one.id])

    assert [event.id for event in resolved.events] == [two.id, one.id]
    assert resolved.missing == (lost,)
    with pytest.raises(InvalidInput, match="101 references"):
        await memory.events.resolve(range(101))


async def test_resuming_a_session_restores_its_context(memory: Memory) -> None:
    with memory.context(session="s1", agent="scout"):
        last = memory.emit("stopped")

    with await memory.events.resume("s1"):
        resumed = await memory.events.get(memory.emit("went.on"))

    assert (resumed.context.session, resumed.context.agent, resumed.parent_id) == ("s1", "scout", last.id)
    with pytest.raises(InvalidInput, match="no session 's2'"):
        await memory.events.resume("s2")


async def test_an_open_session_is_one_with_events_in_the_last_half_hour(memory: Memory, clock: HandClock) -> None:
    with memory.context(session="old"):
        memory.emit("worked")
    clock.move(minutes=31)
    with memory.context(session="new"):
        memory.emit("worked")

    assert [each.session for each in await memory.events.open_sessions()] == ["new"]


async def test_the_age_of_a_context_is_known_only_inside_its_block(memory: Memory) -> None:
    assert memory.events.age_s is None
    with memory.context(session="s1"):
        age_s = memory.events.age_s
        assert age_s is not None
        assert age_s >= 0


async def test_an_export_is_complete_and_recorded(memory: Memory, tmp_path: Path) -> None:
    """keeps: U-08. A later purge finds the file by its record."""
    memory.emit("one", {"n": 1})
    memory.emit("two", {"n": 2})
    path = tmp_path / "out.jsonl"

    done = await memory.events.export(path, EventQuery(names=("two",)))

    assert (done.events, done.unrecorded) == (1, None)
    assert [json.loads(line)["data"] for line in path.read_text().splitlines()] == [{"n": 2}]
    [record] = await memory.events.query(EventQuery(names=("log.exported",)))
    assert (record.data["path"], record.data["events"]) == (str(path), 1)


async def test_an_export_to_an_open_stream_is_not_recorded(memory: Memory) -> None:
    memory.emit("one")
    stream = io.BytesIO()

    done = await memory.events.export(stream, fields=("name",))

    assert done.events == 1
    assert stream.getvalue() == b'{"name":"one"}\n'
    assert await memory.events.query(EventQuery(names=("log.exported",))) == []


async def test_an_export_that_cannot_be_recorded_is_reported(
    memory: Memory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory.emit("one")

    def full(*_: object, **__: object) -> None:
        raise Backlogged("the store is stuck")

    monkeypatch.setattr(memory._log.journal, "emit", full)

    done = await memory.events.export(tmp_path / "out.jsonl")

    assert (done.events, done.unrecorded) == (1, "the store is stuck")


async def test_events_of_another_process_are_appended_unchanged(memory: Memory) -> None:
    following = memory.events.follow(after=0)

    appended = await memory.events.append([build(1), build(2)])

    assert (appended.stored, appended.repeated) == (2, 0)
    assert [(await anext(following)).id, (await anext(following)).id] == [build(1).id, build(2).id]
    assert (await memory.events.append([build(1)])).repeated == 1


async def test_a_mark_can_be_checked_without_recording_it(memory: Memory) -> None:
    memory.events.check_mark("The cookie is set too early", tags=["gotcha"])

    with pytest.raises(InvalidInput, match="needs a text"):
        memory.events.check_mark(" ")
    assert await memory.events.query() == []


async def test_a_child_process_continues_the_context(memory: Memory) -> None:
    with memory.context(session="s1"):
        variables = memory.events.environment()

    with memory.received(variables):
        assert memory.here.context.session == "s1"

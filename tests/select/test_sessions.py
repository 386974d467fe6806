"""Open sessions survive the process that wrote in them."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

import mica
from mica import EventQuery, InvalidInput, Memory
from mica.settings import Settings
from mica.testing import HandClock


async def test_a_session_is_open_until_it_ends_or_nobody_writes(memory: Memory, clock: HandClock) -> None:
    with memory.context(session="over", agent="a"):
        memory.emit("step")
        memory.emit("session.ended")
    with memory.context(session="idle"):
        memory.emit("step")
    memory.emit("step")  # of no session
    clock.move(minutes=29)
    with memory.context(session="busy", agent="scout"):
        memory.emit("step")
    with memory.context(session="busy", agent="coder"):
        last = memory.emit("step")
    assert [each.session for each in await memory.open_sessions()] == ["idle", "busy"]
    clock.move(minutes=2)
    [busy] = await memory.open_sessions()
    assert (busy.session, busy.agents, busy.last.id) == ("busy", ("coder", "scout"), last.id)


async def test_a_session_goes_on_where_it_stopped(memory: Memory) -> None:
    """E-40: the context and the chain of its last event."""
    with memory.context(session="s1", agent="scout", task="login", client="cli"):
        first = memory.emit("asked")
        last = memory.emit("answered", parent=first)
    with await memory.resumed("s1"):
        next_ = memory.emit("went.on")
    event = await memory.event(next_.id)
    assert event.context == (await memory.event(last.id)).context
    assert (event.parent_id, event.root_id, event.depth) == (last.id, first.id, 2)


async def test_a_session_that_nobody_knows_is_not_resumed(memory: Memory) -> None:
    with pytest.raises(InvalidInput, match="no session 's9'"):
        await memory.resumed("s9")


KILLED = """
import asyncio, sys, mica

async def main():
    memory = await mica.open(sys.argv[1])
    with memory.context(session="s1", agent="scout"):
        parent = memory.emit("asked")
        while True:
            parent = memory.emit("step", {"n": 1}, parent=parent)
            print(parent.id, flush=True)

asyncio.run(main())
"""


@pytest.mark.parametrize("lines", [1, 50, 5_000])
async def test_sessions_of_a_killed_process_are_restored(tmp_path: Path, home: Settings, lines: int) -> None:
    """E-40, TE-09, TE-20: contexts, then sessions, then their chains, whatever of it had been stored."""
    path = tmp_path / "space.db"
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", KILLED, path, stdout=subprocess.PIPE, env={"HOME": str(tmp_path)}
    )
    assert child.stdout is not None
    acknowledged = [(await child.stdout.readline()).decode().strip() for _ in range(lines)]
    child.kill()
    rest = (await child.stdout.read()).decode().split("\n")[:-1]
    await child.wait()

    async with mica.open(path, settings=home) as memory:
        [session] = await memory.open_sessions()
        assert session.last.id >= [*acknowledged, *rest][-1]
        with await memory.resumed("s1"):
            on = memory.emit("went.on")
        chain = await memory.chain(await memory.event(on.id))
        assert [event.depth for event in chain] == list(range(len(chain)))
        assert {event.context.agent for event in chain} == {"scout"}
        assert len(await memory.events(EventQuery(session="s1", limit=None))) == len(chain)

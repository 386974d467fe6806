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


async def test_a_session_is_open_until_it_ends_or_goes_silent(memory: Memory, clock: HandClock) -> None:
    with memory.context(session="over", agent="a"):
        memory.emit("step")
        memory.emit("session.ended")
    with memory.context(session="idle"):
        memory.emit("step")
    memory.emit("step")  # without a session
    clock.move(minutes=29)
    with memory.context(session="busy", agent="scout"):
        memory.emit("step")
    with memory.context(session="busy", agent="coder"):
        last = memory.emit("step")
    assert [each.session for each in await memory.events.open_sessions()] == ["idle", "busy"]
    clock.move(minutes=2)
    [busy] = await memory.events.open_sessions()
    assert (busy.session, busy.agents, busy.last.id) == ("busy", ("coder", "scout"), last.id)


async def test_a_resumed_session_continues_its_last_chain(memory: Memory) -> None:
    """keeps: E-40. It takes over the context and the chain of the session's last event."""
    with memory.context(session="s1", agent="scout", task="login", client="cli"):
        first = memory.emit("asked")
        last = memory.emit("answered", parent=first)
    with await memory.events.resume("s1"):
        next_ = memory.emit("went.on")
    event = await memory.events.get(next_.id)
    assert event.context == (await memory.events.get(last.id)).context
    assert (event.parent_id, event.root_id, event.depth) == (last.id, first.id, 2)


async def test_an_unknown_session_is_not_resumed(memory: Memory) -> None:
    memory.emit("elsewhere")
    with pytest.raises(InvalidInput, match="no session 's9'"):
        await memory.events.resume("s9")
    with pytest.raises(InvalidInput, match="no session None"):
        await memory.events.resume(None)  # type: ignore[arg-type]  # it is what must be refused


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
    """keeps: E-06, E-40, TE-09, TE-20.

    Contexts, sessions and chains are restored, whether or not they had been stored.
    """
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
        [session] = await memory.events.open_sessions()
        assert session.last.id >= [*acknowledged, *rest][-1]
        with await memory.events.resume("s1"):
            on = memory.emit("went.on")
        chain = await memory.events.chain(await memory.events.get(on.id))
        assert [event.depth for event in chain] == list(range(len(chain)))
        assert {event.context.agent for event in chain} == {"scout"}
        assert len(await memory.events.query(EventQuery(session="s1", limit=None))) == len(chain)


RECOVERED_WITH_FAULTS = """
import asyncio, os, shutil, signal, sys
from pathlib import Path
import apsw, mica
from mica.errors import StoreFull
from tests.store.sqlite.direct_store import DirectStore

LEFT, FULL = 2_500, 9  # events, in three batches; how a process ends whose store had no room

def opened(path):
    return mica.open(path, settings=mica.load_settings({"HOME": str(path.parent)}))

def in_child(work, *given):
    child = os.fork()
    if not child:
        asyncio.run(work(*given))
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

async def leave(path):
    memory, parent = await opened(path), None
    for number in range(LEFT):
        with memory.context(session="s1", agent=f"a{number % 3}"):
            parent = memory.emit("step", {"n": number}, parent=parent)
    os.kill(os.getpid(), signal.SIGKILL)  # the loop did not run: nothing is stored

async def recover(path, fault, step):
    memory = await opened(path)
    connection = memory._store._worker.core.connection

    def reach():
        nonlocal step
        step -= 1
        if step < 0 and fault == "full":
            connection.pragma("max_page_count", connection.pragma("page_count"))
        elif step < 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def trace(_, statement, bindings):
        if statement == ("BEGIN IMMEDIATE" if fault == "full" else fault):
            reach()
        return True

    def committed(*_):
        reach()
        return apsw.SQLITE_OK

    if fault == "committed":
        connection.set_wal_hook(committed)
    else:
        connection.exec_trace = trace
    try:
        await memory.events.position()
    except StoreFull:
        await memory.close()
        os._exit(FULL)
    await memory.close()

async def look(path):
    core = DirectStore(path)
    stored = [event.data["n"] for event in core.log.read(0, limit=LEFT + 1)]
    assert stored == list(range(len(stored))), "of what is stored nothing is missing before it"
    assert core.files.verify() == [], "and it has its contexts and parents"
    core.close()
    async with opened(path) as memory:
        [session] = await memory.events.open_sessions()
        assert (session.agents, session.last.data["n"]) == (("a0", "a1", "a2"), LEFT - 1)
        with await memory.events.resume("s1"):
            on = await memory.events.get(memory.emit("went.on").id)
        assert [event.depth for event in await memory.events.chain(on)] == list(range(LEFT + 1))
        assert (await memory.upkeep.sizes()).events == LEFT + 1
        assert await memory.upkeep.verify() == []

folder, fault = Path(sys.argv[1]), sys.argv[2]
assert in_child(leave, folder / "left" / "space.db") == -signal.SIGKILL
ended, steps = None, 0
while ended != 0:
    copy = folder / str(steps)
    shutil.copytree(folder / "left", copy)
    ended = in_child(recover, copy / "space.db", fault, steps)
    assert ended in (0, FULL if fault == "full" else -signal.SIGKILL), ended
    asyncio.run(look(copy / "space.db"))
    steps += 1
print(steps)
"""


@pytest.mark.parametrize("fault", ["BEGIN IMMEDIATE", "COMMIT", "committed", "full"])
def test_recovery_continues_after_a_fault_at_any_step(tmp_path: Path, fault: str) -> None:
    """keeps: E-04, E-40, K-48, TE-20.

    A kill before, during or after each commit, or a full disk, loses and doubles nothing.
    """
    command = [sys.executable, "-c", RECOVERED_WITH_FAULTS, str(tmp_path), fault]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert int(result.stdout) > 3

"""The dashboard, driven by its keys."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from tests.brief.test_handoff import NOTES
from textual.pilot import Pilot
from textual.widgets import Input, OptionList, Static, Tree

import mica
from mica.model.crystal import Crystal, Level
from mica.model.event import EventId
from mica.settings import Settings
from mica.store.reference.store import EphemeralStore
from mica.tui.app import Confirm, Dashboard

SIZE = (140, 40)


@pytest.fixture
async def memory(tmp_path: Path, home: Settings) -> AsyncIterator[mica.Memory]:
    async with mica.open(tmp_path / "shop.db", settings=home) as opened:
        yield opened


async def until(pilot: Pilot[None], is_true: Callable[[], bool], description: str = "") -> None:
    """Let the app run until a condition holds. The limit only ends a test that hangs."""
    for _ in range(400):
        await pilot.pause(0.02)
        if is_true():
            return
    raise AssertionError(f"never true: {description or is_true}; the screen shows: {detail(pilot.app)!r}")


def detail(app: object) -> str:
    assert isinstance(app, Dashboard)
    return str(app.query_one("#detail", Static).content)


def status(app: Dashboard) -> str:
    return str(app.query_one("#status", Static).content)


def labels(app: Dashboard) -> list[str]:
    """The lines of the tree that can be seen."""
    tree = app.query_one("#hierarchy", Tree)
    nodes = [tree.get_node_at_line(line) for line in range(tree.last_line + 1)]
    return [str(node.label) for node in nodes if node is not None]


def recent(app: Dashboard) -> list[str | None]:
    return [option.id for option in app.query_one("#recent", OptionList).options]


def observe(memory: mica.Memory, session: str) -> list[EventId]:
    with memory.context(session=session, agent="scout"):
        return [memory.mark(f"{text} ({session})", tags="finding").id for text in NOTES]


async def commit(memory: mica.Memory, session: str) -> Crystal:
    ids = observe(memory, session)
    insight = f"Cookies of {session} were dropped by the proxy of production on their way from the login to the browser"
    period = f"session:{session}"
    return await memory.crystals.commit([(insight, ids[:2])], sources=ids, period=period, label=session)


async def above(memory: mica.Memory, level: Level, period: str, *below: Crystal) -> Crystal:
    cited = [mark for crystal in below for mark in crystal.insight[0].sources]
    insight = {
        "day": "The day on which cookies were dropped by the proxy",
        "week": "The week of cookies",
        "epoch": "It",
    }
    return await memory.crystals.commit(
        [(insight[level], cited[:1])], sources=[crystal.id for crystal in below], period=period, level=level
    )


async def test_the_hierarchy_goes_from_epochs_to_marks(memory: mica.Memory) -> None:
    """keeps: B-32, B-67"""
    one, two, free = [await commit(memory, name) for name in ("s1", "s2", "s3")]
    day = await above(memory, "day", "day:2026-11-02", one, two)
    week = await above(memory, "week", "week:2026-W45", day)
    epoch = await above(memory, "epoch", "epoch:first", week)
    app = Dashboard(memory)

    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: len(labels(app)) == 6)
        assert [line.split()[:2] for line in labels(app)] == [
            ["epoch", "first"], ["week", "2026-W45"], ["day", "2026-11-02"], ["session", "s2"], ["session", "s1"],
            ["session", "s3"],
        ]  # fmt: skip
        assert recent(app) == [each.id for each in (free, epoch, week, day, two, one)]  # by their end, then as made

        await pilot.press("j", "j", "j", "enter")
        await until(pilot, lambda: len(labels(app)) == 11, "five marks under s2")
        assert any("(s2)" in line for line in labels(app))
        await until(pilot, lambda: "Cookies of s2" in detail(app))
        handles = [(await memory.events.get(mark)).number for mark in two.insight[0].sources]
        assert " ".join(handles) in detail(app)

        await pilot.press("k")
        await until(pilot, lambda: "The day" in detail(app))


async def test_the_active_session_and_new_crystals_are_shown_live(
    memory: mica.Memory, tmp_path: Path, home: Settings
) -> None:
    """keeps: B-32"""
    observe(memory, "s1")
    app = Dashboard(memory)

    async with app.run_test(size=SIZE) as pilot, mica.open(tmp_path / "shop.db", settings=home) as other:
        await until(pilot, lambda: "session s1: 5 marks · 0 crystals" in status(app))
        assert "No crystals yet" in detail(app)

        with other.context(session="s1"):
            other.mark("From another process")
        await until(pilot, lambda: "session s1: 6 marks" in status(app))
        made = await commit(other, "s2")
        await until(pilot, lambda: recent(app) == [made.id])

        assert [line.split()[:2] for line in labels(app)] == [["session", "s2"]]


async def test_c_shows_a_preview_and_makes_crystals_when_confirmed(memory: mica.Memory) -> None:
    """keeps: B-32"""
    observe(memory, "s1")
    app = Dashboard(memory)

    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("c")
        await until(pilot, lambda: isinstance(app.screen, Confirm))
        assert "session:s1: 5 marks in" in str(app.screen.query_one("#preview", Static).content)
        with memory.context(session="s1"):
            memory.mark("Something that is marked while the question stands")
        await until(pilot, lambda: "session s1: 6 marks" in status(app), "live behind the question")
        await pilot.press("escape")
        await until(pilot, lambda: not isinstance(app.screen, Confirm))
        assert await memory.crystals.list() == []

        await pilot.press("C")
        await until(pilot, lambda: isinstance(app.screen, Confirm))
        await pilot.press("y")
        await until(pilot, lambda: len(recent(app)) == 1)
        assert [crystal.period for crystal in await memory.crystals.list()] == ["session:s1"]

        await pilot.press("c")
        await until(pilot, lambda: any("nothing to crystallize" in each.message for each in app._notifications))


async def test_t_shows_the_tree_of_a_mark_and_e_the_sources_of_a_crystal(memory: mica.Memory) -> None:
    """keeps: B-32"""
    with memory.context(session="s1"):
        top = memory.mark("Login loses the session")
        middle = memory.mark("The cookie is set too early", parent=top)
        memory.mark("Moved it", parent=middle, relation="fulfills")
    ids = [(await memory.events.get(str(number))).id for number in (1, 2, 3)]
    crystal = await memory.crystals.commit([("The cookie", [ids[1]])], sources=ids, period="session:s1")
    app = Dashboard(memory)

    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: recent(app) == [crystal.id])
        await until(pilot, lambda: "The cookie" in detail(app))
        await pilot.press("t")
        await until(pilot, lambda: any("select a mark" in each.message for each in app._notifications))

        await pilot.press("e")
        await until(pilot, lambda: "made from 3 sources" in detail(app))
        assert "cited #2 " in detail(app)
        assert "not taken up #1 " in detail(app)

        await until(pilot, lambda: len(labels(app)) == 4)
        await pilot.press("j", "j")
        await until(pilot, lambda: "The cookie is set too early" in detail(app))
        await pilot.press("T")
        await until(pilot, lambda: detail(app).startswith("tree of #2"))
        assert detail(app).splitlines()[1:] == [
            "#1 mark: Login loses the session",
            "  #2 mark: The cookie is set too early",
            "    #3 mark fulfills: Moved it",
        ]
        await pilot.press("e")
        await until(pilot, lambda: any("select a crystal" in each.message for each in app._notifications))


async def test_q_searches_and_escape_goes_back(memory: mica.Memory) -> None:
    """keeps: B-32"""
    made = await commit(memory, "s1")
    app = Dashboard(memory)

    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: recent(app) == [made.id])
        await pilot.press("Q")
        await until(pilot, lambda: isinstance(app.focused, Input))
        await pilot.press(*"staging", "enter")
        await until(pilot, lambda: made.sources[4] in recent(app))
        assert app.query_one("#recent", OptionList).border_title == f"Query: staging ({len(recent(app))} mark" + (
            "s)" if len(recent(app)) > 1 else ")"
        )
        await until(pilot, lambda: "The proxy of staging" in detail(app))

        await pilot.press("Q")
        app.query_one("#query", Input).value = ""
        await pilot.press(*"zebra", "enter")
        await until(pilot, lambda: "Nothing matches" in detail(app))

        await pilot.press("escape")
        await until(pilot, lambda: recent(app) == [made.id])


async def test_digits_choose_a_level_and_a_shows_all(memory: mica.Memory) -> None:
    """keeps: B-67"""
    session = await commit(memory, "s1")
    day = await above(memory, "day", "day:2026-11-02", session)
    app = Dashboard(memory)

    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: len(recent(app)) == 2)
        shown = {}
        for key in "0123a":
            await pilot.press(key)
            await pilot.pause()
            shown[key] = set(recent(app))

        assert shown == {"0": {session.id}, "1": {day.id}, "2": set(), "3": set(), "a": {session.id, day.id}}
        assert "all levels" in status(app)


async def test_the_cursor_and_expanded_nodes_survive_a_refresh(memory: mica.Memory) -> None:
    """keeps: B-32"""
    await commit(memory, "s1")
    app = Dashboard(memory)

    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: len(labels(app)) == 1)
        await pilot.press("enter")
        await until(pilot, lambda: len(labels(app)) == 6)
        await pilot.press("j", "j")
        await until(pilot, lambda: NOTES[1] in detail(app))

        await commit(memory, "s2")
        await until(pilot, lambda: len(labels(app)) == 7)
        node = app.query_one("#hierarchy", Tree).cursor_node

        await until(pilot, lambda: NOTES[1] in str(app.query_one("#hierarchy", Tree).cursor_node.label))  # type: ignore[union-attr]
        assert node is not None


async def test_an_empty_space_shows_the_next_steps(memory: mica.Memory) -> None:
    """keeps: B-32"""
    app = Dashboard(memory)

    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: "Nothing here yet" in detail(app))
        assert "mica up" in detail(app)
        await pilot.press("t", "e", "j", "k", "enter", "r", "0", "a")
        await pilot.press("q")
        await until(pilot, lambda: app.return_code == 0)


async def test_an_unavailable_store_is_reported_and_the_last_state_stays(home: Settings) -> None:
    """keeps: B-32"""
    store = EphemeralStore()
    memory = mica.Memory(store, settings=home)
    made = await commit(memory, "s1")
    app = Dashboard(memory)

    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: recent(app) == [made.id])
        await store.close()
        await pilot.press("r")
        await until(pilot, lambda: "the store is unavailable: the store is closed" in status(app))
        await pilot.press("c", "e", "t", "j", "k")
        await pilot.pause()

        assert recent(app) == [made.id]
        store.state.is_closed = False  # it is back
        await until(pilot, lambda: "1 crystal" in status(app))
    await memory.close()


async def test_control_characters_do_not_reach_the_terminal(memory: mica.Memory) -> None:
    with memory.context(session="s1"):
        ids = [memory.mark(f"[red]\x1b[2J\u202e mark {number} of the terminal").id for number in range(5)]
    await memory.crystals.commit([("[bold]\x1b]0;title\x07 [/]cut", ids[:1])], sources=ids, period="session:s1")
    app = Dashboard(memory)

    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: len(labels(app)) == 1)
        await pilot.press("enter")
        await until(pilot, lambda: len(labels(app)) == 6)
        await pilot.press("j")
        await until(pilot, lambda: "mark 0 of the terminal" in detail(app))
        everything = "".join([*labels(app), detail(app)])

        assert "[red]" in everything
        assert not {"\x1b", "\x07", "\u202e"} & set(everything)


def test_without_textual_the_command_says_how_to_install_it(tmp_path: Path) -> None:
    start = "from mica.cli import main; sys.argv = ['mica', 'server', 'tui']; main()"
    code = f"import sys; sys.modules['textual'] = None; {start}"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "HOME": str(tmp_path), "MICA_STORE": str(tmp_path / "space.db")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == 'mica: the dashboard needs Textual; `pip install "mica[tui]"` installs it\n'


def test_without_a_terminal_the_command_says_what_else_to_use(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mica", "server", "tui"]
    variables = {**os.environ, "HOME": str(tmp_path), "MICA_STORE": str(tmp_path / "space.db")}

    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    as_json = subprocess.run([*command, "--json"], env=variables, capture_output=True, text=True, check=False)

    assert (done.returncode, "the dashboard needs a terminal" in done.stderr) == (1, True)
    assert (as_json.returncode, "No such option" in as_json.stderr) == (2, True)

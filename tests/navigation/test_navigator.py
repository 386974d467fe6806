"""`memory.navigate` in every store, with a working tree made by the tests."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.navigation.file_trees import some_paths, some_words, tree_of

import mica
from mica.model.event import Context, Event
from mica.navigation.engine.signals import PromptQuestion
from mica.navigation.navigator import Navigator, learned_file, load_learned, read_history
from mica.navigation.places import Place
from mica.navigation.predictor import Predictor
from mica.store.reference.store import EphemeralStore
from mica.testing import HandClock
from mica.testing.builders import START_AT, build

FILES = {
    "auth/session.py": "class SessionCookie:\n    def renew(self):\n        return 'cookie'\n",
    "auth/redirect.py": "def redirect(request):\n    return request.session\n",
    "billing/invoice.py": "def total(lines):\n    return sum(lines)\n",
    "docs/login.md": "# Login\n\nHow the redirect works after a login.\n",
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "shop"
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    return folder


def turn(memory: mica.Memory, clock: HandClock, session: str, prompt: str, *paths: str) -> None:
    """Record a prompt and the files that were read for it, one per second."""
    with memory.context(session=session):
        mark = memory.mark(prompt, tags="prompt", origin="user")
        for path in paths:
            clock.move(seconds=1)
            memory.emit("file.read", {"path": path}, parent=mark, origin="tool")
    clock.move(seconds=1)


async def test_navigate_answers_with_places_without_any_history(memory: mica.Memory, root: Path) -> None:
    """keeps: A-42. Places have a probability and reasons; names and words are enough without history."""
    places = await memory.navigate("the login redirect in auth/session.py loses the cookie", root=root)

    assert places[0].path == "auth/session.py"
    assert places[0].tier == "named"
    assert "named in the prompt" in places[0].reasons
    assert {place.path for place in places} <= set(FILES)
    assert all(0 <= place.probability <= 0.9 and place.reasons for place in places)


async def test_files_of_similar_prompts_are_offered(memory: mica.Memory, root: Path, clock: HandClock) -> None:
    """keeps: K-05. History counts in addition to words, and the tier shows it."""
    turn(memory, clock, "s1", "customers are charged twice", "billing/invoice.py")
    turn(memory, clock, "s1", "thanks")

    places = await memory.navigate("charged twice again", root=root)

    assert places[0].path == "billing/invoice.py"
    assert places[0].tier == "walked"
    assert "similar task: “customers are charged twice”" in places[0].reasons


async def test_files_of_this_session_come_before_matching_words(
    memory: mica.Memory, root: Path, clock: HandClock
) -> None:
    turn(memory, clock, "s1", "customers are charged twice", "billing/invoice.py")

    with memory.context(session="s1"):
        inside = await memory.navigate("now make it right", root=root)
    outside = await memory.navigate("now make it right", root=root)

    assert inside[0].path == "billing/invoice.py"
    assert "used in this session" in inside[0].reasons
    assert all("used in this session" not in place.reasons for place in outside)


async def test_a_deleted_file_is_never_offered(memory: mica.Memory, root: Path, clock: HandClock) -> None:
    """keeps: TA-11. Only files of the current tree are offered."""
    turn(memory, clock, "s1", "customers are charged twice", "billing/invoice.py", "billing/gone.py", "/etc/passwd")
    turn(memory, clock, "s1", "thanks")
    assert (await memory.navigate("charged twice", root=root))[0].path == "billing/invoice.py"
    (root / "billing/invoice.py").unlink()

    places = await memory.navigate("charged twice in billing/invoice.py", root=root)

    assert {place.path for place in places} <= set(FILES) - {"billing/invoice.py"}


async def test_known_files_that_are_not_on_this_disk_are_counted(
    memory: mica.Memory, tmp_path: Path, clock: HandClock
) -> None:
    """Otherwise an empty answer would say that nothing is known."""
    (tmp_path / "empty").mkdir()
    turn(memory, clock, "s1", "customers are charged twice", "billing/invoice.py", "billing/cart.py")
    turn(memory, clock, "s1", "thanks")

    places = await memory.navigate("charged twice", root=tmp_path / "empty")

    assert places == []
    assert places.missing["files"] == "known files are not on this disk: 2"


async def test_an_edit_is_seen_by_the_next_question(memory: mica.Memory, root: Path) -> None:
    before = await memory.navigate("voucher", root=root)
    (root / "billing/voucher_rules.py").write_text("def voucher():\n    return 'voucher'\n", encoding="utf-8")

    after = await memory.navigate("voucher", root=root)

    assert "billing/voucher_rules.py" not in {place.path for place in before}
    assert after[0].path == "billing/voucher_rules.py"


async def test_the_index_is_saved_outside_the_repository(home: mica.Settings, root: Path, tmp_path: Path) -> None:
    """A second process reads the saved index; a damaged file is rebuilt."""
    files = sorted(path for path in root.rglob("*") if ".git" not in path.parts)
    async with mica.open(tmp_path / "space.db", settings=home) as memory:
        first = await memory.navigate("login redirect", root=root)
    saved = list((home.home / "navigation").glob("*.index"))
    assert len(saved) == 1
    assert sorted(path for path in root.rglob("*") if ".git" not in path.parts) == files
    for content in (saved[0].read_bytes(), b"broken"):
        saved[0].write_bytes(content)
        async with mica.open(tmp_path / "space.db", settings=home) as memory:
            assert await memory.navigate("login redirect", root=root) == first


async def test_each_commit_is_learned_once_with_its_subject_and_renames(
    memory: mica.Memory, root: Path, clock: HandClock
) -> None:
    """A renamed file is offered by its new name.

    keeps: M-20. The reason says that the file was changed for the commit, since a commit does not read files.
    """

    def git(*args: str) -> None:
        name = ("-c", "user.name=a", "-c", "user.email=a@b.c")
        subprocess.run(["git", "-C", str(root), *name, *args], check=True, capture_output=True)

    git("add", "-A")
    git("commit", "-qm", "Round amounts half to even")
    git("mv", "billing/invoice.py", "billing/amounts.py")
    git("commit", "-qm", "Move")
    clock.at = datetime.now(UTC)

    done = await memory.trails.learn_commits(root=root)
    again = await memory.trails.learn_commits(root=root)
    places = await memory.navigate("rounding half to even", root=root)

    assert (done.stored, done.repeated) == (2, 0)
    assert (again.stored, again.repeated) == (0, 2)
    assert "history" not in places.missing
    found = {place.path: place for place in places}
    assert "changed for “Round amounts half to even”" in found["billing/amounts.py"].reasons
    assert "billing/invoice.py" not in found


async def test_missing_git_and_files_are_named(memory: mica.Memory, tmp_path: Path) -> None:
    """Without git and history there is still an answer, and `missing` explains what it lacks."""
    folder = tmp_path / "plain"
    (folder / "node_modules").mkdir(parents=True)
    (folder / "login.py").write_text("def login(): ...\n", encoding="utf-8")
    (folder / "node_modules" / "login.js").write_text("login", encoding="utf-8")
    (folder / "outside.py").symlink_to(tmp_path / "secret.py")
    (folder / "picture.png").write_bytes(b"\x89PNG\0login")

    places = await memory.navigate("login", root=folder)

    assert [place.path for place in places] == ["login.py"]
    assert {"git", "history"} <= places.missing.keys()
    with pytest.raises(mica.InvalidInput, match="no git history"):
        await memory.trails.learn_commits(root=folder)
    with pytest.raises(mica.InvalidInput, match="places are not possible"):
        await memory.navigate("login", root=folder, limit=-1)


async def test_the_weights_of_signals_are_learned_from_tasks(
    home: mica.Settings, root: Path, tmp_path: Path, clock: HandClock
) -> None:
    """Each task is learned from once, and changes the next answer."""
    async with mica.open(tmp_path / "space.db", settings=home, clock=clock) as memory:
        for _ in range(4):
            turn(memory, clock, "s1", "customers are charged twice on an invoice", "billing/invoice.py")
        assert await memory.trails.learn_tasks(root=root) == 0, "the last task may still be running"
        clock.move(hours=1)
        before = (await memory.navigate("charged twice", root=root))[0]

        count = await memory.trails.learn_tasks(root=root)

        assert count == 4
        assert await memory.trails.learn_tasks(root=root) == 0
        after = (await memory.navigate("charged twice", root=root))[0]
        assert after.path == before.path == "billing/invoice.py"
        assert after.probability != before.probability


async def test_tasks_imported_late_are_learned_from(
    home: mica.Settings, root: Path, tmp_path: Path, clock: HandClock
) -> None:
    """A transcript may be older than the tasks learned so far. It is predicted from its own past, and counts once."""
    async with mica.open(tmp_path / "space.db", settings=home, clock=clock) as memory:
        early = clock()
        clock.move(days=2)
        turn(memory, clock, "s1", "customers are charged twice on an invoice", "billing/invoice.py")
        clock.move(hours=1)
        assert await memory.trails.learn_tasks(root=root) == 1
        first = load_learned(learned_file(home.home, space=memory.space))
        for number in range(3):
            step = {"path": "auth/session.py", "operation": "read"}
            memory.trails.record(
                "the login loses its cookie", [step], session="old", at=early + timedelta(hours=number)
            )

        assert await memory.trails.learn_tasks(root=root) == 3
        assert await memory.trails.learn_tasks(root=root) == 0

        second = load_learned(learned_file(home.home, space=memory.space))
        assert first is not None
        assert second is not None
        assert second.model.tasks > first.model.tasks
        assert (len(first.task_numbers), len(second.task_numbers)) == (1, 4)


@pytest.mark.parametrize("on", [True, False])
async def test_nothing_is_learned_while_learning_is_switched_off(
    home: mica.Settings, root: Path, tmp_path: Path, clock: HandClock, *, on: bool
) -> None:
    """keeps: A-47. Neither trails nor weights are learned; waiting tasks are learned after it is switched on again."""
    async with mica.open(tmp_path / "space.db", settings=home, clock=clock) as memory:
        memory.emit("session.started", {"cwd": str(root)})
        for _ in range(4):
            turn(memory, clock, "s1", "customers are charged twice on an invoice", "billing/invoice.py")
        await memory.trails.switch(on=on)
        clock.move(hours=1)

        assert "evolve" in {each.kind for each in await memory.upkeep.tick()}

        assert await memory.trails.learn_tasks(root=root) == (0 if on else 4)


async def test_files_are_those_of_the_space_not_of_the_current_directory(
    home: mica.Settings, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """keeps: K-09. In another folder, a space offers its own files; a missing directory is reported."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "invoice.py").write_text("charged twice")
    monkeypatch.chdir(elsewhere)
    async with mica.open(tmp_path / "space.db", settings=home) as memory:
        assert await memory.events.directory() == elsewhere, "no session was recorded yet"
        memory.emit("session.started", {"cwd": str(root)})
        assert await memory.events.directory() == root
        assert [place.path for place in await memory.navigate("charged twice on an invoice", limit=1)] == [
            "billing/invoice.py"
        ]
        memory.emit("session.started", {"cwd": str(tmp_path / "gone")})
        places = await memory.navigate("charged twice")
        assert (list(places), list(places.missing)) == ([], ["files"])


async def test_work_continues_after_its_caller_was_cancelled(root: Path, tmp_path: Path) -> None:
    """A cancelled caller returns at once, and the next question waits for the lock."""
    store, now = EphemeralStore(), datetime(2026, 1, 1, tzinfo=UTC)
    navigating = Navigator(store.log, store.trails, root, space=store.space, home=tmp_path)
    await navigating.prepare(now=now)
    pipe = learned_file(tmp_path, space=store.space)  # reading it blocks until a writer opens it
    os.mkfifo(pipe)

    asking = asyncio.ensure_future(navigating.rank("the cookie", walked=()))
    writing = await asyncio.to_thread(os.open, pipe, os.O_WRONLY)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    was_busy = navigating.is_busy
    pipe.unlink()
    os.close(writing)

    assert was_busy
    assert await navigating.rank("the cookie", walked=()) == []
    assert not navigating.is_busy
    await navigating.close()


def prompt(sequence: int, text: str, paths: Sequence[str], *, after_s: float, session: str) -> list[Event]:
    context = Context(session=session)
    mark = build(sequence, "mark", {"text": text, "tags": ["prompt"]}, after_s=after_s, context=context, origin="user")
    read = [
        build(sequence + place, "file.read", {"path": path}, parent=mark, after_s=after_s + place, context=context)
        for place, path in enumerate(paths, 1)
    ]
    return [mark, *read]


@given(st.lists(st.tuples(some_words, some_paths, st.sampled_from(["s1", "s2"])), max_size=8), st.integers(0, 8))
def test_later_events_do_not_change_an_earlier_answer(
    turns: list[tuple[str, tuple[str, ...], str]], count: int
) -> None:
    """The history is read up to a time, so a question of the past uses nothing later."""
    events = [
        event
        for place, (text, paths, session) in enumerate(turns)
        for event in prompt(100 * place + 1, text or "go on", paths, after_s=60 * place, session=session)
    ]
    now = START_AT + timedelta(seconds=60 * count)
    question = PromptQuestion(text="login cookie")

    def answer(known: list[Event]) -> list[Place]:
        past, _ = read_history(known, now)
        return Predictor(tree_of([{}] * 5), past).rank(question)

    assert answer(events) == answer([event for event in events if event.at <= now])

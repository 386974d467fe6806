"""What `memory.navigate` promises, on every store and a working tree made here."""

from __future__ import annotations

import asyncio
import os
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import mica
from mica.navigation.navigator import Navigating, learned_file, load_learned
from mica.store.reference.store import EphemeralStore
from mica.testing import HandClock

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
    """A prompt and the files that were read for it, one a second."""
    with memory.context(session=session):
        asked = memory.mark(prompt, tags="prompt", origin="user")
        for path in paths:
            clock.move(seconds=1)
            memory.emit("file.read", {"path": path}, parent=asked, origin="tool")
    clock.move(seconds=1)


async def test_navigate_answers_with_typed_places_from_an_empty_history(memory: mica.Memory, root: Path) -> None:
    """TA-12, A-42: a typed result that says how sure it is and why; names and words alone do without history."""
    places = await memory.navigate("the login redirect in auth/session.py loses the cookie", root=root)

    assert places[0].path == "auth/session.py"
    assert places[0].tier == "named"
    assert "named in the prompt" in places[0].reasons
    assert {place.path for place in places} <= set(FILES)
    assert all(0 <= place.probability <= 0.9 and place.reasons for place in places)


async def test_what_similar_prompts_needed_is_offered(memory: mica.Memory, root: Path, clock: HandClock) -> None:
    """A-16, K-05: history counts beside words, and the tier says so."""
    turn(memory, clock, "s1", "customers are charged twice", "billing/invoice.py")
    turn(memory, clock, "s1", "thanks")

    places = await memory.navigate("charged twice again", root=root)

    assert places[0].path == "billing/invoice.py"
    assert places[0].tier == "walked"
    assert "similar task: «customers are charged twice»" in places[0].reasons


async def test_what_this_session_touched_comes_before_what_words_say(
    memory: mica.Memory, root: Path, clock: HandClock
) -> None:
    turn(memory, clock, "s1", "customers are charged twice", "billing/invoice.py")

    with memory.context(session="s1"):
        inside = await memory.navigate("now make it right", root=root)
    outside = await memory.navigate("now make it right", root=root)

    assert inside[0].path == "billing/invoice.py"
    assert "this session" in inside[0].reasons
    assert all("this session" not in place.reasons for place in outside)


async def test_a_file_that_is_gone_is_never_offered(memory: mica.Memory, root: Path, clock: HandClock) -> None:
    """TA-11: the tree as it is now decides, whatever was done with a file before."""
    turn(memory, clock, "s1", "customers are charged twice", "billing/invoice.py", "billing/gone.py", "/etc/passwd")
    turn(memory, clock, "s1", "thanks")
    assert (await memory.navigate("charged twice", root=root))[0].path == "billing/invoice.py"
    (root / "billing/invoice.py").unlink()

    places = await memory.navigate("charged twice in billing/invoice.py", root=root)

    assert {place.path for place in places} <= set(FILES) - {"billing/invoice.py"}


async def test_an_edit_is_seen_by_the_next_question(memory: mica.Memory, root: Path) -> None:
    before = await memory.navigate("voucher", root=root)
    (root / "billing/voucher_rules.py").write_text("def voucher():\n    return 'voucher'\n", encoding="utf-8")

    after = await memory.navigate("voucher", root=root)

    assert "billing/voucher_rules.py" not in {place.path for place in before}
    assert after[0].path == "billing/voucher_rules.py"


async def test_the_index_is_kept_outside_of_the_repository(home: mica.Settings, root: Path, tmp_path: Path) -> None:
    """A second process reads what the first has kept; a broken file is made again."""
    files = sorted(path for path in root.rglob("*") if ".git" not in path.parts)
    async with mica.open(tmp_path / "space.db", settings=home) as memory:
        first = await memory.navigate("login redirect", root=root)
    kept = list((home.home / "navigation").glob("*.index"))
    assert len(kept) == 1
    assert sorted(path for path in root.rglob("*") if ".git" not in path.parts) == files
    for content in (kept[0].read_bytes(), b"broken"):
        kept[0].write_bytes(content)
        async with mica.open(tmp_path / "space.db", settings=home) as memory:
            assert await memory.navigate("login redirect", root=root) == first


async def test_git_teaches_subjects_and_renames_and_each_commit_once(
    memory: mica.Memory, root: Path, clock: HandClock
) -> None:
    """`mica learn git`: what changed for which subject; a file is known by its new name.

    M-20: a commit is no reading, so a reason that rests on one says that the file was changed for it.
    """

    def git(*args: str) -> None:
        name = ("-c", "user.name=a", "-c", "user.email=a@b.c")
        subprocess.run(["git", "-C", str(root), *name, *args], check=True, capture_output=True)

    git("add", "-A")
    git("commit", "-qm", "Round amounts half to even")
    git("mv", "billing/invoice.py", "billing/amounts.py")
    git("commit", "-qm", "Move")
    clock.at = datetime.now(UTC)

    done = await memory.learn_git(root=root)
    again = await memory.learn_git(root=root)
    places = await memory.navigate("rounding half to even", root=root)

    assert (done.stored, done.repeated) == (2, 0)
    assert (again.stored, again.repeated) == (0, 2)
    assert "history" not in places.missing
    found = {place.path: place for place in places}
    assert "changed for «Round amounts half to even»" in found["billing/amounts.py"].reasons
    assert "billing/invoice.py" not in found


async def test_what_is_missing_is_named(memory: mica.Memory, tmp_path: Path) -> None:
    """Without git and without history there is an answer, and it says so."""
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
        await memory.learn_git(root=folder)
    with pytest.raises(mica.InvalidInput, match="places are not possible"):
        await memory.navigate("login", root=folder, limit=-1)


async def test_tasks_teach_what_signals_are_worth(
    home: mica.Settings, root: Path, tmp_path: Path, clock: HandClock
) -> None:
    """A-16: choose, use and learn, end to end: each task teaches once, and the next question is answered by it."""
    async with mica.open(tmp_path / "space.db", settings=home, clock=clock) as memory:
        for _ in range(4):
            turn(memory, clock, "s1", "customers are charged twice on an invoice", "billing/invoice.py")
        assert await memory.learn_navigation(root=root) == 0, "the last may still go on"
        clock.move(hours=1)
        before = (await memory.navigate("charged twice", root=root))[0]

        taught = await memory.learn_navigation(root=root)

        assert taught == 4
        assert await memory.learn_navigation(root=root) == 0
        after = (await memory.navigate("charged twice", root=root))[0]
        assert after.path == before.path == "billing/invoice.py"
        assert after.probability != before.probability


async def test_what_is_imported_late_teaches_too(
    home: mica.Settings, root: Path, tmp_path: Path, clock: HandClock
) -> None:
    """A-16: a transcript may be older than what has taught already; it is asked with its own past, and counts once."""
    async with mica.open(tmp_path / "space.db", settings=home, clock=clock) as memory:
        early = clock()
        clock.move(days=2)
        turn(memory, clock, "s1", "customers are charged twice on an invoice", "billing/invoice.py")
        clock.move(hours=1)
        assert await memory.learn_navigation(root=root) == 1
        first = load_learned(learned_file(home.home, space=memory.space))
        for number in range(3):
            step = {"path": "auth/session.py", "operation": "read"}
            memory.walk("the login loses its cookie", [step], session="old", at=early + timedelta(hours=number))

        assert await memory.learn_navigation(root=root) == 3
        assert await memory.learn_navigation(root=root) == 0

        second = load_learned(learned_file(home.home, space=memory.space))
        assert first is not None
        assert second is not None
        assert second.model.tasks > first.model.tasks
        assert (len(first.taught), len(second.taught)) == (1, 4)


@pytest.mark.parametrize("on", [True, False])
async def test_a_day_teaches_nothing_while_learning_is_switched_off(
    home: mica.Settings, root: Path, tmp_path: Path, clock: HandClock, *, on: bool
) -> None:
    """A-47: neither trails nor what signals are worth; what waits is learned when it is switched on again."""
    async with mica.open(tmp_path / "space.db", settings=home, clock=clock) as memory:
        memory.emit("session.started", {"cwd": str(root)})
        for _ in range(4):
            turn(memory, clock, "s1", "customers are charged twice on an invoice", "billing/invoice.py")
        await memory.trails.switch(on=on)
        clock.move(hours=1)

        assert "evolve" in {each.kind for each in await memory.tick()}

        assert await memory.learn_navigation(root=root) == (0 if on else 4)


async def test_files_are_those_of_the_space_and_not_of_wherever_one_stands(
    home: mica.Settings, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """K-09: asked from another folder, a space speaks of its own; one that is not here is named as missing."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "invoice.py").write_text("charged twice")
    monkeypatch.chdir(elsewhere)
    async with mica.open(tmp_path / "space.db", settings=home) as memory:
        assert await memory.directory() == elsewhere, "nothing says otherwise yet"
        memory.emit("session.started", {"cwd": str(root)})
        assert await memory.directory() == root
        assert [place.path for place in await memory.navigate("charged twice on an invoice", limit=1)] == [
            "billing/invoice.py"
        ]
        memory.emit("session.started", {"cwd": str(tmp_path / "gone")})
        places = await memory.navigate("charged twice")
        assert (list(places), list(places.missing)) == ([], ["files"])


async def test_a_thread_that_works_on_after_its_caller_has_gone_works_alone(root: Path, tmp_path: Path) -> None:
    """Who was cancelled is not waited for, and the next still waits until the tree is nobody else's."""
    store, now = EphemeralStore(), datetime(2026, 1, 1, tzinfo=UTC)
    navigating = Navigating(store, root, home=tmp_path)
    await navigating.ready(now=now)
    pipe = learned_file(tmp_path, space=store.space)  # reading it waits for somebody who writes
    os.mkfifo(pipe)

    asking = asyncio.ensure_future(navigating.ranked("the cookie", walked=()))
    writing = await asyncio.to_thread(os.open, pipe, os.O_WRONLY)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    was_busy = navigating.is_busy
    pipe.unlink()
    os.close(writing)

    assert was_busy
    assert await navigating.ranked("the cookie", walked=()) == []
    assert not navigating.is_busy
    await navigating.close()

"""`memory.clients`: transcripts and hooks of coding agents, through the front door."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

import mica
from mica import hook, spool_news
from mica.clients import api, spool
from mica.clients.spool import SessionAnswer, Spools, hooks_folder
from mica.errors import StoreUnavailable
from mica.model.event import Event, EventQuery
from mica.model.walk import walks_of
from mica.settings import Settings

ROLLOUT = Path(__file__).parents[1] / "fixtures" / "codex" / "rollout.jsonl"


async def test_a_transcript_is_unread_until_it_is_imported(home: Settings) -> None:
    async with mica.open(":memory:", settings=home) as memory:
        assert await memory.clients.unread([ROLLOUT, ROLLOUT.with_name("gone.jsonl")]) == [ROLLOUT]

        done = await memory.clients.import_transcripts([ROLLOUT])

        assert (done.files, done.failed) == (1, {})
        assert await memory.clients.unread([ROLLOUT]) == []
        assert len(await memory.events.query(EventQuery(limit=None))) == done.events + 1, "and the offset"


async def test_paths_are_relative_to_the_root_that_is_named(home: Settings) -> None:
    async with mica.open(":memory:", settings=home) as memory:
        await memory.clients.import_transcripts([ROLLOUT], root={ROLLOUT: Path("/home/dev")})

        [first, *_] = await memory.events.query(EventQuery(names=("file.read",), limit=None))
        assert first.data["path"] == "shop/src/auth.py"


async def test_an_ingest_stores_and_renders_and_a_read_only_stores(tmp_path: Path, home: Settings) -> None:
    folder = hooks_folder(tmp_path / "space.db")
    line = {"v": 1, "at": 1_794_742_952_000_000, "client": "claude", "event": "UserPromptSubmit", "directory": "/p"}
    payload = {"session_id": "s1", "prompt_id": "p1", "prompt": "Always use uv run"}
    (folder / "spool").mkdir(parents=True)
    (folder / "spool" / "s1.jsonl").write_text(json.dumps(line | {"payload": payload}) + "\n")

    async with mica.open(tmp_path / "space.db", settings=home) as memory:
        assert "mark" in {event.name for event in await memory.events.query()}
        assert not (folder / "session.json").exists()

        done = await memory.clients.ingest()

        assert (done.lines, done.is_busy) == (0, False)
        assert (folder / "session.json").exists()


async def test_a_store_in_memory_has_no_hooks(home: Settings) -> None:
    async with mica.open(":memory:", settings=home) as memory:
        assert memory.clients.spools is None
        assert await memory.events.query() == []
        with pytest.raises(mica.InvalidInput, match="no hooks write"):
            await memory.clients.ingest()


FIXTURES = Path(__file__).parents[1] / "fixtures"
CLAUDE = FIXTURES / "hooks" / "claude-code.jsonl"
BEGIN = 1_794_742_952_000_000


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return hooks_folder(tmp_path / "space.db")


@pytest.fixture
def spools(folder: Path) -> Spools:
    return Spools(folder)


def lines(count: int, session: str = "s1") -> Iterator[dict[str, object]]:
    """A prompt, and so many reads."""
    prompt = {"session_id": session, "prompt_id": f"p-{session}", "prompt": "go"}
    yield {"v": 1, "at": BEGIN, "client": "claude", "event": "UserPromptSubmit", "directory": "/p", "payload": prompt}
    for number in range(count):
        read = {
            "tool_name": "Read",
            "tool_use_id": f"{session}-{number}",
            "tool_input": {"file_path": f"/p/{number}.py"},
        }
        payload = {"session_id": session, "prompt_id": f"p-{session}", **read}
        at = BEGIN + number + 1
        yield {"v": 1, "at": at, "client": "claude", "event": "PostToolUse", "directory": "/p", "payload": payload}


def write(folder: Path, told: Iterator[dict[str, object]], session: str = "s1") -> Path:
    path = folder / "spool" / f"{session}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as opened:
        opened.writelines(json.dumps(line, separators=(",", ":")) + "\n" for line in told)
    return path


def respond(home: Path, raw: bytes, *words: str, directory: Path | None = None) -> None:
    """Tell the hook something, in this process."""
    environment = {b"HOME": os.fsencode(home), b"MICA_HOME": os.fsencode(home / "data")}
    if directory is not None:
        environment[b"CLAUDE_PROJECT_DIR"] = os.fsencode(directory)
    hook.respond(list(words), environment, raw, hook.HookPaths())


async def steps(memory: mica.Memory) -> list[str]:
    events = await memory.events.query(EventQuery(names=("file.*",), limit=None))
    return [str(event.data["path"]) for event in events]


async def test_the_next_open_ingests_every_line_once_and_in_order(
    tmp_path: Path, folder: Path, spools: Spools, home: Settings
) -> None:
    """keeps: A-01, A-12. No server is needed; the next process stores the spooled events."""
    write(folder, lines(20))
    write(folder, lines(5, "s2"), "s2")

    async with mica.open(tmp_path / "space.db", settings=home) as memory:
        assert len(await steps(memory)) == 25
        first = await memory.events.query(EventQuery(session="s1", limit=None))
        assert [event.data["path"] for event in first if event.name == "file.read"] == [f"{n}.py" for n in range(20)]
        assert not spools.has_news()
        write(folder, iter([*lines(21)][21:]))
        again = await memory.events.query(EventQuery(session="s1", limit=None))
        assert [event.id for event in again[:-1]] == [event.id for event in first]
        (walk,) = walks_of(again)
        assert len(walk.steps) == 21


async def test_a_space_that_only_hooks_have_used_can_be_read(tmp_path: Path, folder: Path, home: Settings) -> None:
    write(folder, lines(1))

    async with mica.open(tmp_path / "space.db", settings=home, must_exist=True) as memory:
        assert await steps(memory) == ["0.py"]


async def test_a_short_first_line_is_read_once_as_the_spool_grows(tmp_path: Path, folder: Path, home: Settings) -> None:
    """keeps: A-12. Events without an id are numbered, so reading a line again would store it twice."""
    told = {"v": 1, "at": BEGIN, "client": "copilot", "event": "userPromptSubmitted", "payload": {"prompt": "go"}}
    path = write(folder, iter([told]), "s3")
    assert path.stat().st_size < spool_news.FINGERPRINT_BYTES // 2

    async with mica.open(tmp_path / "space.db", settings=home) as memory:
        assert len(await memory.events.query(EventQuery(names=("mark",)))) == 1
        write(folder, iter([{**told, "at": BEGIN + 1, "event": "agentStop", "payload": {}}]), "s3")
        assert len(await memory.events.query(EventQuery(names=("mark",)))) == 1


async def test_half_a_character_loses_nothing_else(tmp_path: Path, folder: Path, home: Settings) -> None:
    """keeps: A-12. JavaScript may cut a text inside a surrogate pair, which other JSON readers refuse."""
    project = tmp_path / "shop"
    project.mkdir()
    cut = rb'{"session_id":"s1","prompt_id":"p1","prompt":"whole \ud83d\ude00 caf\u00e9, cut \ud83d","\udc00":[1]}'
    respond(tmp_path / "home", cut, "claude", "UserPromptSubmit", directory=project)
    (written,) = (tmp_path / "home").rglob("s1.jsonl")
    shutil.copytree(written.parent, folder / "spool")

    async with mica.open(tmp_path / "space.db", settings=home) as memory:
        (prompt,) = await memory.events.query(EventQuery(names=("mark",)))
        assert prompt.data["text"] == "whole 😀 café, cut ?"


class Cut(Exception):
    """The end of a process, at a point."""


@pytest.mark.parametrize("point", ["before the append", "after the append", "within the cursor", "after the cursor"])
@pytest.mark.parametrize("number", range(4))
async def test_an_ingest_interrupted_anywhere_loses_and_doubles_nothing(
    tmp_path: Path, folder: Path, home: Settings, monkeypatch: pytest.MonkeyPatch, point: str, number: int
) -> None:
    """keeps: K-48. A spool line is removed only after it is stored; stored twice, it is the same event."""
    monkeypatch.setattr(spool, "BATCH_BYTES", 600)  # a few lines at a time
    write(folder, lines(12))
    copilot = {"toolName": "view", "toolArgs": {"path": "/p/again.py"}, "toolResult": "x", "sessionId": "s3"}
    nameless = {"v": 1, "client": "copilot", "event": "postToolUse", "directory": "/p", "payload": copilot}
    write(folder, iter([{**nameless, "at": BEGIN + index} for index in range(6)]), "s3")
    passed = 0

    def reach(here: str) -> None:
        nonlocal passed
        if here == point:
            passed += 1
            if passed == number + 1:
                raise Cut

    memory = await mica.open(tmp_path / "space.db", settings=home)
    append, save_cursor, rename = memory._log.append, Spools.save_cursor, Path.rename

    async def appending(events: object) -> object:
        reach("before the append")
        done = await append(events)  # type: ignore[arg-type]
        reach("after the append")
        return done

    def reaching(self: Spools, *args: object) -> None:
        save_cursor(self, *args)  # type: ignore[arg-type]
        reach("after the cursor")

    def renaming(self: Path, target: Path) -> Path:
        if target.suffix == ".cursor":
            reach("within the cursor")
        return rename(self, target)

    assert memory.clients._ingester is not None
    memory.clients._ingester._append = appending  # type: ignore[assignment]
    with monkeypatch.context() as patched:
        patched.setattr(Spools, "save_cursor", reaching)
        patched.setattr(Path, "rename", renaming)
        with pytest.raises(Cut):
            await memory.clients._ingester.ingest()
    await memory.close()

    async with mica.open(tmp_path / "space.db", settings=home) as later:
        stored = await later.events.query(EventQuery(names=("file.*", "mark"), limit=None))
    assert len([event for event in stored if event.context.session == "s1"]) == 13
    assert len([event for event in stored if event.context.session == "s3"]) == 6


def test_killed_ingests_lose_and_double_nothing(tmp_path: Path, home: Settings) -> None:
    """keeps: K-41, A-39. Several ingests are killed with `kill -9`, then one runs to its end."""
    folder = hooks_folder(tmp_path / "space.db")
    for number in range(30):
        write(folder, lines(100, f"s{number}"), f"s{number}")
    words = [sys.executable, "-m", "mica", "ingest", "--store", str(tmp_path / "space.db"), "--json"]
    environment = {
        **os.environ,
        "HOME": str(home.home.parent),
        "MICA_SEMANTIC": "off",
        "MICA_TRAILS_LEARN": "false",
        "MICA_CRYSTALS_AUTO": "false",
    }

    for size in (1, 200_000, 400_000, 600_000):
        grown = 0
        process = subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while process.poll() is None:
            with suppress(FileNotFoundError):  # SQLite removes its journal whenever it likes
                files = [file for file in tmp_path.glob("space.db*") if file.is_file()]
                grown = sum(file.stat().st_size for file in files)
            if grown >= size:
                process.kill()
                process.wait()
    subprocess.run(words, env=environment, check=True, stdout=subprocess.DEVNULL)

    listed = [sys.executable, "-m", "mica", "doctor", "--store", str(tmp_path / "space.db"), "--json"]
    told = json.loads(subprocess.run(listed, env=environment, check=True, capture_output=True).stdout)
    assert told["marks"] == 30
    assert told["events"] == 30 * (1 + 1 + 100) + 1, "session, prompt, reads; and the brief"
    assert told["healthy"]


async def test_two_concurrent_ingests_store_each_line_once(tmp_path: Path, folder: Path, home: Settings) -> None:
    """One process ingests a space at a time; the other skips it."""
    write(folder, lines(50))
    async with (
        mica.open(tmp_path / "space.db", settings=home) as one,
        mica.open(tmp_path / "space.db", settings=home) as two,
    ):
        results = await asyncio.gather(one.clients.ingest(), two.clients.ingest(), one.clients.ingest())

        assert sum(done.events for done in results) == 52
        assert len(await steps(two)) == 50


async def test_an_ingest_waits_for_another_and_then_renders(tmp_path: Path, folder: Path, home: Settings) -> None:
    """A reader may be storing the lines just when a session ends; its end is in the rendered brief all the same."""
    write(folder, lines(3))
    other = Spools(folder)
    async with mica.open(tmp_path / "space.db", settings=home) as memory:
        with other.lock() as is_ours:
            assert is_ours
            ingesting = asyncio.create_task(memory.clients.ingest())
            for _ in range(1_000):
                await asyncio.sleep(0)
            assert not ingesting.done()
        done = await ingesting

    assert (done.is_busy, done.lines) == (False, 4)
    assert other.session_answer() is not None


async def test_an_ingest_gives_up_after_a_while(
    tmp_path: Path, folder: Path, home: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api, "BUSY_S", 0.01)
    write(folder, lines(3))
    async with mica.open(tmp_path / "space.db", settings=home) as memory:
        with Spools(folder).lock():
            done = await memory.clients.ingest()

    assert done.is_busy


async def test_torn_and_foreign_lines_do_not_affect_others(tmp_path: Path, folder: Path, home: Settings) -> None:
    """A full disk may leave half a line, with the next on it; a last line may still be being written."""
    first, second, third, fourth = [json.dumps(line, separators=(",", ":")) for line in lines(3)]
    path = write(folder, iter(()))
    path.write_text(f"{first}\n{second[:50]}{third}\n[]\n\nnonsense\n{fourth}")

    async with mica.open(tmp_path / "space.db", settings=home) as memory:
        done = await memory.clients.ingest()
        assert done.tally.broken == 3
        assert await steps(memory) == ["1.py"]
        with path.open("a") as opened:
            opened.write("\n")
        assert await steps(memory) == ["1.py", "2.py"]


async def test_a_stored_spool_is_removed_when_its_session_is_over(tmp_path: Path, folder: Path, home: Settings) -> None:
    end = {"v": 1, "at": BEGIN + 99, "client": "claude", "event": "SessionEnd", "payload": {"session_id": "s1"}}
    path = write(folder, iter([*lines(3), end]))
    other = write(folder, lines(3, "s2"), "s2")

    async with mica.open(tmp_path / "space.db", settings=home) as memory:
        await memory.clients.ingest()
        assert (path.exists(), other.exists()) == (False, True)
        write(folder, iter(list(lines(5))[4:]))  # the session is taken up again
        assert "3.py" in await steps(memory)
        os.utime(other, (0, 0))
        other.open("a").close()
        os.utime(other, (0, 0))
        write(folder, lines(1, "s5"), "s5")
        await memory.clients.ingest()
        assert not other.exists()


async def test_a_hook_writes_a_new_file_while_a_spool_is_removed(tmp_path: Path, folder: Path, home: Settings) -> None:
    """The remover holds a lock; a hook never waits and never writes into a removed file."""
    data = tmp_path / "home" / "data"
    project = tmp_path / "shop"
    project.mkdir()
    raw = json.dumps({"session_id": "s1", "prompt_id": "p1", "prompt": "go"}).encode()
    respond(tmp_path / "home", raw, "claude", "UserPromptSubmit", directory=project)
    (written,) = data.rglob("s1.jsonl")
    with written.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        read = {"session_id": "s1", "prompt_id": "p1", "tool_name": "Read", "tool_use_id": "t1"}
        raw = json.dumps({**read, "tool_input": {"file_path": str(project / "a.py")}}).encode()
        respond(tmp_path / "home", raw, "claude", "PostToolUse", directory=project)
        written.unlink()
    shutil.copytree(written.parent, folder / "spool", dirs_exist_ok=True)
    assert len(list((folder / "spool").iterdir())) == 1

    async with mica.open(tmp_path / "space.db", settings=home) as memory:
        assert await steps(memory) == ["a.py"]


def _text(event: Event) -> object:
    """The text of an event; none of a summary, because the recorded transcript has only the beginning of it."""
    return None if event.data.get("tags") == ["summary"] else event.data.get("text")


async def test_events_from_hooks_and_from_the_transcript_are_stored_once(
    tmp_path: Path, folder: Path, home: Settings
) -> None:
    """keeps: A-12, TC-11. Steps, prompts and closing words have the same ids, whichever comes first."""
    project = tmp_path / "hooked"
    project.mkdir()
    for raw in CLAUDE.read_bytes().splitlines():
        respond(tmp_path / "home", raw, "claude", json.loads(raw)["hook_event_name"])
    (written,) = (tmp_path / "home" / "data").rglob("*-hooks")
    transcripts = [
        FIXTURES / "claude-code" / f"{name}.jsonl" for name in ("transcript-a", "transcript-b-compact-resume")
    ]
    transcripts.append(FIXTURES / "claude-code" / "subagent.jsonl")
    root = Path("/home/dev/shop")
    told: dict[str, set[tuple[str, str, str | None]]] = {}

    for order in ("hooks", "hooks first", "transcripts", "transcripts first"):
        place = tmp_path / f"{order}.db"
        async with mica.open(place, settings=home) as memory:
            if order == "transcripts first":
                await memory.clients.import_transcripts(transcripts, root=root)
            if order != "transcripts":
                shutil.copytree(written, hooks_folder(place))
                await memory.clients.ingest()
            if order in ("hooks first", "transcripts"):
                await memory.clients.import_transcripts(transcripts, root=root)
            events = await memory.events.query(EventQuery(limit=None))
            told[order] = {
                (event.id, event.name, str(event.data.get("path") or _text(event)))
                for event in events
                if event.name.startswith(("file.", "shell.", "tool."))
                or event.name in ("mark", "command.run", "session.started")
            }

    ids = {order: {identifier for identifier, _, _ in found} for order, found in told.items()}
    assert ids["hooks first"] == ids["transcripts first"] == ids["transcripts"] | ids["hooks"]
    assert told["hooks"] <= told["transcripts"] | {
        one for one in told["hooks"] if one[1] in ("tool.run", "command.run")
    }
    steps_of = {order: {one for one in found if one[1].startswith("file.")} for order, found in told.items()}
    assert steps_of["hooks"] == steps_of["transcripts"]


async def test_answers_are_rendered_and_stay_identical(
    tmp_path: Path, folder: Path, spools: Spools, home: Settings
) -> None:
    """A hook prints a brief rendered earlier, with a receipt; the same knowledge gives the same bytes."""
    write(folder, lines(3))
    async with mica.open(tmp_path / "space.db", settings=home) as memory:
        memory.mark("The cookie is set before the redirect", tags=("gotcha",))
        await memory.clients.ingest()
        first = (folder / "session.json").read_bytes()
        await memory.clients.ingest()
        assert (folder / "session.json").read_bytes() == first
        answer = spools.session_answer()
        assert answer is not None
        assert "The cookie is set before the redirect" in answer.text
        assert (await memory.events.get(str(answer.receipt))).name == "brief"
        for number in range(300):
            memory.mark(f"Fact number {number}: " + "words and more words " * 20)
        await memory.clients.ingest()
        longer = spools.session_answer()
        assert longer is not None
        assert longer.text != answer.text
        assert len(longer.text) <= hook.ANSWER_CHARACTERS_MAX
        assert longer.text.endswith("</memory>")


async def test_the_hold_out_setting_reaches_hooks(tmp_path: Path, spools: Spools, home: Settings) -> None:
    """keeps: C-54. This holds if it changes while the brief and its receipt stay the same."""
    told: list[SessionAnswer | None] = []
    for share in (0.0, 0.25):
        settings = msgspec.structs.replace(home, brief=msgspec.structs.replace(home.brief, holdout=share))
        async with mica.open(tmp_path / "space.db", settings=settings) as memory:
            if not told:
                memory.mark("The cookie is set before the redirect", tags=("gotcha",))
            await memory.clients.ingest()
        told.append(spools.session_answer())

    first, second = told
    assert first is not None
    assert second is not None
    assert (first.holdout, second.holdout) == (0.0, 0.25)
    assert (first.text, first.receipt) == (second.text, second.receipt)


@pytest.mark.parametrize("act", ["purge", "retract"])
async def test_a_purged_or_retracted_mark_is_no_longer_answered(
    tmp_path: Path, folder: Path, spools: Spools, home: Settings, act: str
) -> None:
    """keeps: K-53. No answer and no spool contains purged text."""
    path = write(folder, lines(3))
    async with mica.open(tmp_path / "space.db", settings=home) as memory:
        mark = memory.mark("The launch code is swordfish")
        await memory.clients.ingest()
        assert b"swordfish" in (folder / "session.json").read_bytes()
        if act == "purge":
            await memory.purge(value="swordfish")
            assert not path.exists(), "it was stored whole"
        else:
            await memory.retract(mark.id, reason="it was never true")
        assert spools.session_answer() is None
        await memory.clients.ingest()
        left = (folder / "session.json").read_bytes() if (folder / "session.json").exists() else b""
        assert b"swordfish" not in left


async def test_an_unavailable_store_leaves_the_spool_as_it_is(tmp_path: Path, folder: Path, home: Settings) -> None:
    path = write(folder, lines(3))
    memory = await mica.open(tmp_path / "space.db", settings=home)
    before = path.read_bytes()

    async def away(_: object) -> object:
        raise StoreUnavailable("nobody answers")

    assert memory.clients._ingester is not None
    memory.clients._ingester._append = away  # type: ignore[assignment]
    with pytest.raises(StoreUnavailable):
        await memory.events.query()
    brief = await memory.brief()
    assert brief.missing["latest"] == "nobody answers"
    await memory.close()

    assert path.read_bytes() == before
    async with mica.open(tmp_path / "space.db", settings=home) as later:
        assert await steps(later) == ["0.py", "1.py", "2.py"]


async def test_times_are_those_of_the_hook(tmp_path: Path, folder: Path, home: Settings) -> None:
    write(folder, lines(1))

    async with mica.open(tmp_path / "space.db", settings=home) as memory:
        (event,) = await memory.events.query(EventQuery(names=("file.read",)))

    assert event.at == datetime.fromtimestamp(BEGIN / 1e6, UTC).replace(microsecond=1)


async def test_a_withdrawn_teaching_is_no_longer_answered(tmp_path: Path, spools: Spools, home: Settings) -> None:
    """keeps: K-53. The next session starts without it, even before answers are rendered again."""
    async with mica.open(tmp_path / "space.db", settings=home) as memory:
        with memory.context(session="s1"):
            marks = [memory.mark(f"Retries hide the error number {number} of the proxy") for number in range(12)]
            made = await memory.crystals.commit([("Retries hide errors", [mark.id for mark in marks[:3]])])
        teaching = await memory.crystals.promote(made.id, by="ann")
        await memory.clients.ingest()
        assert spools.session_answer() is not None

        await memory.crystals.withdraw(teaching.id, reason="mended")

        assert spools.session_answer() is None


def test_a_background_ingest_also_runs_due_work(tmp_path: Path, home: Settings) -> None:
    """keeps: A-17, A-22. If only hooks run, trails are still evolved daily and sessions closed."""
    write(hooks_folder(tmp_path / "space.db"), lines(3))
    words = [sys.executable, "-m", "mica", "--store", str(tmp_path / "space.db"), "--json"]
    environment = {**os.environ, "HOME": str(home.home.parent), "MICA_SEMANTIC": "off"}
    told = [
        subprocess.run([*words[:3], *command, *words[3:]], env=environment, check=True, capture_output=True).stdout
        for command in (["ingest"], ["upkeep", "tick"])
    ]
    assert json.loads(told[1]) == [], "nothing was left to do"

"""What hooks say at a prompt: the answer of `navigate`, to the byte, where the gate lets it speak."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import cast

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.hook_process import INSTALLED_HOOK, PATIENT_HOOK, in_time

import mica
from mica import hook
from mica.clients.spool import Spools, hooks_folder
from mica.model.event import Event, EventQuery
from mica.navigation.engine.gate import listed
from mica.navigation.engine.lookup_file import Kept, file_of, packed
from mica.navigation.engine.offers import offer
from mica.navigation.engine.prompt import Prompted, with_spooled
from mica.navigation.engine_copy import MODULES, engine, stemmer
from mica.navigation.navigator import Navigating, kept_at, past_file
from mica.navigation.tree_index import index_file
from mica.settings import ObserveSettings
from mica.store.protocol import Store
from mica.store.space import space_of
from mica.testing.builders import HandClock
from mica.tokens import about

PROMPT = "The session cookie is lost after the login redirect of the shop"
FILES = {
    "auth/session.py": "def renew_session(cookie):\n    return cookie\n\n"
    + "# the session cookie is renewed here\n" * 200,
    "auth/redirect.py": "class LoginRedirect:\n    pass\n" + "# redirect after login\n" * 150,
    "billing/invoice.py": "def total(lines):\n    return sum(lines)\n",
    "tests/test_session.py": "from auth.session import renew_session\n",
    "docs/login.md": "How people sign in.\n",
    "Ünïcode dir/naïve.py": "# résumé of the café\n",
}


class Shop:
    """A project, its space, and an agent that has worked in it."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "data"
        self.root = folder / "shop"
        self.program: tuple[str, ...] = PATIENT_HOOK
        for path, text in FILES.items():
            (self.root / path).parent.mkdir(parents=True, exist_ok=True)
            (self.root / path).write_text(text, encoding="utf-8")
        self.git("init", "-q")
        self.git("add", "-A")
        commit = ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "Renew the session cookie"]
        self.git(*commit)
        self.settings = mica.load_settings({"HOME": str(folder), "MICA_HOME": str(self.home), "MICA_SEMANTIC": "off"})
        self.file = space_of(self.root, home=self.home).file
        self.clock = HandClock()

    def git(self, *words: str) -> None:
        before = {"GIT_COMMITTER_DATE": "2026-01-01T00:00:00Z"}  # any work
        subprocess.run(["git", "-C", str(self.root), *words], check=True, capture_output=True, env=os.environ | before)

    def open(self, **changed: object) -> mica.memory.Opening:
        return mica.open(self.file, settings=msgspec.structs.replace(self.settings, **changed), clock=self.clock)

    def walk(self, memory: mica.Memory) -> None:
        """Six tasks of two kinds, each of which needs one file."""
        memory.emit("session.started", {"cwd": str(self.root)})
        for number in range(6):
            self.clock.move(hours=2)
            step = {"path": ("auth/session.py", "billing/invoice.py")[number % 2], "operation": "read"}
            memory.walk((PROMPT, "Invoices are wrong")[number % 2], [step], session=f"s{number}", at=self.clock())
        self.clock.move(hours=2)

    async def work(self, memory: mica.Memory, *, learns_git: bool = True) -> None:
        memory.emit("session.started", {"cwd": str(self.root)})
        asked = (
            (PROMPT, "auth/session.py", "auth/redirect.py"),
            ("Invoices show the wrong total for some customers", "billing/invoice.py"),
        )
        for number in range(12):
            self.clock.move(hours=2)
            prompt, *paths = asked[number % 2]
            steps = [
                {"path": paths[0], "operation": "search", "tokens": 700},
                *({"path": path, "operation": "read", "tokens": 50} for path in paths),
            ]
            memory.walk(prompt, steps, session=f"s{number}", at=self.clock())
        self.clock.move(hours=2)
        if learns_git:
            await memory.learn_git(root=self.root)
        assert await memory.learn_navigation(root=self.root) == 12
        await memory.ingest()

    def tell(self, prompt: str, *, session: str = "s0", directory: str = "") -> subprocess.CompletedProcess[bytes]:
        return self.hook("UserPromptSubmit", session=session, directory=directory, prompt=prompt)

    def hook(
        self, event: str, *, session: str, directory: str = "", **more: object
    ) -> subprocess.CompletedProcess[bytes]:
        told = {"session_id": session, "cwd": str(self.root / directory), "hook_event_name": event}
        return subprocess.run(
            [*self.program, "claude", event],
            input=json.dumps({**told, **more}).encode(),
            capture_output=True,
            env={"HOME": str(self.home), "MICA_HOME": str(self.home)},
            cwd=self.root / directory,
            check=True,
        )

    def said(self, prompt: str, *, session: str = "s0", directory: str = "") -> str:
        out = self.tell(prompt, session=session, directory=directory).stdout
        return str(json.loads(out)["hookSpecificOutput"]["additionalContext"]) if out else ""


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


@pytest.fixture
async def memory(shop: Shop) -> AsyncIterator[mica.Memory]:
    async with shop.open(observe=ObserveSettings(holdout=0.0)) as memory:
        await shop.work(memory)
        yield memory


@pytest.mark.parametrize("session", ["s0", "unknown"])
async def test_a_hook_says_what_navigate_answers(shop: Shop, memory: mica.Memory, session: str) -> None:
    """A-18, A-42, TA-01: one predictor; the same files, order, lines and reasons, from a process without mica."""
    places = await memory.navigate(PROMPT, session=session, root=shop.root)

    assert shop.said(PROMPT, session=session) == offer(listed(places))
    assert shop.said(PROMPT, session=session, directory="auth") == offer(listed(places))
    assert any(place.lines for place in listed(places))
    assert memory.spools is not None
    assert memory.spools.failures() == []


async def test_the_program_as_it_is_installed_answers_a_prompt(shop: Shop, memory: mica.Memory) -> None:
    """A-18, A-42: with its own time limit, and with no line of these tests in its process."""
    places = await memory.navigate(PROMPT, session="s0", root=shop.root)
    spools = memory.spools
    assert spools is not None
    shop.program = INSTALLED_HOOK

    said = in_time(lambda: shop.said(PROMPT), lambda: [failure.reason for failure in spools.failures()])

    assert said == offer(listed(places))


async def test_what_a_session_did_just_now_counts_at_its_next_prompt(shop: Shop, memory: mica.Memory) -> None:
    """A-42: before anything is ingested; the session's own files count most, and only for that session."""
    before = shop.said(PROMPT, session="now")
    done = {
        "Read": {"file_path": str(shop.root / "billing/invoice.py")},
        "Bash": {"command": "sed -n '1,9p' tests/test_session.py"},
    }

    for tool, called in done.items():
        shop.hook("PostToolUse", session="now", tool_name=tool, tool_input=called, tool_use_id=tool, tool_response={})

    after = [line for line in shop.said(PROMPT, session="now").splitlines() if "this session" in line]
    assert "this session" not in "".join(before.splitlines()[1:])
    assert {line.split()[1].partition(":")[0] for line in after} == {"billing/invoice.py", "tests/test_session.py"}
    assert shop.said(PROMPT, session="another") == before
    assert memory.spools is not None
    assert memory.spools.failures() == []


def test_what_was_heard_of_is_not_counted_twice() -> None:
    walked = [("a.py",), ("b.py",)]
    spooled = [(1.0, ["a.py"]), (2.0, None), (3.0, ["b.py"]), (4.0, ["c.py"]), (5.0, None), (6.0, ["d.py", "a.py"])]

    assert with_spooled(walked, 3.0, spooled) == [["a.py"], ["b.py", "c.py"], ["d.py", "a.py"]]
    assert with_spooled(walked, 6.0, spooled) == [["a.py"], ["b.py"]]
    assert with_spooled([], 0.0, spooled[:1]) == [["a.py"]]


async def test_a_hook_ranks_as_navigate_does(shop: Shop, memory: mica.Memory) -> None:
    """A-42: files, order, probabilities, tiers, reasons and lines agree for whatever is asked, also after an edit."""
    words = [*PROMPT.split(), "invoice", "totals", "auth/session.py:3-9", "renew_session", "Ünïcode", "café", "tests/"]
    loop = asyncio.get_running_loop()
    (shop.root / "auth/renamed.py").write_text("def renew_cookie():\n    pass\n" * 90)
    (shop.root / "docs/login.md").unlink()
    await memory.ingest()
    made = Spools(memory.spools.folder).prompt_answer() if memory.spools is not None else None
    assert made is not None

    @given(st.lists(st.sampled_from(words), max_size=8).map(" ".join), st.sampled_from(["s0", "s11", "none"]))
    @settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
    def ranks_alike(prompt: str, session: str) -> None:
        expected = asyncio.run_coroutine_threadsafe(
            memory.navigate(prompt, session=session, root=shop.root), loop
        ).result()
        with open(made.trees[str(shop.root)], "rb") as tree, open(made.past, "rb") as past:  # noqa: PTH123
            asked = Prompted(prompt, session, root=str(shop.root), tree=tree.fileno(), past=past.fileno())
        found = [
            (each.path, each.probability, each.tier, each.reasons, asked.lines(each.path)) for each in asked.places
        ]
        assert found == [
            (each.path, each.probability, each.tier, each.reasons, tuple((at.start, at.end) for at in each.lines))
            for each in expected
        ]

    await asyncio.to_thread(ranks_alike)


async def test_the_files_of_a_brief_are_those_of_navigate(shop: Shop, memory: mica.Memory) -> None:
    """A-42, C-16: one ranking for the hook, `navigate` and the brief, each file with what last touched it."""
    brief = await memory.brief(PROMPT, deadline_s=5.0)
    (passage,) = [each for each in brief.passages if each.source == "files"]

    expected = [place.path for place in await memory.navigate(PROMPT, root=shop.root)]
    told = [part.partition(" (")[0].partition(":")[0] for part in passage.text.split(", ")]
    touched = {"auth/session.py", "auth/redirect.py", "billing/invoice.py"}
    assert told == [path for path in expected if path in touched]
    reads = {str(event.id): event.data["path"] for event in await memory.events() if event.name == "file.read"}
    assert {reads[each] for each in passage.sources} == touched
    assert "files" not in brief.missing


async def test_the_gate_and_the_holdout_decide_whether_it_is_said(shop: Shop, memory: mica.Memory) -> None:
    """A-18, TA-06: nothing for a word or two, nothing where a file is named, nothing to a session that is held out."""
    assert shop.said("go on") == ""
    assert shop.said("Look at the session cookie of the login in auth/session.py") == ""
    assert memory.spools is not None
    made = memory.spools.prompt_answer()
    assert made is not None
    memory.spools.answer(hook.PROMPT_ANSWER, msgspec.structs.replace(made, holdout=1.0))

    assert shop.said(PROMPT, session="held") == ""

    spooled = (memory.spools.folder / "spool" / "held.jsonl").read_text()
    offered = json.loads(spooled.splitlines()[-1])["offered"]
    assert offered["held_out"] is True
    assert "auth/session.py" in offered["paths"]


async def test_a_replay_judges_what_a_hook_says(shop: Shop) -> None:
    """A-18, TA-01, M-15: what a replay counts is what a hook prints for that prompt with the same past, lines too."""
    async with shop.open(observe=ObserveSettings(holdout=0.0)) as memory:
        await shop.work(memory, learns_git=False)
        said = shop.said(PROMPT, session="other")
        step = {"path": "auth/session.py", "operation": "read", "tokens": 9}
        memory.walk(PROMPT, [step], session="last", at=shop.clock())
        *_, last = (await memory.replay_walks(root=shop.root)).rows

    (line,) = (hooks_folder(shop.file) / "spool" / "other.jsonl").read_text().splitlines()
    assert last.cost_tokens == about(said) > 0
    assert [guess.path for guess in last.offered] == json.loads(line)["offered"]["paths"]


async def test_a_space_without_counts_of_its_own_says_nothing(shop: Shop) -> None:
    """A-18: what a prior believes is no reason to speak; `navigate` answers all the same."""
    async with shop.open(observe=ObserveSettings(holdout=0.0)) as memory:
        memory.emit("session.started", {"cwd": str(shop.root)})
        step = {"path": "auth/session.py", "operation": "read"}
        memory.walk(PROMPT, [step], session="s0", at=shop.clock())
        shop.clock.move(hours=2)
        await memory.ingest()

        assert shop.said(PROMPT) == ""
        assert (await memory.navigate(PROMPT, root=shop.root))[0].path.startswith("auth/")
        assert memory.spools is not None
        assert memory.spools.failures() == []


async def test_opencode_is_offered_places_by_the_texts_of_its_message(shop: Shop, memory: mica.Memory) -> None:
    """A-18: its prompts are parts, as recorded; what a plugin added is none of the person's words."""
    recorded = (Path(__file__).parent.parent / "fixtures/hooks/opencode.jsonl").read_text().splitlines()
    told = next(told for line in recorded if (told := json.loads(line))["k"] == "chat.message")
    (part,) = told["output"]["parts"]

    def said(*parts: dict[str, object]) -> str:
        told["output"]["parts"] = [{**part, **more} for more in parts]
        done = subprocess.run(
            [*PATIENT_HOOK, "opencode", "chat.message"],
            input=json.dumps(told).encode(),
            capture_output=True,
            env={"HOME": str(shop.home), "MICA_HOME": str(shop.home)},
            cwd=shop.root,
            check=True,
        )
        return done.stdout.decode()

    first, _, rest = PROMPT.partition(" after ")
    assert "auth/session.py" in said({"text": first}, {"text": f"after {rest}"})
    assert said({"text": "go on"}, {"text": PROMPT, "synthetic": True}) == ""
    assert said({"text": 5}, {"type": "file", "text": None}) == ""


async def test_what_is_switched_off_retracted_or_elsewhere_is_not_offered(shop: Shop, memory: mica.Memory) -> None:
    """A-18, A-47, B-43: offers follow from the log without what was retracted, and can be switched off."""
    spools = memory.spools
    assert spools is not None
    assert shop.said(PROMPT) != ""
    for prompt in await memory.events(mica.EventQuery(names=("mark",), limit=None)):
        await memory.retract(prompt.id, reason="meant for another project")
    assert shop.said(PROMPT) == ""
    assert not spools.past.exists()  # what was retracted is in no file of ours
    await memory.ingest()
    assert "similar task" not in shop.said(PROMPT)

    async with shop.open(observe=ObserveSettings(offers=False)) as silent:
        await silent.ingest()
    assert shop.said(PROMPT) == ""
    assert not spools.past.exists()


async def test_an_ingest_without_news_writes_nothing(shop: Shop, memory: mica.Memory) -> None:
    """A-30: what hooks look up is written anew only when the log, what was learned or the tree has changed."""
    assert memory.spools is not None
    made = memory.spools.prompt_answer()
    assert made is not None
    files = [Path(made.past), Path(made.trees[str(shop.root)])]
    before = [(file.stat().st_ino, file.stat().st_mtime_ns) for file in files]

    await memory.ingest()
    same = [(file.stat().st_ino, file.stat().st_mtime_ns) for file in files]
    memory.walk("Something new", [{"path": "docs/login.md", "operation": "read"}], session="new", at=shop.clock())
    await memory.ingest()

    assert same == before
    assert files[0].stat().st_ino != before[0][0]
    assert files[1].stat().st_ino == before[1][0]


@pytest.mark.parametrize(
    "damage", ["past gone", "past cut off", "tree no tables", "engine gone", "library gone"], ids=lambda each: each
)
async def test_a_prompt_whose_answer_fails_is_observed_all_the_same(
    shop: Shop, memory: mica.Memory, damage: str
) -> None:
    """A-01, A-30: a damaged or missing file costs the answer, never the event, and the reason is kept."""
    spools = memory.spools
    assert spools is not None
    made = spools.prompt_answer()
    assert made is not None
    if damage == "past gone":
        spools.past.unlink()
    elif damage == "past cut off":
        spools.past.write_bytes(spools.past.read_bytes()[:100])
    elif damage == "tree no tables":
        Path(made.trees[str(shop.root)]).write_bytes(b"something else")
    else:
        gone = {"engine": "/nowhere"} if damage == "engine gone" else {"library": "/nowhere"}
        spools.answer(hook.PROMPT_ANSWER, msgspec.structs.replace(made, **gone))

    done = shop.tell(PROMPT)

    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert len(spools.failures()) == 1
    assert "UserPromptSubmit" in (spools.folder / "spool" / "s0.jsonl").read_text()


def test_the_engine_of_hooks_imports_nothing_but_the_standard_library_and_the_stemmer(tmp_path: Path) -> None:
    """A-30: what is slow to start stays out of an agent's way."""
    folder = engine(tmp_path)
    program = (
        f"import sys; sys.path[:0] = [{str(folder)!r}, {str(stemmer())!r}]; import mica.navigation.engine.prompt as p;"
        "print(*sorted({name.partition('.')[0] for name in sys.modules} - sys.stdlib_module_names), p.__file__)"
    )
    done = subprocess.run([sys.executable, "-I", "-S", "-c", program], capture_output=True, check=True)

    *loaded, found = done.stdout.decode().split()
    assert {name for name in loaded if "cython" not in name} == {"__main__", "Stemmer", "mica"}
    assert found == str(folder / "mica/navigation/engine/prompt.py")
    assert engine(tmp_path) == folder
    assert {path.relative_to(folder / "mica").as_posix() for path in folder.rglob("*.py")} >= set(MODULES)


@given(st.dictionaries(st.text(max_size=20), st.dictionaries(st.integers(0, 9), st.integers(0, 2**40)), max_size=50))
def test_tables_hold_what_was_put_into_them(table: dict[str, dict[int, int]]) -> None:
    entries = [("one", key, packed(value)) for key, value in table.items()] + [("two", "key", packed("text"))]
    with tempfile.TemporaryFile() as file:
        file.write(file_of(entries))
        file.flush()
        kept = Kept(file.fileno())

    assert {key: kept.get("one", key, {5: 5}) for key in table} == table
    assert dict(kept.raws("one")) == {key: packed(value) for key, value in table.items()}
    assert kept.get("two", "key", "") == "text"
    assert kept.get("two", "none", "nothing") == kept.get("three", "key", "nothing") == "nothing"


@pytest.mark.parametrize("target", [":memory:", "postgres"])
async def test_the_files_of_a_brief_are_those_of_navigate_where_hooks_keep_nothing(
    shop: Shop, target: str, request: pytest.FixtureRequest
) -> None:
    """A-42: the same ranking in every store, from the first brief on; what a session did counts at once."""
    settings = msgspec.structs.replace(shop.settings, brief=msgspec.structs.replace(shop.settings.brief, deadline_s=30))
    address = request.getfixturevalue("server").address() if target == "postgres" else target

    async def told(memory: mica.Memory) -> str:
        with memory.context(session="new"):
            brief = await memory.brief(PROMPT)
        (passage,) = [each for each in brief.passages if each.source == "files"]
        assert passage.kind == "files for such a task"
        return passage.text

    async with mica.open(address, settings=settings, clock=shop.clock) as memory:
        shop.walk(memory)
        before = await told(memory)
        assert [part.partition(" (")[0].partition(":")[0] for part in before.split(", ")] == [
            place.path
            for place in await memory.navigate(PROMPT, root=shop.root, session="new")
            if place.path in ("auth/session.py", "billing/invoice.py")
        ]
        step = {"path": "billing/invoice.py", "operation": "read"}
        memory.walk("Look at the total", [step], session="new", at=shop.clock())
        assert "this session" not in before
        assert "billing/invoice.py (this session)" in await told(memory)


async def test_what_was_read_is_kept_for_the_next_process_and_goes_with_a_purge(
    shop: Shop, request: pytest.FixtureRequest
) -> None:
    """K-53: words of prompts are in it; where one was purged, also while the past is being read, none of it is left."""
    address = request.getfixturevalue("server").address()
    async with mica.open(address, settings=shop.settings, clock=shop.clock) as memory:
        memory.emit("session.started", {"cwd": str(shop.root)})
        said = memory.walk(PROMPT, [{"path": "auth/session.py", "operation": "read"}], session="s0", at=shop.clock())
        shop.clock.move(hours=2)
        await memory.brief(PROMPT, deadline_s=30)
        file = past_file(shop.home, space=memory.space)

    assert b"cookie is lost" in file.read_bytes()
    async with mica.open(address, settings=shop.settings, clock=shop.clock) as memory:
        assert kept_at(file, generation=memory.store.generation) is not None
        store = PurgedMeanwhile(memory.store, purge=lambda: memory.purge(ids=[said.id]))
        navigating = Navigating(cast(Store, store), shop.root, home=shop.home)
        await navigating.keep(file.with_name("other"), now=shop.clock())
        assert store.is_purged
        assert not [each for each in file.parent.iterdir() if b"cookie is lost" in each.read_bytes()]
        await navigating.keep(file, now=shop.clock())
        assert kept_at(file, generation=(await memory.store.lesson()).generation) is not None
        assert b"cookie is lost" not in file.read_bytes()


class PurgedMeanwhile:
    """A store in which something is purged right after the log was read."""

    def __init__(self, store: Store, *, purge: Callable[[], Awaitable[object]]) -> None:
        self._store = store
        self._purge = purge
        self.is_purged = False

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    async def events(self, query: EventQuery) -> list[Event]:
        found = await self._store.events(query)
        if not self.is_purged:
            self.is_purged = True
            await self._purge()
        return found


@pytest.mark.parametrize("target", ["file", "postgres"])
async def test_what_another_process_purged_is_no_reason_for_a_file_any_more(
    shop: Shop, target: str, request: pytest.FixtureRequest
) -> None:
    """K-53: also where this process has read the past and written nothing since."""
    address = request.getfixturevalue("server").address() if target == "postgres" else shop.root.parent / "other.db"
    elsewhere = msgspec.structs.replace(shop.settings, home=shop.root.parent / "elsewhere")  # keeps files of its own

    async def told(memory: mica.Memory) -> str:
        brief = await memory.brief("The cookie is lost after a login redirect", deadline_s=30, is_preview=True)
        return "".join(each.text for each in brief.passages if each.source == "files")

    async with (
        mica.open(address, settings=shop.settings, clock=shop.clock) as memory,
        mica.open(address, settings=elsewhere, clock=shop.clock) as other,
    ):
        memory.emit("session.started", {"cwd": str(shop.root)})
        step = {"path": "auth/session.py", "operation": "read"}
        said, more = (
            memory.walk(prompt, [step], session=prompt, at=shop.clock()) for prompt in (PROMPT, "Look around here")
        )
        shop.clock.move(hours=2)
        assert "similar task" in await told(memory)
        await other.purge(ids=[said.id])
        assert "cookie" not in await told(memory)

        file = past_file(shop.home, space=memory.space)
        await memory.navigate(PROMPT, root=shop.root)
        assert b"Look around" in file.read_bytes()
        await other.purge(ids=[more.id])
        memory.emit("more", {})
        await memory.events()
        assert not file.exists()


async def test_a_command_begins_no_reading_that_it_would_wait_for(shop: Shop, request: pytest.FixtureRequest) -> None:
    """A-42: it ranks by what is kept, however old; `mica tick` keeps it, and a search never has anything read."""
    address = request.getfixturevalue("server").address()

    async def told(*, reads_ahead: bool) -> str:
        async with mica.open(address, settings=shop.settings, clock=shop.clock) as memory:
            memory.reads_ahead = reads_ahead
            brief = await memory.brief(PROMPT, deadline_s=30, is_preview=True)
            await memory.search("What became of auth/session.py?")
            return next(each.kind for each in brief.passages if each.source == "files")

    async with mica.open(address, settings=shop.settings, clock=shop.clock) as memory:
        memory.emit("session.started", {"cwd": str(shop.root)})
        memory.walk(PROMPT, [{"path": "auth/session.py", "operation": "read"}], session="s0", at=shop.clock())
        memory.mark("auth/session.py renews the cookie")
        shop.clock.move(hours=2)
        await memory.search("What became of auth/session.py?")
        file = past_file(shop.home, space=memory.space)

    assert not file.exists()
    assert await told(reads_ahead=False) == "files used for such prompts"
    assert not file.exists()
    async with mica.open(address, settings=shop.settings, clock=shop.clock) as memory:
        memory.reads_ahead = False
        await memory.tick()
    kept = file.read_bytes()
    shop.clock.move(hours=2)
    assert await told(reads_ahead=False) == "files for such a task"
    assert file.read_bytes() == kept
    assert await told(reads_ahead=True) == "files for such a task"
    assert file.read_bytes() != kept


async def test_a_brief_of_the_past_ranks_files_as_navigate_did(shop: Shop) -> None:
    """A-42: what would have been said then is what was said then, and nothing that was learned since is in it."""

    def files(brief: mica.Brief) -> list[tuple[str, str]]:
        return [(each.kind or "", each.text) for each in brief.passages if each.source == "files"]

    async with mica.open(":memory:", settings=shop.settings, clock=shop.clock) as memory:
        shop.walk(memory)
        then, said = shop.clock(), await memory.brief(PROMPT, deadline_s=30)
        shop.clock.move(hours=2)
        for number in range(6):
            step = {"path": "auth/redirect.py", "operation": "read"}
            memory.walk(PROMPT, [step], session=f"later{number}", at=shop.clock())
            shop.clock.move(hours=2)

        back, now = await memory.brief(PROMPT, at=then), await memory.brief(PROMPT, deadline_s=30)

    assert files(said)[0][0] == "files for such a task"
    assert files(back) == files(said) != files(now)


async def test_what_is_searched_again_is_not_ranked_again(shop: Shop) -> None:
    """A-42: the files of a question are remembered while neither the past nor the tree that is kept has changed."""
    target = shop.root.parent / "other.db"
    async with mica.open(target, settings=shop.settings, clock=shop.clock) as memory:
        memory.emit("session.started", {"cwd": str(shop.root)})
        memory.walk(PROMPT, [{"path": "auth/session.py", "operation": "read"}], session="s0", at=shop.clock())
        memory.mark("auth/session.py renews the cookie")
        shop.clock.move(hours=2)
        await memory.navigate(PROMPT, root=shop.root)
        tree = index_file(shop.home, space=memory.space, root=shop.root)

    async with mica.open(target, settings=shop.settings, clock=shop.clock) as memory:

        async def is_raised(query: str) -> bool:
            return any("files" in hit.parts for hit in await memory.search(query))

        assert await is_raised("session cookie")
        written = tree.stat()
        with tree.open("rb") as file:
            names = [("names.name", key, raw) for key, raw in Kept(file.fileno()).raws("names.name")]
        tree.write_bytes(file_of(names))  # from which nothing can be ranked
        os.utime(tree, ns=(written.st_atime_ns, written.st_mtime_ns))
        assert await is_raised("session cookie")
        assert not await is_raised("cookie session")
        os.utime(tree, ns=(written.st_atime_ns, written.st_mtime_ns + 1))
        assert not await is_raised("session cookie")

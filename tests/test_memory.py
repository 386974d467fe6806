"""`Memory`: events are recorded, found and put into briefs, and failures are reported."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from types import ModuleType

import psutil
import pytest
from tests.unsteady_stores import HungStore, UnreadableStore, UnsteadyStore

import mica
from mica import EventQuery, Memory, errors
from mica.brief import layout
from mica.brief.api import LATEST_SHARE
from mica.brief.layout import CHARACTERS_MAX
from mica.clients.api import Clients
from mica.errors import (
    InvalidContext,
    InvalidEvent,
    InvalidInput,
    StoreFull,
    StoreUnavailable,
)
from mica.events.api import Events
from mica.events.log_export import record_export
from mica.format.fence import CLOSING, OPENING
from mica.search import ranker as rank
from mica.settings import Settings
from mica.sources.fan_out import COLLECT_SHARE
from mica.sources.protocol import Fragment, Question, SourceDeclaration
from mica.store.reference.store import EphemeralStore
from mica.testing import HandClock
from mica.upkeep.api import Upkeep

MISSING = "crystals files marks work"  # the sources of a brief that read what UnreadableStore does not answer
LONG_S = 20  # what would hang for ever fails after that


def test_public_names_match_dunder_all() -> None:
    """keeps: E-07"""
    public = {name for name in vars(mica) if not name.startswith("_") and name not in MODULES}
    assert sorted(mica.__all__) == mica.__all__
    assert public == set(mica.__all__)


def test_public_names_are_only_ever_added() -> None:
    """keeps: E-07"""
    assert set(NAMES.split()) <= set(mica.__all__)
    assert set(EVENTS.split()) <= set(dir(Events))
    assert set(UPKEEP.split()) <= set(dir(Upkeep))
    assert set(CLIENTS.split()) <= set(dir(Clients))


def test_memory_has_few_verbs_and_one_attribute_for_each_package() -> None:
    """keeps: E-07"""
    assert {name for name in dir(Memory) if not name.startswith("_")} == {*VERBS.split(), *PACKAGES.split()}


NAMES = """
    Backlogged Brief ClaimLost Comparison Context Difference DuplicateEvent Event EventQuery Failure Follower Here Hit
    Impact InvalidContext InvalidEvent InvalidInput InvalidSettings Mark Memory MicaError NotAStore Overview Passage
    Purged Ref ResolvedEvents SchemaTooNew Settings Sizes StoreBusy StoreError StoreFull StoreUnavailable UnknownEvent
    UnknownSpace compare guards load_settings open
"""
VERBS = """
    brief carrier close context correct durable emit handoff here location mark navigate purge received retract search
    space why
"""
PACKAGES = "beliefs briefs clients crystals events sources trails upkeep"
CLIENTS = "import_transcripts ingest unread"
UPKEEP = "age allow backlog copy_to damaged pin rebuild retain sizes tick unpin verify"
EVENTS = """
    age_s ancestors chain descendants directory environment export failures follow get impact import_log log
    open_sessions overview position query replay resolve resume
"""


def test_every_error_can_be_caught_by_its_public_name() -> None:
    ours = {name for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, Exception)}
    assert ours <= set(mica.__all__)


MODULES = {path.stem for path in Path(mica.__file__).parent.iterdir()}


# -- Observe --------------------------------------------------------------------------------------------------


async def test_a_mark_is_found_briefed_and_explained(memory: Memory) -> None:
    """It needs no key, no server and no model."""
    with memory.context(session="s1", agent="scout", task="login loses the session"):
        mark = memory.mark("Cookie is set before the redirect", tags=["#gotcha"], why="the browser drops it")
        memory.mark("Moved the cookie after the redirect", parent=mark)

    [hit, *_] = (await memory.search("redirect cookie", limit=10)).marks
    brief = await memory.brief("redirect cookie")

    assert hit.mark.tags == ("gotcha",)
    assert hit.mark.why == "the browser drops it"
    assert {hit.id for hit in await memory.search("cookies redirected")} >= {mark.id}
    assert "Cookie is set before the redirect" in brief.text
    assert mark.id in {source for passage in brief.passages for source in passage.sources}
    event = await memory.events.get(mark.id)
    assert [child.data["text"] for child in await memory.events.descendants(event)] == [
        "Moved the cookie after the redirect"
    ]


async def test_two_sources_with_the_same_name_are_refused(home: Settings) -> None:
    store = EphemeralStore()
    with pytest.raises(InvalidInput, match="two sources"):
        Memory(store, settings=home, sources=[Hanging(), Hanging()])


@pytest.mark.parametrize("query", ["\udcff", "cookie \ud800"])
async def test_a_brief_for_broken_text_does_not_raise(memory: Memory, query: str) -> None:
    memory.mark("the cookie is set")
    assert (await memory.brief(query)).receipt is None


async def test_values_of_wrong_types_are_named(memory: Memory) -> None:
    ref = memory.emit("root")
    with pytest.raises(InvalidEvent, match=r"parent '.*' of 'x' is not an event"):
        memory.emit("x", parent=ref.id)  # type: ignore[arg-type]  # the point
    with pytest.raises(InvalidContext, match="is not an event"), memory.context(parent=ref.id):  # type: ignore[arg-type]  # the point
        pass
    with pytest.raises(InvalidEvent, match="event name 5 is a int"):
        memory.emit(5)  # type: ignore[arg-type]  # the point
    with pytest.raises(InvalidEvent, match="not a mark"):
        memory.emit("mark", {"foo": 1})
    with pytest.raises(InvalidInput, match="a query is a text"):
        await memory.search(None)  # type: ignore[arg-type]  # the point
    for query in ("", " \n", "?! …", "🎉"):
        with pytest.raises(InvalidInput, match="no word to search for"):
            await memory.search(query)
    assert await memory.search("日") == []
    with pytest.raises(InvalidInput, match="nan seconds"):
        await memory.brief(deadline_s=float("nan"))
    assert await memory.events.get(ref) == await memory.events.get(ref.id)
    assert len(await memory.events.query()) == 1


def longest_text(monkeypatch: pytest.MonkeyPatch, module: ModuleType, *functions: str) -> Callable[[], int]:
    """The length of the longest text that a module passed to these functions, whose work is linear in it."""
    lengths = [0]

    def watched(work: Callable[[str], object]) -> Callable[[str], object]:
        def run(text: str) -> object:
            lengths.append(len(text))
            return work(text)

        return run

    for name in functions:
        monkeypatch.setattr(module, name, watched(getattr(module, name)))
    return lambda: max(lengths)


async def test_huge_marks_and_questions_do_not_cost_the_deadline(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """keeps: U-05. Passages that cannot fit are not counted exactly, and of a pasted log only the beginning is read."""
    memory.mark("the cookie is set early")
    memory.mark("cookie " * 1_000_000)
    await memory.events.query()
    weighed = longest_text(monkeypatch, layout, "estimate")
    read = longest_text(monkeypatch, rank, "terms", "words")

    brief = await memory.brief("cookie " * 200_000, budget_tokens=500, deadline_s=30)

    assert "set early" in brief.text
    assert "cookie cookie" not in brief.text
    assert 0 < weighed() <= 500 * CHARACTERS_MAX
    assert 0 < read() <= rank.QUERY_CHARACTERS_MAX


async def test_every_recorded_event_has_the_current_context(memory: Memory, tmp_path: Path) -> None:
    """keeps: E-09. No component makes its own context."""
    (tmp_path / "out.jsonl").touch()
    root = memory.emit("root")
    with memory.context(session="s1", agent="scout", branch="main", parent=root) as here:
        refs = [memory.emit("step"), memory.mark("seen"), memory.upkeep.pin(root), memory.upkeep.unpin(root)]
        brief = await memory.brief("seen")
        record_export(memory._log, tmp_path / "out.jsonl", events=1)
        purged = await memory.purge(ids=[refs[0]])

    names = ("mark", "brief", "log.*")
    recorded = await memory.events.query(EventQuery(names=names, limit=None))
    assert {brief.receipt, purged.record} <= {event.id for event in recorded}
    assert [event.name for event in recorded if event.context != here.context] == []
    assert len(recorded) == 6


# -- Trouble --------------------------------------------------------------------------------------------------


async def test_a_closed_memory_raises_a_clear_error(memory: Memory) -> None:
    await memory.close()
    await memory.close()
    with pytest.raises(StoreUnavailable, match="closed"):
        memory.emit("late")
    with pytest.raises(StoreUnavailable, match="closed"):
        await memory.events.query()


@pytest.mark.parametrize("engine", [":memory:", "space.db", "postgres"])
async def test_nothing_is_left_running(
    request: pytest.FixtureRequest, tmp_path: Path, home: Settings, engine: str
) -> None:
    """keeps: U-06. No task, thread or process of mica remains."""
    target: str | Path = tmp_path / engine if engine == "space.db" else engine
    if engine == "postgres":
        target = request.getfixturevalue("server").address()
    processes, threads = set(psutil.Process().children()), set(threading.enumerate())

    async with mica.open(target, settings=home) as memory:
        memory.mark("one")
        await memory.durable()
        await memory.search("one")
        await memory.upkeep.age(timedelta(0))

    assert [task for task in asyncio.all_tasks() if task is not asyncio.current_task()] == []
    assert [each.name for each in threading.enumerate() if "mica" in each.name and each not in threads] == []
    assert set(psutil.Process().children()) <= processes


async def test_an_address_without_a_store_is_refused(home: Settings) -> None:
    with pytest.raises(InvalidInput, match="surreal"):
        await mica.open("surreal://localhost", settings=home)


async def test_without_a_target_the_space_of_the_directory_is_opened(
    tmp_path: Path, home: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = tmp_path / "project"
    (project / "src").mkdir(parents=True)
    (project / ".git").mkdir()
    monkeypatch.chdir(project / "src")
    async with mica.open(settings=home) as memory:
        memory.mark("here")
    monkeypatch.chdir(project)
    async with mica.open(settings=home) as memory:
        assert len(await memory.search("here")) == 1
    assert not list(project.rglob("*.db"))


# -- Briefs ---------------------------------------------------------------------------------------------------


class Hanging:
    declared = SourceDeclaration(name="hanging", concepts=(), is_live=True, answers_tasks=True)

    async def fragments(self, question: Question) -> Sequence[Fragment]:
        await asyncio.Event().wait()
        return []

    async def close(self) -> None:
        """Nothing is held."""


class Failing:
    declared = SourceDeclaration(name="failing", concepts=(), is_live=True, answers_tasks=True)

    async def fragments(self, question: Question) -> Sequence[Fragment]:
        raise StoreUnavailable("the wiki is down")

    async def close(self) -> None:
        """Nothing is held."""


async def test_a_hung_or_failed_source_is_named_and_the_others_answer(home: Settings) -> None:
    """keeps: U-05, TC-03. The answer comes in time and names what is missing."""
    memory = Memory(EphemeralStore(), settings=home, sources=[Hanging(), Failing()])
    memory.mark("the cookie is set before the redirect")

    brief = await memory.brief("cookie", deadline_s=1)

    assert "the cookie is set" in brief.text
    assert set(brief.missing) == {"hanging", "failing"}
    assert brief.missing["hanging"].startswith("no answer within")
    assert "missing: failing (the wiki is down)" in brief.text
    await memory.close()


async def test_a_brief_has_100_ms_by_default(tmp_path: Path) -> None:
    """keeps: U-05"""
    settings = mica.load_settings({"HOME": str(tmp_path)})
    memory = Memory(EphemeralStore(), settings=settings, sources=[Hanging()])

    async with asyncio.timeout(LONG_S):
        brief = await memory.brief("cookie")

    given_ms = int(brief.missing["hanging"].removeprefix("no answer within ").removesuffix(" ms"))
    assert given_ms <= 1_000 * 0.1 * COLLECT_SHARE
    await memory.close()


async def test_sources_get_the_rest_of_the_deadline(home: Settings) -> None:
    """keeps: TC-03. Time spent waiting for the store is not given to the sources again."""
    store = HungStore()
    memory = Memory(store, settings=home, sources=[Hanging()])
    memory.mark("not stored yet")

    async with asyncio.timeout(LONG_S):
        brief = await memory.brief("cookie", deadline_s=0.2)

    given_ms = int(brief.missing["hanging"].removeprefix("no answer within ").removesuffix(" ms"))
    assert given_ms <= 1_000 * 0.2 * (1 - LATEST_SHARE) * COLLECT_SHARE
    store.released.set()
    await memory.close()


async def test_a_brief_names_the_real_reason_when_no_event_is_pending(home: Settings) -> None:
    """keeps: U-05. A message about 0 pending events would explain nothing."""
    memory = Memory(EphemeralStore(), settings=home)

    async with memory._log.paused():
        brief = await memory.brief("stored", deadline_s=0.2)

    assert brief.missing["latest"] == "the store did not answer within 40 ms"
    await memory.close()


async def test_a_brief_does_not_wait_for_a_hung_store(home: Settings) -> None:
    """keeps: U-05. Events emitted just before are named as missing."""
    store = HungStore()
    memory = Memory(store, settings=home)
    memory.mark("not stored yet")

    async with asyncio.timeout(LONG_S):
        brief = await memory.brief("stored", deadline_s=0.2)

    assert brief.missing["latest"].endswith("events wait for the store")
    store.released.set()
    assert len(await memory.search("stored")) == 1
    await memory.close()


async def test_an_unreadable_store_is_one_missing_line_per_source(home: Settings) -> None:
    """keeps: TC-09. Nothing is raised, the agent sees what is missing, and the receipt records it."""
    memory = Memory(UnreadableStore(), settings=home, sources=[Failing()])
    memory.mark("the cookie is set early")

    with_query, without_query = await memory.brief("cookie"), await memory.brief()

    for brief in (with_query, without_query):
        reasons = {"failing": "the wiki is down", **dict.fromkeys(MISSING.split(), "the disk is gone")}
        if brief is without_query:
            del reasons["marks"]
        assert brief.text.splitlines() == [
            OPENING,
            *(f"- missing: {name} ({reason})" for name, reason in sorted(reasons.items())),
            CLOSING,
        ]
        assert brief.passages == ()
        assert (await memory.events.get(brief.receipt or "")).data["missing"] == brief.missing
    await memory.close()


async def test_an_empty_brief_has_no_text_but_a_receipt(memory: Memory) -> None:
    """keeps: TC-09, C-31. No header is printed around nothing."""
    brief = await memory.brief("anything")
    assert (brief.text, brief.tokens, brief.passages, brief.missing) == ("", 0, (), {})
    assert (await memory.events.get(brief.receipt or "")).origin == "recalled"


async def test_a_stuck_store_is_named_in_the_brief(home: Settings) -> None:
    """keeps: U-05. A brief never raises into an agent's turn."""
    store = UnsteadyStore()
    memory = Memory(store, settings=home)
    memory.mark("known before")
    await memory.events.query()
    store.errors[:] = [StoreFull("no space left")] * 1000
    memory.mark("not stored yet")

    brief = await memory.brief("known stored")

    assert "known before" in brief.text
    assert "not stored yet" not in brief.text
    assert brief.missing == {"latest": "no space left"}
    store.errors.clear()
    await memory.close()


async def test_a_brief_from_a_read_only_place_has_no_receipt(
    tmp_path: Path, home: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with mica.open(tmp_path / "space.db", settings=home) as memory:
        memory.mark("the cookie is set early")
        await memory.events.query()
    (tmp_path / "space.db-segments").rmdir()
    (tmp_path / "space.db-segments").write_text("in the way")
    async with mica.open(tmp_path / "space.db", settings=home) as memory:
        brief = await memory.brief("cookie")
        assert "set early" in brief.text
        assert brief.receipt is None


async def test_a_receipt_records_what_was_shown(memory: Memory) -> None:
    mark = memory.mark("the cookie is set before the redirect")
    brief = await memory.brief("cookie", budget_tokens=500)
    receipt = await memory.events.get(brief.receipt or "")

    assert receipt.name == "brief"
    assert receipt.data["query"] == "cookie"
    assert receipt.data["tokens"] == brief.tokens
    assert mark.id in str(receipt.data["passages"])


async def test_secrets_in_a_question_are_not_recorded(memory: Memory) -> None:
    secret = "ghp_" + "a1B2" * 9
    brief = await memory.brief(f"why is {secret} refused")
    receipt = await memory.events.get(brief.receipt or "")

    assert secret not in receipt.body.decode()
    assert str(receipt.data["query"]).startswith("why is ")


async def test_recalled_text_is_never_evidence(memory: Memory) -> None:
    """keeps: K-58, TC-11. Asking repeatedly changes no answer."""
    memory.mark("the cookie is set before the redirect")
    first = await memory.brief("cookie redirect")
    for _ in range(3):
        memory.mark(first.text, origin="recalled")
        again = await memory.brief("cookie redirect")
        assert again.text == first.text
    assert len(await memory.search("cookie")) == 1
    recalled = memory.mark(first.text, origin="recalled")
    with pytest.raises(InvalidInput, match="was only recalled"):
        await memory.retract(recalled.id, reason="it was never observed")


async def test_recalled_text_is_not_shown_as_the_latest(memory: Memory) -> None:
    """keeps: TC-11. This holds for a brief without a question too."""
    memory.mark("the cookie is set before the redirect")
    memory.mark("recalled: all cookies are fine", origin="recalled")

    brief = await memory.brief()

    assert "set before the redirect" in brief.text
    assert "all cookies are fine" not in brief.text


async def test_a_preview_leaves_no_receipt(memory: Memory) -> None:
    memory.mark("x marks the spot")
    brief = await memory.brief(is_preview=True)
    assert brief.receipt is None
    assert [event.name for event in await memory.events.query()] == ["mark"]


async def test_a_brief_without_a_question_shows_the_latest(memory: Memory, clock: HandClock) -> None:
    things = "proxy ledger mailer vault cookie report invoice refund browser session upload archive".split()
    for thing in things:
        with memory.context(session=thing):
            memory.mark(f"Ann looked at the {thing} of a customer")
        clock.move(minutes=1)
    brief = await memory.brief(budget_tokens=100)
    assert things[-1] in brief.text
    assert things[0] not in brief.text
    assert brief.left_out > 0


@pytest.mark.parametrize("budget_tokens", [0, -1])
async def test_a_budget_below_one_token_is_refused(memory: Memory, budget_tokens: int) -> None:
    memory.mark("The cookie is set before the redirect")
    for call in (
        memory.brief(budget_tokens=budget_tokens),
        memory.sources.gather("service:app:login", budget_tokens=budget_tokens),
        memory.handoff(budget_tokens=budget_tokens),
    ):
        with pytest.raises(InvalidInput, match=f"cannot have {budget_tokens} tokens; use a whole number, 1 or more"):
            await call


async def test_files_of_similar_prompts_are_shown(memory: Memory) -> None:
    """Only paths are shown; file contents are never stored or shown."""
    for number, path in enumerate(["auth/session.py", "auth/session.py", "db.py"]):
        with memory.context(session=f"s{number}"):
            prompt = memory.mark(
                "login redirect loses the session" if number < 2 else "speed up queries", tags=["prompt"]
            )
            memory.emit("file.read", {"path": path, "start_line": 40, "end_line": 92, "tokens": 300}, parent=prompt)

    brief = await memory.brief("the login loses its session")

    [files] = [passage for passage in brief.passages if passage.source == "files"]
    assert files.text.startswith("auth/session.py:40-92 (2 turns)")


@pytest.mark.parametrize("name", ["x" * 300, "nul\0.db"])
async def test_a_name_that_cannot_be_a_file_is_refused(home: Settings, name: str) -> None:
    with pytest.raises(InvalidInput, match="cannot be the name of a file"):
        await mica.open(name, settings=home)

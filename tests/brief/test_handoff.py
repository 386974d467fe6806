"""Handoffs: the text for the next agent, within a budget, every line with its source."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

import mica
from mica.brief import handoff
from mica.brief.handoff import HandoffFacts, compose_handoff
from mica.format.fence import CLOSING, OPENING, bound_tokens
from mica.model.event import CRYSTAL, Appended, Event, EventId, EventQuery
from mica.model.mark import Mark
from mica.settings import Settings
from mica.store.reference.log import ReferenceLog
from mica.store.reference.store import EphemeralStore
from mica.testing import HandClock
from mica.testing.builders import build

NOTES = (
    "The login page sets its cookie before the redirect, and the proxy of production drops it on the way",
    "Always set cookies after the last redirect, because proxies drop what comes before it",
    "Moved set_cookie in auth/session.py behind the redirect, and the tests of the login pass now",
    "The session id of a request that was redirected is never trusted any more",
    "The proxy of staging keeps the cookie, which is why nobody saw it before the release",
)


def observe(memory: mica.Memory, session: str, *, task: str | None = None) -> None:
    with memory.context(session=session, agent="scout", task=task):
        for text in NOTES:
            memory.mark(f"{text} ({session})", tags="finding")


async def test_a_handoff_crystallizes_its_session_and_no_other(memory: mica.Memory, clock: HandClock) -> None:
    """keeps: B-23, B-28, TB-06, B-08"""
    observe(memory, "s1")
    clock.move(minutes=1)
    observe(memory, "s2", task="login loses the session")

    result = await memory.handoff()
    again = await memory.handoff()

    assert result.session == "s2"
    assert [crystal.period for crystal in result.new_crystals] == ["session:s2"]
    assert result.crystallization_performed
    assert "# Handoff: s2\ntask: login loses the session\n## Found\n" in result.text
    assert "(s1)" not in result.text
    assert (again.new_crystals, again.crystallization_performed) == ((), False)
    assert again.text == result.text
    assert [crystal.period for crystal in await memory.crystals.list()] == ["session:s2"]


async def test_a_handoff_of_the_current_block_or_of_a_named_session(memory: mica.Memory) -> None:
    observe(memory, "s1")
    observe(memory, "s2")

    with memory.context(session="s1"):
        assert (await memory.handoff()).session == "s1"
    assert (await memory.handoff(session="s2")).session == "s2"
    with pytest.raises(mica.InvalidInput, match="there is no session 's3'"):
        await memory.handoff(session="s3")


async def test_the_latest_session_is_found_behind_many_events_without_one(
    memory: mica.Memory, clock: HandClock
) -> None:
    """Tools that ran outside any session do not hide it."""
    observe(memory, "monday")
    for number in range(2_100):
        clock.move(seconds=number % 2)
        memory.emit("tool.ran", {"number": number})

    assert (await memory.handoff()).session == "monday"


async def test_the_latest_session_is_found_without_reading_the_whole_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Behind very many events without a session, the session with the latest mark is found."""
    monkeypatch.setattr(handoff, "LATEST_MAX", 2_000)
    read: list[int] = []

    class CountingLog(ReferenceLog):
        async def query(self, query: EventQuery) -> list[Event]:
            found = await super().query(query)
            read.append(len(found))
            return found

    bare, marked = EphemeralStore(), EphemeralStore()
    for store in (bare, marked):
        store.log = CountingLog(store.state)
    await marked.log.append([build(1, "mark", {"text": "The proxy drops it"}, context=mica.Context(session="monday"))])
    for store in (bare, marked):
        await store.log.append([build(number, "tool.ran", {"number": number}) for number in range(2, 5_002)])

    assert await handoff.latest_session(bare.log) is None
    assert sum(read) <= 3_000
    assert await handoff.latest_session(marked.log) == "monday"
    assert sum(read) <= 6_001


async def test_open_failed_and_touched_work_is_listed_with_its_source(memory: mica.Memory) -> None:
    """keeps: B-69"""
    observe(memory, "s1")
    with memory.context(session="s1", agent="scout"):
        to_do = memory.mark("Look at the logout page too", tags="todo")
        done = memory.mark("Tell the people of the proxy", tags="task")
        question = memory.mark("Why does staging keep the cookie?", tags="question")
        memory.mark("Told them", parent=done, relation="fulfills")
        memory.emit("file.read", {"path": "auth/session.py", "start_line": 40, "end_line": 92})
        edited = memory.emit("file.edit", {"path": "auth/session.py"})
        failed = memory.emit("shell.run", {"command": "pytest tests/auth --token hunter2hunter2"}, error=True)

    result = await memory.handoff()

    by_heading = {
        heading: [line for line in result.lines if line.heading == heading]
        for heading in ("Open", "Failed last", "Files")
    }
    assert [(line.text, line.sources) for line in by_heading["Open"]] == [
        ("todo: Look at the logout page too", (to_do.id,)),
        ("question: Why does staging keep the cookie?", (question.id,)),
    ]
    assert [line.sources for line in by_heading["Failed last"]] == [(failed.id,)]
    assert [(line.text, line.sources) for line in by_heading["Files"]] == [
        ("auth/session.py, 1 read, 1 edit", (edited.id,))
    ]
    assert "hunter2hunter2" not in result.text
    for line in result.lines:
        assert line.sources
        for handle in line.handles:
            assert (await memory.events.get(handle)).id in line.sources


async def test_a_crystal_never_appears_beside_its_sources(memory: mica.Memory, clock: HandClock) -> None:
    """keeps: B-28, TB-08"""
    observe(memory, "s1")
    await memory.crystals.make(level="day")
    clock.move(days=1)
    observe(memory, "s2")

    result = await memory.handoff()

    assert [crystal.level for crystal in result.recent_crystals] == ["day"]
    assert sum("day:2026-11-01" in line.text for line in result.lines) == 1


async def test_a_session_too_small_for_a_crystal_is_quoted(memory: mica.Memory) -> None:
    with memory.context(session="s1"):
        memory.mark("yes", tags="decision")

    result = await memory.handoff()

    assert result.new_crystals == ()
    assert [(line.heading, line.text) for line in result.lines] == [("Decided", "yes")]


async def test_an_empty_space_has_nothing_to_hand_over(memory: mica.Memory) -> None:
    result = await memory.handoff()

    assert (result.session, result.text, result.lines, result.errors) == (None, "", (), ())


class FullLog(ReferenceLog):
    """A log with room for marks only."""

    async def append(self, events: Sequence[Event]) -> Appended:
        if any(event.name == CRYSTAL for event in events):
            raise mica.StoreFull("no space left for crystals")
        return await super().append(events)


async def test_a_failure_while_crystallizing_is_named_and_the_rest_is_shown(home: Settings) -> None:
    """keeps: B-69"""
    store = EphemeralStore()
    store.log = FullLog(store.state)
    memory = mica.Memory(store, settings=home)
    observe(memory, "s1")

    result = await memory.handoff()
    await memory.close()

    assert result.errors == ("no space left for crystals",)
    assert not result.crystallization_performed
    assert [line.heading for line in result.lines] == ["Found"] * len(NOTES)


WORDS_OF_WORK = (
    "tests fail. all pass now. Still open: the queue - flush `x.py`\n\n- merged? not committed, ok 21 Friday".split(" ")
)
WORDS = st.text(st.sampled_from("abc <>/#`-\n memory 数🚀"), max_size=60)


@given(
    texts=st.lists(st.tuples(WORDS.filter(str.strip), st.sampled_from(["todo", "question", "finding"])), max_size=12),
    task=st.none() | WORDS.filter(str.strip),
    budget_tokens=st.integers(0, 400),
)
def test_a_handoff_fits_its_budget_and_every_line_has_a_source(
    texts: list[tuple[str, str]], task: str | None, budget_tokens: int
) -> None:
    """keeps: B-69"""
    marks = tuple(
        Mark(id=EventId(f"m{number}"), text=text, tags=(tag,), at=HandClock()(), position=number)
        for number, (text, tag) in enumerate(texts, start=1)
    )
    facts = HandoffFacts(
        session="s1",
        task=task,
        marks=marks,
        open=tuple(mark for mark in marks if mark.tags != ("finding",)),
    )

    result = compose_handoff(facts, budget_tokens=budget_tokens)

    assert result.text == "" or bound_tokens(result.text) <= budget_tokens
    assert result.tokens_used <= budget_tokens
    assert not result.lines or not result.left_out or result.tokens_used > budget_tokens - 400
    lines = result.text.splitlines()
    assert [line for line in lines if line.startswith("- ")] == [
        f"- {line.text} ({' '.join(line.handles)})" for line in result.lines
    ]
    assert not lines or (lines[0], lines[-1]) == (OPENING, CLOSING)
    assert sum("memory" in line and "</" in line for line in lines) <= 1


async def test_a_handoff_reports_how_many_marks_it_did_not_read(
    memory: mica.Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A very large session is summarized from its latest marks."""
    monkeypatch.setattr(handoff, "MARKS_MAX", 3)
    observe(memory, "s1")

    result = await memory.handoff(budget_tokens=4_000)
    small = await memory.handoff(session="s1", budget_tokens=1)

    assert result.older_marks == small.older_marks == 2
    assert "2 older marks were not read" in result.text


def test_a_handoff_measures_each_line_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole text is not measured again for every added line."""
    measured = 0

    def counted(text: str) -> int:
        nonlocal measured
        measured += len(text)
        return bound_tokens(text)

    monkeypatch.setattr(handoff, "bound_tokens", counted)
    marks = tuple(
        Mark(id=EventId(f"m{number}"), text=f"thing {number}", at=HandClock()(), position=number)
        for number in range(1, 1_001)
    )

    result = compose_handoff(HandoffFacts(session="s1", marks=marks), budget_tokens=100_000)

    assert len(result.lines) == 1_000
    assert measured < 2 * len(result.text)


# -- Sections --------------------------------------------------------------------------------------------------


def say(*spoken: tuple[str, str]) -> tuple[Mark, ...]:
    """Make the marks of a session, each given as a tag and a text."""
    at = HandClock()()
    return tuple(
        Mark(id=EventId(f"m{number}"), text=text, tags=(tag,), at=at, position=number, session="s1")
        for number, (tag, text) in enumerate(spoken, start=1)
    )


QUEUE = say(
    ("prompt", "add an offline queue: if there is no network, keep the post. sqlite or files?"),
    ("closing", "SQLite would add a C dependency. My vote is files."),
    ("prompt", "files. go"),
    ("narration", "Let me write the queue first."),
    ("commit", "Keep posts in files\n\nA post is a folder, so that a crash\nleaves no half of it. It is small."),
    (
        "closing",
        "Half of it is there, with 5 tests; 2 tests fail.\n\nStill open:\n- `flush`, the oldest post first\n- a lock",
    ),
    ("prompt", "drop the lock, one process is enough. release is friday 21st"),
    ("closing", "The lock is dropped, and all tests pass now.\n\nNext: `flush`, then the changelog before Friday."),
)


def headings(marks: tuple[Mark, ...], *, budget_tokens: int = 1_500) -> dict[str, list[str]]:
    result = compose_handoff(HandoffFacts(session="s1", marks=marks), budget_tokens=budget_tokens)
    assert bound_tokens(result.text) <= budget_tokens
    return {name: [line.text for line in result.lines if line.heading == name] for name in handoff.SHOWN}


def test_a_handoff_says_what_was_asked_decided_changed_and_how_it_ended() -> None:
    """keeps: B-69"""
    shown = headings(QUEUE)

    assert shown["Asked"] == [QUEUE[0].text]
    assert shown["Decided"] == ["My vote is files. — user: files. go", QUEUE[6].text]
    assert shown["Changed"] == ["Keep posts in files. A post is a folder, so that a crash leaves no half of it."]
    assert shown["Ended"] == [
        "The lock is dropped, and all tests pass now.",
        "Next: `flush`, then the changelog before Friday.",
    ]
    assert "Still open: `flush`, the oldest post first" in shown["Open"]


def test_the_last_closing_words_are_shown_whole_with_their_bullets() -> None:
    shown = headings(QUEUE[:6])

    assert shown["Ended"] == [
        "Half of it is there, with 5 tests; 2 tests fail.",
        "Still open: `flush`, the oldest post first",
        "Still open: a lock",
    ]


def test_a_later_statement_voids_a_status_in_a_handoff() -> None:
    text = compose_handoff(HandoffFacts(session="s1", marks=QUEUE), budget_tokens=1_500).text

    assert "2 tests fail" not in text
    assert "Let me write" not in text


def test_a_question_of_the_user_without_an_answer_is_open() -> None:
    shown = headings(say(("closing", "The queue is done."), ("prompt", "does it also work on the Pi?")))

    assert shown["Open"] == ["does it also work on the Pi?"]


def test_a_small_budget_keeps_the_next_step_and_the_last_decision() -> None:
    """How the session ended and what the user decided last come before requests, commits and earlier words."""
    shown = headings(QUEUE, budget_tokens=150)

    assert "Next: `flush`, then the changelog before Friday." in shown["Ended"]
    assert shown["Decided"] == [QUEUE[6].text]
    assert shown["Asked"] == shown["Changed"] == []


@given(
    marks=st.lists(
        st.tuples(
            st.sampled_from(["prompt", "closing", "commit", "summary", "finding", "todo", "narration"]),
            st.lists(st.sampled_from([*WORDS_OF_WORK]), min_size=1, max_size=8).map(" ".join),
        ),
        max_size=10,
    ),
    budget_tokens=st.integers(60, 3_000),
)
def test_no_line_is_dropped_while_it_fits(marks: list[tuple[str, str]], budget_tokens: int) -> None:
    """keeps: B-69. A larger budget shows at least as many lines, and an unlimited one shows all of them."""
    facts = HandoffFacts(session="s1", marks=say(*marks))

    result = compose_handoff(facts, budget_tokens=budget_tokens)
    everything = compose_handoff(facts, budget_tokens=100_000)

    assert everything.left_out == 0
    assert len(result.lines) + result.left_out == len(everything.lines)
    assert bool(result.left_out) <= (bound_tokens(everything.text) + 40 > budget_tokens)


async def test_a_failure_is_not_listed_once_its_command_works(memory: mica.Memory) -> None:
    with memory.context(session="s1", agent="scout"):
        memory.mark("The tests of the login pass again", tags="closing")
        memory.emit("shell.run", {"command": "pytest"}, error=True)
        broken = memory.emit("shell.run", {"command": "mypy"}, error=True)
        memory.emit("shell.run", {"command": "pytest"})

    result = await memory.handoff()

    assert [line.sources for line in result.lines if line.heading == "Failed last"] == [(broken.id,)]


async def test_a_question_ends_with_the_decision_that_follows_from_it(memory: mica.Memory) -> None:
    with memory.context(session="s1", agent="scout"):
        question = memory.mark("May the piece run over four pages?", tags="question")
        task = memory.mark("Cut the piece to three pages", tags="task")
        memory.mark("No fourth page: cut it to 1,800 words", tags="decision", parent=question)
        memory.mark("Half of it is cut", tags="decision", parent=task)

    result = await memory.handoff()

    assert [line.sources for line in result.lines if line.heading == "Open"] == [(task.id,)]

"""Digests of sessions, days and weeks: short notes in the words of their marks."""

from __future__ import annotations

import re
from collections import Counter
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mica
from mica.crystals.note_digest import digest_session, title_of
from mica.model.crystal import Crystal
from mica.model.event import EventId
from mica.model.mark import Mark
from mica.settings import CrystalSettings, Settings
from mica.testing import HandClock
from mica.tokens import estimate

MONDAY = datetime(2026, 11, 2, 9, tzinfo=UTC)


@pytest.fixture
def clock() -> HandClock:
    return HandClock(MONDAY)


@pytest.fixture
def home(home: Settings) -> Settings:
    return msgspec.structs.replace(home, time_zone="UTC", crystals=CrystalSettings(auto=False))


def marks_of(*spoken: tuple[str, str], session: str = "s1") -> list[Mark]:
    return [
        Mark(
            id=EventId(f"{session}m{number}"),
            text=text,
            tags=(tag,),
            at=MONDAY + timedelta(minutes=number),
            position=number,
            session=session,
        )
        for number, (tag, text) in enumerate(spoken, start=1)
    ]


QUEUE = (
    ("prompt", "add an offline queue: if there is no network, keep the post. sqlite or files?"),
    ("closing", "SQLite would add a C dependency and cross compiling gets harder. My vote is files."),
    ("prompt", "files. go"),
    ("narration", "Now I'll write the queue and its tests, one after the other, as planned in the last message."),
    ("commit", "Keep posts in files\n\nA post is a folder, so that a crash\nleaves no half of it."),
    (
        "closing",
        "The queue writes one folder for each post, with 5 tests.\n\nStill open:\n- `flush`, the oldest post first",
    ),
    ("prompt", "👍 nice, thanks"),
    ("closing", "You're welcome!"),
)


def texts(crystal: Crystal) -> list[str]:
    return [statement.text for statement in crystal.statements]


# -- Laws -----------------------------------------------------------------------------------------------------

WORDS = "tests fail. pass now. Still open: the queue — `x.py`\n\n- merged? not committed, ok 水晶は。 | $ 12:00:01 a:"
words = WORDS.split(" ")
histories = st.lists(
    st.tuples(
        st.sampled_from(["prompt", "closing", "commit", "summary", "finding", "todo", "narration", "error", "x"]),
        st.lists(st.sampled_from(words), max_size=12).map(" ".join),
    ),
    max_size=12,
).map(lambda spoken: marks_of(*spoken))


@given(marks=histories, budget=st.integers(0, 200))
def test_a_note_fits_its_budget_and_is_shorter_than_its_marks(marks: list[Mark], budget: int) -> None:
    """keeps: B-16, TB-04"""
    made = digest_session(marks, budget_tokens=budget)

    whole = sum(estimate(mark.text) for mark in marks)
    assert made.tokens == 0 or made.tokens < whole
    assert sum(estimate(each.text) for each in made.statements) <= max(budget, 0) or not made.statements


@given(marks=histories, budget=st.integers(0, 200))
def test_every_mark_is_cited_or_dropped_once_and_every_word_is_from_a_cited_mark(
    marks: list[Mark], budget: int
) -> None:
    """keeps: B-59, B-62, TB-10, B-61"""
    made = digest_session(marks, budget_tokens=budget)

    text = {mark.id: mark.text for mark in marks}
    cited = {source for statement in made.statements for source in statement.sources}
    assert Counter([*cited, *(each.id for each in made.dropped)]) == Counter(list(text))
    for statement in made.statements:
        said = re.findall(r"\w+", statement.text.replace(" — user: ", " "))
        assert set(said) <= set(re.findall(r"\w+", " ".join(text[source] for source in statement.sources)))


@given(marks=histories)
def test_the_same_marks_give_the_same_note(marks: list[Mark]) -> None:
    """keeps: TB-15, B-22"""
    one, two = (msgspec.json.encode(digest_session(marks, budget_tokens=90)) for _ in range(2))

    assert one == two


# -- Sessions -------------------------------------------------------------------------------------------------


def test_a_session_says_what_was_asked_changed_and_left_open() -> None:
    """keeps: B-17, K-18"""
    made = digest_session(marks_of(*QUEUE), budget_tokens=120)

    said = [statement.text for statement in made.statements]
    assert said == [
        QUEUE[0][1],
        "My vote is files. — user: files. go",
        "Keep posts in files. A post is a folder, so that a crash leaves no half of it.",
        "The queue writes one folder for each post, with 5 tests.",
        "Still open: `flush`, the oldest post first",
    ]


def test_courtesy_and_commentary_are_never_insight() -> None:
    """keeps: B-59. They are listed as dropped, with the reason."""
    made = digest_session(marks_of(*QUEUE), budget_tokens=1_000)

    assert {each.id: each.reason for each in made.dropped} == dict.fromkeys(["s1m4", "s1m7", "s1m8"], "filler")


def test_a_status_that_a_later_mark_overtakes_is_dropped_with_that_reason() -> None:
    """keeps: B-61"""
    marks = marks_of(
        ("prompt", "Mend the checkout, the customers wait"),
        ("closing", "2 tests fail in checkout."),
        ("prompt", "then mend these two as well, please"),
        ("closing", "The checkout is mended, and all 40 tests pass, with two new ones for vouchers."),
    )

    made = digest_session(marks, budget_tokens=200)

    assert {each.id: each.reason for each in made.dropped}[EventId("s1m2")] == "a later mark overtakes it"


def test_a_tagged_mark_and_a_stated_reason_come_before_plain_ones() -> None:
    """keeps: B-56"""
    marks = marks_of(
        ("observation", "Looked at the opening hours of the pool on the hill beside the old town, weekdays 7 to 21."),
        ("preference", "Ana wants lists sorted by aisle."),
        ("observation", "Looked at the timetable of the night train to the harbour, which leaves twice a week."),
    )
    reasoned = msgspec.structs.replace(marks[2], why="Tom asked")

    plain = digest_session(marks, budget_tokens=14)
    with_reason = digest_session([*marks[:1], reasoned], budget_tokens=30)

    assert [each.text for each in plain.statements] == ["Ana wants lists sorted by aisle."]
    assert [each.text for each in with_reason.statements] == [f"{marks[2].text} — why: Tom asked"]


def test_a_pool_of_sessions_has_their_titles() -> None:
    pool = [*marks_of(*QUEUE[:2]), *marks_of(("commit", "Lock the queue"), session="s2")]

    assert title_of(pool) == "add an offline queue: if there is no…; Lock the queue"
    assert title_of(marks_of(*QUEUE), task="offline queue") == "offline queue"


async def test_every_session_crystal_has_a_title_and_it_never_quotes_a_lost_mark(
    memory: mica.Memory, clock: HandClock
) -> None:
    """keeps: B-43. This holds after a retraction, and for a crystal that an agent wrote."""
    refs = []
    for session in ("s1", "s2"):
        with memory.context(session=session):
            for tag, text in QUEUE:
                clock.move(minutes=1)
                refs.append(memory.mark(f"{text}", tags=tag))
    [made, _] = await memory.crystals.make()
    await memory.crystals.commit(
        [("The queue is there", [refs[9].id])], sources=[ref.id for ref in refs[8:]], period="session:s2"
    )
    assert made.label == "add an offline queue: if there is no network, keep the post"
    for ref in (refs[0], refs[8]):
        await memory.retract(ref.id, reason="another project")

    await memory.crystals.make()

    titles = [crystal.label for crystal in await memory.crystals.list(level="session")]
    assert len(titles) == 2
    assert all(title and "offline" not in title for title in titles)


LONG = (
    "Tiles can be drawn on the device, which costs memory, or on the server, which costs a request for every move. "
    "The tablets have 3 GB each, and the network in the field is slow in the morning and gone in the afternoon. "
    "Both ways take about three days, and both need the same two tables. The old code can go in either case."
)
# -- Days and weeks -------------------------------------------------------------------------------------------


async def work(memory: mica.Memory, clock: HandClock, session: str, subject: str) -> None:
    with memory.context(session=session):
        for tag, text in (
            ("prompt", f"please write the {subject} and test it on every tablet that we have here"),
            ("closing", f"I looked at how the {subject} could be written. " + LONG),
            ("prompt", f"the first one for the {subject}, and never poll the server for it"),
            ("commit", f"Write the {subject}"),
            (
                "closing",
                f"The {subject} is written and tested on nine tablets.\n\nNext: measure the {subject} in the field.",
            ),
        ):
            clock.move(minutes=1)
            memory.mark(text, tags=tag)


async def test_a_day_lists_its_sessions_by_title_with_how_each_ended(memory: mica.Memory, clock: HandClock) -> None:
    """keeps: B-61. Hours without marks are stated as a fact."""
    await work(memory, clock, "s1", "map")
    clock.at = MONDAY + timedelta(hours=4)
    await work(memory, clock, "s2", "search")

    made = await memory.crystals.make(level="day")

    sessions, [day] = made[:-1], made[-1:]
    assert len(sessions) == 2
    assert texts(day)[0].startswith(
        "please write the map and test it on every tablet that we have here: The map is written"
    )
    assert texts(day)[1].startswith(
        "please write the search and test it on every tablet that we have here: The search is"
    )
    assert texts(day)[2:] == ["No marks 09:05–13:01."]
    assert not set(texts(day)).intersection(text for session in sessions for text in texts(session))


async def test_a_week_has_its_main_outcomes_once(memory: mica.Memory, clock: HandClock) -> None:
    for day, subject in enumerate(("map", "search", "export", "login")):
        clock.at = MONDAY + timedelta(days=day)
        await work(memory, clock, f"s{day}", subject)

    made = await memory.crystals.make(level="week")

    said = texts(made[-1])
    assert made[-1].level == "week"
    assert len(said) == len(set(said))
    for subject in ("map", "search", "export", "login"):
        assert sum(subject in text for text in said) >= 1
    assert any("is written and tested on nine tablets" in text for text in said)
    assert not any(text.startswith(("please", "I looked")) for text in said)

"""Recent work in a brief: single sentences of the last sessions, with the last words first."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import pytest

import mica
from mica import Memory
from mica.beliefs.statements import statements
from mica.brief.work_source import (
    SESSIONS_MAX,
    RecentWorkSource,
    WorkStatement,
    ended_texts,
    is_ended,
    said_by,
    speaker_of,
    statements_of_work,
)
from mica.brief.worth import LAST_CLOSING, LAST_PROMPT, of_session
from mica.model.event import Origin
from mica.model.mark import Mark
from mica.settings import Settings
from mica.sources.protocol import Fragment, Question
from mica.testing import HandClock
from mica.testing.builders import START_AT, build


def mark(number: int, text: str, *tags: str, session: str | None = "s1", origin: Origin = "agent") -> Mark:
    return Mark(
        id=build(number).id,
        text=text,
        at=START_AT + timedelta(minutes=number),
        tags=tags,
        session=session,
        origin=origin,
        position=number,
    )


def texts(work: Sequence[WorkStatement]) -> list[str]:
    return [each.statement.text for each in work]


def worths(work: Sequence[WorkStatement]) -> dict[str, float]:
    return {each.statement.text: each.worth for each in work}


def test_every_sentence_is_a_statement_of_its_own() -> None:
    long = mark(1, "The import of the ledger is slow. The mailer drops long attachments.", "closing")

    work = statements_of_work([long])

    assert texts(work) == ["The import of the ledger is slow.", "The mailer drops long attachments."]
    assert [each.statement.ordinal for each in work] == [0, 1]
    assert {each.mark.id for each in work} == {long.id}


def test_the_last_words_of_a_session_are_worth_most() -> None:
    """They say how it ended and what comes next."""
    work = worths(
        statements_of_work(
            [
                mark(1, "Find out why the import of the ledger is slow", "prompt", origin="user"),
                mark(2, "The import reads every invoice of the ledger twice.", "closing"),
                mark(3, "Now write a test for the import of the ledger", "prompt", origin="user"),
                mark(4, "The test of the ledger import passes, the docs are still open.", "closing"),
            ]
        )
    )

    last = work["The test of the ledger import passes, the docs are still open."]
    assert last == LAST_CLOSING == max(work.values())
    assert work["Now write a test for the import of the ledger"] == LAST_PROMPT
    assert work["The import reads every invoice of the ledger twice."] < last
    assert work["Find out why the import of the ledger is slow"] < LAST_PROMPT


def test_later_sessions_are_worth_more_and_old_ones_are_left_out() -> None:
    """Older work is known by beliefs and crystals."""
    marks = [
        mark(number, f"The team{number} finished release{number} today", session=f"s{number}")
        for number in range(1, SESSIONS_MAX + 3)
    ]

    work = statements_of_work(marks[::-1])

    assert [each.mark.position for each in work] == list(range(SESSIONS_MAX + 2, 2, -1))
    assert [each.worth / work[0].worth for each in work] == pytest.approx(
        [of_session(rank) for rank in range(SESSIONS_MAX)]
    )


def test_marks_without_a_session_count_as_one_session() -> None:
    work = statements_of_work(
        [
            mark(1, "The ledger moved to another host", session=None),
            mark(2, "The mailer lost a very long attachment", session=None),
        ]
    )

    assert len(work) == 2
    assert len({each.worth for each in work}) == 1


def test_a_short_answer_is_completed_from_the_closing_words_before_it() -> None:
    work = statements_of_work(
        [
            mark(1, "Should I add a unique index on the invoice number?", "closing"),
            mark(2, "Yes, do it", "prompt", origin="user"),
            mark(3, "Yes, do it", "prompt", origin="user", session="s2"),
        ]
    )

    answers = [each.statement.text for each in work if each.mark.position != 1]
    assert answers[-1] == "Yes, do it: Should I add a unique index on the invoice number"
    assert not any("unique index" in each.statement.text for each in work if each.mark.position == 3)


@pytest.mark.parametrize(
    ("tags", "origin", "speaker"),
    [
        (("prompt",), "user", "user"),
        (("commit",), "agent", "commit"),
        (("closing",), "agent", "agent"),
        (("summary",), "agent", "summary"),
        (("gotcha", "auth"), "agent", "gotcha"),
        ((), "agent", "mark"),
        (("gotcha",), "user", "user"),
    ],
)
def test_a_line_names_who_speaks(tags: tuple[str, ...], origin: Origin, speaker: str) -> None:
    said = mark(1, "The ledger moved", *tags, origin=origin)

    assert speaker_of(said) == speaker
    assert said_by(said) == ("user" if origin == "user" else "agent")


def test_a_statement_is_ended_if_an_ended_belief_has_its_words() -> None:
    first, second = statements("The proxy timeout is 30 s. The mailer is slow.", place="closing", by="agent")

    assert is_ended(first, ["The proxy timeout is 30 s."])
    assert is_ended(second, ["As of Monday: The mailer is slow."])
    assert not is_ended(first, ["The mailer is slow."])
    assert not is_ended(first, [])


# -- In a memory -----------------------------------------------------------------------------------------------


async def fragments(memory: Memory, task: str = "", *, session: str | None = None, days: int = 9) -> list[Fragment]:
    await memory.durable()
    await memory.beliefs.refresh()
    store = memory._store
    source = RecentWorkSource(store.log, store.texts, store.beliefs)
    now = START_AT + timedelta(days=days)
    return list(await source.fragments(Question(task=task, now=now, session=session)))


async def test_the_section_now_has_what_the_last_sessions_asked_and_did(memory: Memory, clock: HandClock) -> None:
    with memory.context(session="s1"):
        memory.mark("Why is the import of the ledger slow", tags=("prompt",), origin="user")
        clock.move(minutes=1)
        memory.mark("Read invoices of the ledger only once", tags=("commit",))
        clock.move(minutes=1)
        memory.mark("The import takes four seconds now, and the docs are still open.", tags=("closing",))

    brief = await memory.brief(budget_tokens=1_000)

    now = brief.text.partition("## Now\n")[2].partition("\n## ")[0]
    assert "user: Why is the import of the ledger slow" in now
    assert "commit: Read invoices of the ledger only once" in brief.text
    assert "The import takes four seconds now" in brief.text


async def test_what_the_asking_session_said_and_what_comes_later_is_left_out(memory: Memory) -> None:
    """keeps: U-01"""
    for session, text in (("s1", "The ledger moved to another host"), ("s2", "The mailer drops long attachments")):
        with memory.context(session=session):
            memory.mark(text)

    assert [each.text for each in await fragments(memory, session="s1")] == ["The mailer drops long attachments"]
    assert len(await fragments(memory)) == 2
    assert await fragments(memory, days=-1) == []


async def test_a_task_prefers_the_sentences_with_its_words(memory: Memory) -> None:
    with memory.context(session="s1"):
        memory.mark("The ledger moved to another host. The mailer drops long attachments.", tags=("closing",))

    found = await fragments(memory, "attachments of the mailer")

    best = max(found, key=lambda each: getattr(each, "score", 0.0))
    assert best.text == "The mailer drops long attachments."
    assert len(found) == 2


async def test_retracted_and_ended_statements_are_left_out(memory: Memory) -> None:
    with memory.context(session="s1"):
        wrong = memory.mark("The ledger moved to another host")
        memory.mark("Never use floats for money. The mailer drops long attachments.", tags=("prompt",), origin="user")
    await memory.retract(wrong.id, reason="it did not")
    [rule] = [each for each in await memory.beliefs.list("rule") if "floats" in each.text]
    before = [each.text for each in await fragments(memory)]
    await memory.beliefs.end(rule, reason="the ledger rounds")

    after = [each.text for each in await fragments(memory)]

    assert not any("ledger" in text for text in before + after)
    assert any("floats" in text for text in before)
    assert not any("floats" in text for text in after)
    assert await ended_texts(memory._store.beliefs, list(rule.evidence)) == {rule.evidence[0]: [rule.text]}
    assert await ended_texts(memory._store.beliefs, [build(1).id]) == {}


async def test_a_purged_mark_has_no_sentence(memory: Memory) -> None:
    with memory.context(session="s1"):
        secret = memory.mark("The password of the shop is hunter2")
        memory.mark("The mailer drops long attachments")
    assert len(await fragments(memory)) == 2
    await memory.purge(ids=[secret.id])

    assert [each.text for each in await fragments(memory)] == ["The mailer drops long attachments"]


async def test_a_huge_prompt_offers_only_its_beginning_and_its_end(home: Settings, clock: HandClock) -> None:
    async with mica.open(":memory:", settings=home, clock=clock) as memory:
        with memory.context(session="s1"):
            text = " ".join(f"The host{number} lost the cookie of shop{number}." for number in range(2_000))
            memory.mark(text, tags=("prompt",), origin="user")
        found = await fragments(memory)

    assert 0 < len(found) <= 40
    assert "host0 " in found[0].text
    assert "host1999 " in found[-1].text

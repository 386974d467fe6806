"""The files that a task will probably need, and the trails that match a concept, as sources."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from itertools import count
from pathlib import Path

import pytest

import mica
from mica.brief import file_source
from mica.brief.composition import FILES_SHARE, compose
from mica.brief.excerpt import Excerpt, passage_of
from mica.brief.file_source import FILES_MAX, FOR_TASK, MOST_USED, USED_FOR_PROMPTS, RankedFileSource
from mica.brief.layout import join_sentences
from mica.brief.mark_source import SharedSearch
from mica.brief.worth import FILES
from mica.model.event import Context, Event, EventId
from mica.model.walk import Step
from mica.navigation.places import RankedFile
from mica.settings import Settings
from mica.sources.protocol import Concept, Question
from mica.store.reference.store import EphemeralStore
from mica.testing import HandClock
from mica.testing.builders import START_AT, build
from mica.tokens import estimate

PROMPT = "Why does the login lose its session cookie"


def ranked(path: str, number: int, *lines: tuple[int, int]) -> RankedFile:
    """A file of a ranking, last opened by the event of this number."""
    event = build(number)
    return RankedFile(path=path, lines=lines, reason="similar task", last=event.id, at=event.at)


def prompt(number: int, text: str = PROMPT, *, session: str = "s1") -> Event:
    return build(number, "mark", {"text": text, "tags": ["prompt"]}, context=Context(session=session))


def visit(number: int, path: str, *, turn: Event, **fields: object) -> Event:
    """An event that opens a file while the agent works on the prompt `turn`."""
    error = bool(fields.pop("error", False))
    return build(number, "file.read", {"path": path, **fields}, parent=turn, error=error)


async def excerpts(
    events: Sequence[Event], task: str = "", *, ranking: Sequence[RankedFile] | None = None
) -> list[Excerpt]:
    """What the source of files answers about a task, over a store with these events; the ranking gives `ranking`."""
    store = EphemeralStore()
    await store.log.append(events)

    async def rank(asked: str, within_s: float | None) -> Sequence[RankedFile] | None:
        assert asked == task
        return ranking

    shared = SharedSearch(log=store.log, chains=store.chains, texts=store.texts)
    source = RankedFileSource(store.log, store.chains, shared, rank)
    found = await source.fragments(Question(task=task, now=START_AT + timedelta(days=1)))
    return [each for each in found if isinstance(each, Excerpt)]


async def test_with_a_task_the_files_of_the_ranking_are_listed_in_its_order() -> None:
    """keeps: A-42. The line has the lines to read first and the reason, and cites the last access to each file."""
    ranking = [ranked("auth/session.py", 7, (40, 92), (3, 5), (1, 2)), ranked("auth/proxy.py", 9)]

    found = await excerpts([], "session cookie", ranking=ranking)
    [line] = join_sentences(list(map(passage_of, found)))

    assert line.text == "auth/session.py:40-92,3-5 (similar task), auth/proxy.py (similar task)"
    assert (line.source, line.kind, line.section) == ("files", FOR_TASK, "files")
    assert line.sources == (build(7).id, build(9).id)
    assert line.score == FILES == found[0].score > found[1].score


async def test_the_files_that_do_not_fit_are_the_last_ones() -> None:
    """keeps: A-42. A list of files takes at most its share of a brief."""
    ranking = [ranked(f"{'deep/' * 9}file{number}.py", number) for number in range(1, FILES_MAX + 1)]
    passages = [passage_of(each) for each in await excerpts([], "session cookie", ranking=ranking)]

    brief = compose("session cookie", passages, [], missing={}, budget_tokens=600)

    [line] = brief.passages
    assert line.sources == tuple(each.last for each in ranking[: len(line.sources)])
    assert 1 < len(line.sources) < FILES_MAX
    assert estimate(line.text) <= 600 * FILES_SHARE


async def test_a_task_that_names_a_file_with_its_folder_gets_no_list() -> None:
    """The agent knows where to begin."""
    ranking = [ranked("auth/session.py", 7)]

    for named in ("fix src/auth/login.py", "Why does `auth/login.py:40` fail?"):
        assert await excerpts([], named, ranking=ranking) == []
    for named in ("fix login.py", "fix and/or explain the login", "see https://example.com/a/b.html"):
        assert len(await excerpts([], named, ranking=ranking)) == 1


async def test_a_list_of_files_is_short() -> None:
    ranking = [ranked(f"{number}.py", number) for number in range(1, FILES_MAX + 3)]
    visits = [visit(number, f"{number}.py", turn=prompt(99)) for number in range(1, FILES_MAX + 3)]

    predicted = await excerpts([], "session cookie", ranking=ranking)
    used = await excerpts(visits)

    assert len(predicted) == len(used) == FILES_MAX


async def test_a_ranking_without_a_file_lists_none() -> None:
    """The ranking has answered, so files of similar prompts are no better guess."""
    asked = prompt(1)

    assert await excerpts([asked, visit(2, "auth/session.py", turn=asked)], PROMPT, ranking=[]) == []


async def test_without_a_ranking_the_files_of_similar_prompts_are_listed() -> None:
    """Files that several such prompts opened come first; those of other prompts and failed accesses are left out."""
    first, second, other = prompt(1), prompt(2, f"{PROMPT} again"), prompt(3, "Send the invoice by mail", session="s2")
    visits = [
        visit(4, "auth/login.py", turn=first),
        visit(5, "auth/session.py", turn=first),
        visit(6, "auth/session.py", turn=second, start_line=40, end_line=92),
        visit(7, "billing/invoice.py", turn=other),
        visit(8, "auth/missing.py", turn=first, error=True),
    ]

    found = await excerpts([first, second, other, *visits], "login session cookie", ranking=None)
    [line] = join_sentences(list(map(passage_of, found)))

    assert line.text == "auth/session.py:40-92 (2 turns), auth/login.py (1 turn)"
    assert line.kind == USED_FOR_PROMPTS
    assert line.sources == (visits[2].id, visits[0].id)


async def test_without_a_task_the_files_that_most_turns_used_are_listed() -> None:
    turns = [prompt(1), prompt(2, "Send the invoice by mail")]
    visits = [
        visit(3, "once.py", turn=turns[0]),
        visit(4, "both.py", turn=turns[0]),
        visit(5, "both.py", turn=turns[1]),
        visit(6, "once.py", turn=turns[0]),
    ]

    [line] = join_sentences(list(map(passage_of, await excerpts([*turns, *visits]))))

    assert line.text == "both.py (2 turns), once.py (1 turn)"
    assert line.kind == MOST_USED
    assert line.sources == (visits[2].id, visits[3].id)


@pytest.mark.parametrize("task", ["", "login session cookie"])
async def test_a_space_without_file_accesses_has_no_list(task: str) -> None:
    assert await excerpts([prompt(1)], task) == []


def trail_step(path: str) -> Step:
    return Step(path=path, operation="read", at=START_AT, event=EventId("e"))


async def test_a_trail_is_gathered_by_its_name_and_by_its_files(memory: mica.Memory, clock: HandClock) -> None:
    """keeps: C-12. Trails are a source like all others; a suspended one is left out."""
    await memory.trails.create("payment-flow", [trail_step("pay/stripe.py"), trail_step("models/order.py")])
    source = memory.sources.all["trails"]

    for identifier in ("payment-flow", "nav:payment-flow", "pay/stripe.py", "stripe.py"):
        [fragment] = await source.fragments(Question(concept=Concept("code", "file", identifier), now=clock()))
        assert fragment.key == "nav:payment-flow"
        assert fragment.text == "nav:payment-flow: pay/stripe.py → models/order.py (walked 0 times)"
    assert list(await source.fragments(Question(concept=Concept("code", "file", "tripe.py"), now=clock()))) == []
    await memory.trails.suspend("payment-flow", reason="moved")
    assert list(await source.fragments(Question(concept=Concept("code", "file", "stripe.py"), now=clock()))) == []


SOON_S = 30  # on a busy machine
NUMBERS = count()


async def are_trails_asked(memory: mica.Memory) -> bool:
    """Return True if a gather of a new concept asks the trails."""
    return "trails" in (await memory.sources.gather(f"code:file:{next(NUMBERS)}.py")).asked


async def test_a_space_without_file_accesses_is_not_searched_for_trails_again(
    memory: mica.Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trails are learned only from recorded accesses, so the result holds until one is recorded."""
    monkeypatch.setattr(file_source, "LEARNED_S", 0.0)
    assert await are_trails_asked(memory)

    assert not await are_trails_asked(memory)
    assert not await are_trails_asked(memory)
    memory.emit("file.read", {"path": "pay/stripe.py"})
    assert await are_trails_asked(memory)


async def test_trails_learned_without_an_event_are_found_after_a_while(
    memory: mica.Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where files were opened, trails may be learned at any time without an event."""
    memory.emit("file.read", {"path": "pay/stripe.py"})
    await memory.durable()
    await memory.events.position()  # it is stored
    assert await are_trails_asked(memory)
    assert not await are_trails_asked(memory)

    monkeypatch.setattr(file_source, "LEARNED_S", 0.0)
    memory.emit("session.started")  # trails are checked once more
    assert await are_trails_asked(memory)
    assert await are_trails_asked(memory)


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
async def test_trails_learned_by_another_process_are_found(
    engine: str, request: pytest.FixtureRequest, tmp_path: Path, home: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file access by another process ends the cached empty result, so later trails are found."""
    monkeypatch.setattr(file_source, "LEARNED_S", 0.0)
    target = tmp_path / "space.db" if engine == "sqlite" else request.getfixturevalue("server").address()
    async with mica.open(target, settings=home) as memory, mica.open(target, settings=home) as other:
        assert await are_trails_asked(memory)
        assert not await are_trails_asked(memory)

        for session in ("s1", "s2", "s3"):
            steps = [trail_step("pay/stripe.py"), trail_step("models/order.py")]
            await other.trails.log("Pay with a card", steps, outcome="success", session=session)
        await other.events.position()  # it is stored, and nothing is learned from it
        async with asyncio.timeout(SOON_S):
            while not await are_trails_asked(memory):
                await asyncio.sleep(0)
        assert await other.trails.learn() == 1
        [fragment] = (await memory.sources.gather("code:file:models/order.py")).fragments

    assert fragment.source == "trails"
    assert "pay/stripe.py → models/order.py" in fragment.text

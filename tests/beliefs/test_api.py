"""Beliefs through the public API: read, changed, corrected, retracted, purged, and read as of a past time."""

from __future__ import annotations

import pytest

import mica
from mica.errors import InvalidInput, UnknownEvent
from mica.model.belief import Belief
from mica.model.event import EventQuery
from mica.testing import HandClock


async def texts(memory: mica.Memory) -> list[str]:
    return sorted(belief.text for belief in await memory.beliefs.in_force())


async def test_a_users_rule_is_a_belief_at_once(memory: mica.Memory) -> None:
    """keeps: C-43. Only beliefs in force are returned for a brief; a forming one is not."""
    with memory.context(session="s1", agent="claude-code"):
        memory.mark("always use uv run", tags=["prompt"], origin="user")
        memory.mark("Login sessions last 14 days on the apex domain.", tags=["closing"])

    listed = await memory.beliefs.list()

    assert {(each.kind, each.state) for each in listed} == {("rule", "held"), ("fact", "forming")}
    assert await texts(memory) == ["always use uv run"]
    assert [each.text for each in await memory.beliefs.list("rule", "held")] == ["always use uv run"]


async def test_beliefs_are_added_confirmed_and_ended_by_events(memory: mica.Memory, clock: HandClock) -> None:
    added = await memory.beliefs.add("gotcha", "The watcher ignores symlinks")
    clock.move(hours=1)

    confirmed = await memory.beliefs.confirm(added.id)
    ended = await memory.beliefs.end(added.id, reason="fixed upstream", ending="done")

    assert (added.state, confirmed.state) == ("held", "settled")
    assert (ended.state, ended.ending, ended.reason) == ("ended", "done", "fixed upstream")
    assert await texts(memory) == []
    assert [event.name for event in await memory.events.query(EventQuery(names=("belief.*",)))] == [
        "belief.added",
        "belief.confirmed",
        "belief.ended",
    ]


async def test_a_corrected_mark_is_replaced_and_only_in_the_history(memory: mica.Memory) -> None:
    seen = memory.mark("The cookie is set before the redirect", tags=["gotcha"])

    new = await memory.correct(seen, "The cookie is set after the redirect")

    assert await texts(memory) == ["The cookie is set after the redirect"]
    assert [hit.id for hit in await memory.search("cookie redirect")] == [new]
    [belief] = await memory.beliefs.of_event(new)
    assert [each.text for each in await memory.beliefs.history(belief)] == [
        "The cookie is set before the redirect",
        "The cookie is set after the redirect",
    ]


async def test_one_belief_of_a_long_mark_is_corrected_and_the_others_stay(memory: mica.Memory) -> None:
    text = "always use uv run for everything in this repository, also in ci.\n\nnever push to main without asking me."
    memory.mark(text, tags=["prompt"], origin="user")
    belief = next(each for each in await memory.beliefs.list() if "uv" in each.text)

    await memory.correct(belief.id, "always use pixi run")

    assert await texts(memory) == ["always use pixi run", "never push to main without asking me."]


async def test_a_retracted_mark_takes_its_beliefs_with_it(memory: mica.Memory) -> None:
    seen = memory.mark("always use uv run", tags=["prompt"], origin="user")
    assert await texts(memory)

    await memory.retract(seen, reason="wrong project")

    assert await texts(memory) == []


async def test_a_belief_is_retracted_by_its_id(memory: mica.Memory) -> None:
    belief = await memory.beliefs.add("rule", "always use uv run")

    await memory.retract(belief, reason="no longer")

    assert await texts(memory) == []


async def test_an_agent_cannot_end_or_replace_a_users_rule(memory: mica.Memory) -> None:
    belief = await memory.beliefs.add("rule", "always use uv run")

    with pytest.raises(InvalidInput, match="only a user"):
        await memory.beliefs.end(belief.id, origin="agent")
    with pytest.raises(InvalidInput, match="only a user"):
        await memory.beliefs.correct(belief.id, "use pip", origin="agent")
    memory.mark("use pip from now on", ends=belief.id, replaces=[belief], origin="agent")
    assert "always use uv run" in await texts(memory)


async def test_a_mark_names_what_it_replaces_and_ends(memory: mica.Memory) -> None:
    one = await memory.beliefs.add("task", "write the docs")
    two = await memory.beliefs.add("fact", "the port is 80")

    memory.mark("docs are written", ends=one.id)
    memory.mark("the port is 8080", replaces=two, origin="user")

    assert await texts(memory) == ["the port is 8080"]
    with pytest.raises(InvalidInput, match="not the id"):
        memory.mark("x", ends="#12")


async def test_the_parent_that_a_mark_fulfills_is_done(memory: mica.Memory) -> None:
    task = memory.mark("write the docs", tags=["task"])
    memory.mark("wrote them", parent=task, relation="fulfills")

    [belief] = await memory.beliefs.of_event(task.id)

    assert belief.ending == "done"


async def test_a_purge_leaves_no_belief_and_a_rebuild_gives_the_same(memory: mica.Memory) -> None:
    with memory.context(session="s1"):
        memory.mark("always use uv run", tags=["prompt"], origin="user")
        memory.mark("never deploy to Atlantis on fridays", tags=["prompt"], origin="user")
    before = await memory.beliefs.list()

    await memory.upkeep.rebuild()
    assert await memory.beliefs.list() == before

    await memory.purge(value="Atlantis")
    assert await texts(memory) == ["always use uv run"]
    assert "Atlantis" not in repr(await memory.beliefs.list(state="ended"))


async def test_an_ended_belief_stays_ended_when_its_first_mark_is_purged(memory: mica.Memory, clock: HandClock) -> None:
    first = memory.mark("always use uv run", tags=["prompt"], origin="user")
    clock.move(hours=1)
    with memory.context(session="s2"):
        memory.mark("always use uv run", tags=["prompt"], origin="user")
    [belief] = await memory.beliefs.list()
    await memory.beliefs.end(belief.id)

    await memory.purge(ids=first)

    assert await texts(memory) == []


async def test_beliefs_are_readable_as_of_a_past_time(memory: mica.Memory, clock: HandClock) -> None:
    memory.mark("the port is 80", tags=["fact"], origin="user")
    then = clock()
    clock.move(hours=1)
    memory.mark("the port is now 8080", tags=["fact"], origin="user")

    past = await memory.beliefs.list(at=then)

    assert [each.text for each in past] == ["the port is 80"]
    assert await texts(memory) == ["the port is now 8080"]


async def test_beliefs_about_a_task_come_best_first(memory: mica.Memory) -> None:
    await memory.beliefs.add("rule", "always run `make check`")
    await memory.beliefs.add("gotcha", "`sync.py` drops empty rows of the import")

    found = await memory.beliefs.about("fix the import in sync.py")

    assert [each.kind for each in found] == ["gotcha"]


async def test_a_judgment_supports_beliefs_and_a_second_source_makes_them_held(memory: mica.Memory) -> None:
    for agent in ("one", "two"):
        with memory.context(session=agent, agent=agent):
            memory.sources.judge("ops:service:auth", "healthy", confidence=0.9, reasons="tests pass")
    assert [each.state for each in await memory.beliefs.list()] == ["held"]

    memory.sources.judge("ops:service:auth", "broken", confidence=0.9, reasons="errors")

    assert [each.text for each in await memory.beliefs.list()] == ["`ops:service:auth`: broken"]


async def test_an_edited_file_is_applied(memory: mica.Memory) -> None:
    await memory.beliefs.add("rule", "always use uv run")
    original = await memory.beliefs.edit_text()
    await memory.beliefs.add("fact", "added by a session meanwhile")

    edit = await memory.beliefs.apply_edit(original.replace("uv run", "pixi run"), original=original)

    assert len(edit.corrected) == 1
    assert await texts(memory) == ["added by a session meanwhile", "always use pixi run"]


async def test_unknown_beliefs_kinds_and_states_are_refused(memory: mica.Memory) -> None:
    with pytest.raises(UnknownEvent):
        await memory.beliefs.get("bzzzzzzzzzzzz")
    with pytest.raises(InvalidInput, match="no kind"):
        await memory.beliefs.list("wish")  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="needs a text"):
        await memory.beliefs.add("rule", "  ")


async def test_a_mark_with_several_beliefs_is_no_reference_to_one(memory: mica.Memory) -> None:
    seen = memory.mark(
        "always use uv run for everything in this repository, also in ci.\n\nnever push to main without asking me.",
        tags=["prompt"],
        origin="user",
    )

    with pytest.raises(InvalidInput, match="supports 2 beliefs"):
        await memory.beliefs.get(seen)
    belief = (await memory.beliefs.list())[0]
    assert isinstance(belief, Belief)
    assert await memory.beliefs.get(belief) == belief


async def test_short_answers_have_the_words_that_they_answer_across_batches(memory: mica.Memory) -> None:
    with memory.context(session="s1"):
        memory.mark("Two ways:\n1. a unique index\n2. a Redis lock", tags=["closing"])
        await memory.beliefs.refresh()
        memory.mark("do 1", tags=["prompt"], origin="user")

    assert await texts(memory) == ["do 1: a unique index"]


async def test_a_correction_keeps_a_mark_that_says_something_else_too(memory: mica.Memory) -> None:
    """Only the belief is replaced: the rest of the prompt is still found."""
    with memory.context(session="s1", user="ann"):
        memory.mark(
            "Good, we go with icalendar for the room export. Always run the tests with make test before a push.",
            tags=("prompt",),
            origin="user",
        )
    rule = next(each for each in await memory.beliefs.list("rule") if "make test" in each.text)

    await memory.beliefs.correct(rule, "Always run the tests with make check before a push")

    assert [hit.text for hit in await memory.search("icalendar export")]
    assert "make check" in " ".join(each.text for each in await memory.beliefs.list("rule"))
    assert (await memory.beliefs.get(rule.id)).state == "ended"

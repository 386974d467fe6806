"""Checks of a mark before it is recorded."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

import mica
from mica import Memory, errors
from mica.errors import (
    InvalidEvent,
    InvalidInput,
)
from mica.events.marks import mark_data
from mica.settings import Settings


def tags_of(text: str, *tags: str) -> object:
    return mark_data(text, tags, None, (), check=lambda *texts: None)["tags"]


@pytest.mark.parametrize("text", ["#milestone 1.0 is out", "1.0 is out #Milestone", "Out (#milestone), at last"])
def test_a_milestone_in_the_text_is_a_tag(text: str) -> None:
    """keeps: B-23"""
    assert tags_of(text) == ["milestone"]
    assert tags_of(text, "release", "#milestone") == ["release", "milestone"]


@pytest.mark.parametrize(
    "text", ["the milestone", "#milestones", "docs.md#milestone", "##milestone", "#milestone-2", "#12 and #gotcha"]
)
def test_other_hashtags_are_not_tags(text: str) -> None:
    assert tags_of(text) == []


async def test_a_milestone_in_the_text_opens_an_epoch() -> None:
    """keeps: B-23"""
    async with mica.open(":memory:") as memory:
        memory.mark("Version 1.0 is out #milestone")

        assert [event.name for event in await memory.events.query()] == ["mark", "epoch.opened"]


@pytest.mark.parametrize("text", ["  \n", None, 5])
async def test_a_mark_without_text_is_refused(memory: Memory, text: str) -> None:
    with pytest.raises(InvalidInput, match="needs a text"):
        memory.mark(text)


@pytest.mark.parametrize("tag", ["two words", "</memory>", "line\nbreak", "", "x" * 61])
async def test_a_tag_must_be_one_word(memory: Memory, tag: str) -> None:
    with pytest.raises(InvalidEvent) as refused:
        memory.mark("text", tags=["gotcha", tag])

    rule = "a tag is one word of 1 to 60 letters, digits and signs among _ . : / + -"
    assert str(refused.value) == f"{tag!r} is not a tag; {rule}"


async def test_one_tag_may_be_given_as_text(memory: Memory) -> None:
    memory.mark("x marks the spot", tags="gotcha")
    assert (await memory.search("spot")).marks[0].mark.tags == ("gotcha",)


async def test_secrets_are_redacted_in_marks_but_not_in_events(memory: Memory) -> None:
    secret = "ghp_" + "a1B2" * 9
    mark = await memory.events.get(memory.mark(f"token {secret}", why=secret).id)
    event = await memory.events.get(memory.emit("tool.ran", {"out": secret}).id)

    assert secret not in str(mark.data)
    assert event.data == {"out": secret}


@pytest.mark.parametrize(
    ("at", "said"),
    [
        ("2026-11-03", "use an aware datetime"),
        (datetime.fromisoformat("2026-11-03T09:00"), "has no time zone; use an aware datetime"),
        (datetime(1, 1, 1, tzinfo=UTC), "before 1970"),
        (datetime(9999, 12, 31, tzinfo=UTC), "in the future"),
    ],
)
async def test_a_mark_with_an_impossible_time_is_refused(memory: Memory, at: datetime, said: str) -> None:
    """This holds with a parent too, whose time it is compared with."""
    root = memory.mark("The cookie is set before the redirect")
    for parent in (None, root):
        with pytest.raises(InvalidInput, match=said):
            memory.mark("It was the proxy", at=at, parent=parent)

    assert [event.id for event in await memory.events.query()] == [root.id]


async def test_an_invalid_parent_of_a_mark_is_named(memory: Memory) -> None:
    """The check is the same as for any event, before anything is recorded."""
    for record in (memory.mark, memory.emit):
        with pytest.raises(errors.InvalidEvent, match=r"parent 'nope' of .* is not an event; pass the result of emit"):
            record("seen", parent="nope")  # type: ignore[arg-type]  # as somebody may
    assert await memory.events.position() == 0


async def test_a_parent_in_another_space_is_refused_and_nothing_is_marked(home: Settings, tmp_path: Path) -> None:
    """keeps: U-09. No reference crosses a space boundary."""
    async with (
        mica.open(tmp_path / "one.db", settings=home) as one,
        mica.open(tmp_path / "two.db", settings=home) as two,
    ):
        foreign = one.mark("A cookie of the shop")
        for parent in (foreign, await one.events.get(foreign.id)):
            with pytest.raises(InvalidInput, match="another space"):
                two.mark("A cookie of the blog", parent=parent)
        own = two.mark("A cookie of the blog")
        two.mark("It is set twice", parent=own)

        assert await two.events.position() == 2

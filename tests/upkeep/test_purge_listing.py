"""What a purge by words would remove, on every engine."""

from __future__ import annotations

from datetime import timedelta

import pytest

import mica
from mica.errors import InvalidInput
from mica.model.event import EventQuery
from mica.testing import HandClock
from mica.upkeep.purge_listing import subject_words

ABOUT = "everything about the staging proxy"


async def lived(memory: mica.Memory, clock: HandClock) -> None:
    """Record a session about two subjects, with a crystal of both."""
    with memory.context(session="s1", agent="scout"):
        root = memory.mark("The staging proxy drops long headers, so the login is lost on every redirect")
        memory.emit("tool.ran", {"text": "curl -v 10.0.0.7"}, parent=root)
        for word in ("first", "second", "third", "fourth", "fifth", "sixth", "seventh"):
            clock.move(minutes=1)
            memory.mark(f"The {word} cookie is set before the redirect, so the {word} login is lost")
        memory.mark("The proxies on staging were restarted at noon, and the headers are whole again")
        memory.mark("The production proxy is another machine and needs no restart at all")
        await memory.crystals.make()


async def test_a_subject_lists_marks_descendants_and_crystals_best_first(memory: mica.Memory, clock: HandClock) -> None:
    """keeps: K-53. Issue 18. Each has its number, date and a short text; nothing is purged."""
    await lived(memory, clock)
    before = await memory.events.position()

    found = await memory.purge(matching=ABOUT, dry_run=True)

    assert await memory.events.position() == before
    listed = [(item.number, item.kind, item.because, item.of) for item in found.items]
    [crystal] = await memory.crystals.list()
    assert sorted(listed[:2]) == [("#1", "mark", "matches", None), ("#10", "mark", "matches", None)]
    assert listed[2:] == [
        ("#2", "event", "descends", "#1"),
        (f"#{crystal.position}", "crystal", "rests", listed[3][3]),
    ]
    assert listed[3][3] in ("#1", "#10")
    assert found.items[2].text == "curl -v 10.0.0.7"
    assert [item.number for item in found.similar] == ["#11"]
    assert set(found.ids) == {item.id for item in found.items}


async def test_what_was_listed_is_purged_by_its_ids(memory: mica.Memory, clock: HandClock) -> None:
    """keeps: K-53. The crystal is made again from what remains."""
    await lived(memory, clock)
    found = await memory.purge(matching=ABOUT, keep=["#10"], dry_run=True)
    assert [item.number for item in found.items if item.is_selected] == ["#1", "#2"]

    done = await memory.purge(ids=[item.id for item in found.items if item.is_selected])

    assert (done.events, len(done.remade)) == (3, 1)
    texts = str([event.data for event in await memory.events.query(EventQuery(limit=None))])
    assert "drops long headers" not in texts
    assert "restarted at noon" in texts
    assert await memory.upkeep.verify() == []


async def test_words_alone_never_purge(memory: mica.Memory, clock: HandClock) -> None:
    await lived(memory, clock)
    with pytest.raises(InvalidInput, match=r"must be seen before it is purged: call purge\(matching=…, dry_run=True\)"):
        await memory.purge(matching=ABOUT)
    assert not await memory.events.query(EventQuery(names=("event.purged", "log.purged")))


async def test_what_is_kept_takes_its_descendants_along(memory: mica.Memory, clock: HandClock) -> None:
    await lived(memory, clock)
    numbers = {
        name: [item.number for item in (await memory.purge(matching=ABOUT, dry_run=True, **options)).items]  # type: ignore[arg-type]  # one table for all kinds
        for name, options in {
            "keep": {"keep": ["#1"]},
            "alone": {"with_descendants": False},
            "agent": {"agent": "nosuch"},
            "since": {"since": clock() - timedelta(seconds=1)},
            "nothing": {"keep": ["#1", 10]},
        }.items()
    }
    assert numbers["keep"][:1] == ["#10"]
    assert "#2" not in numbers["keep"] + numbers["alone"]
    assert numbers["since"][:1] == ["#10"]
    assert (numbers["agent"], numbers["nothing"]) == ([], [])
    crystal = numbers["keep"][-1]
    with pytest.raises(InvalidInput, match=f"{crystal} is a crystal that rests on what goes"):
        await memory.purge(matching=ABOUT, keep=[crystal], dry_run=True)
    with pytest.raises(InvalidInput, match="#11 is not among what was found"):
        await memory.purge(matching=ABOUT, keep=["#11"], dry_run=True)


@pytest.mark.parametrize(
    ("conditions", "message"),
    [
        ({"matching": "all about the"}, "has no word to search for"),
        ({"matching": " "}, "would match nearly everything"),
        ({"matching": "proxy", "ids": [1]}, "give ids or words that the events match, not both"),
        ({"ids": [1], "keep": [1]}, "`keep` leaves out some of what matches words"),
    ],
)
async def test_an_impossible_subject_is_refused(
    memory: mica.Memory, conditions: dict[str, object], message: str
) -> None:
    memory.mark("The staging proxy drops long headers")
    with pytest.raises(InvalidInput, match=message):
        await memory.purge(**conditions, dry_run=True)  # type: ignore[arg-type]  # that is the point


async def test_a_retracted_or_purged_event_is_not_found_again(memory: mica.Memory) -> None:
    """keeps: K-53. A retracted mark still has its content, so it is listed; a purged one has none."""
    one, other = memory.mark("The staging proxy is slow"), memory.mark("The staging proxy is fast")
    await memory.retract(one, reason="wrong")
    await memory.purge(ids=[other])
    found = await memory.purge(matching="staging proxy", dry_run=True)
    assert [item.id for item in found.items if item.because == "matches"] == [one.id]


@pytest.mark.parametrize(
    ("subject", "words"),
    [
        ("everything about the staging proxy", "the staging proxy"),
        ("Everything we know about Anna Lee", "Anna Lee"),
        ("forget everything about it, the proxy", "it, the proxy"),
        ("alles über den Proxy", "den Proxy"),
        ("allowance for travel", "allowance for travel"),
        ("everything", "everything"),
    ],
)
def test_words_before_the_subject_do_not_count(subject: str, words: str) -> None:
    assert subject_words(subject) == words

"""Building the events of a session."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from mica.clients.event_builder import EventBuilder, label, moment, utc
from mica.clients.records import ImportTally
from mica.clients.tool_effects import EventDraft
from mica.model.event import LABEL_CHARACTERS_MAX

NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)
READ = EventDraft("file.read", {"path": "a.py"})


def builder_of(session: str = "s1", *, has_unique_names: bool = False) -> EventBuilder:
    builder = EventBuilder("toy", has_unique_names=has_unique_names, root="/shop")
    builder.begin(1, ImportTally())
    builder.at = NOON
    builder.place(session, branch="main", cwd="/shop")
    return builder


def test_events_of_a_turn_are_children_of_its_prompt() -> None:
    builder = builder_of()

    builder.start(cwd="/shop", branch="main", version="1")
    builder.prompt("p1", "Fix the login")
    builder.call("c1", [READ, EventDraft("mark", {"text": "done", "tags": ["commit"]}, "agent", inner=True)])

    started, prompt, read, commit = builder.made
    assert (started.name, prompt.parent_id, read.parent_id, commit.parent_id) == (
        "session.started",
        None,
        prompt.id,
        read.id,
    )
    assert {event.context.session for event in builder.made} == {"s1"}
    assert prompt.origin == "user"


def test_events_before_the_first_prompt_are_children_of_the_session() -> None:
    builder = builder_of()
    builder.start(cwd=None, branch=None, version=None)

    builder.call("c1", [READ])

    started, read = builder.made
    assert read.parent_id == started.id


def test_two_builders_give_the_same_thing_the_same_id() -> None:
    """A hook and a transcript that report one call make one event."""
    first, second = builder_of(), builder_of()
    for builder in (first, second):
        builder.prompt("p1", "Fix it")
        builder.call("c1", [READ])

    assert [event.id for event in first.made] == [event.id for event in second.made]


@pytest.mark.parametrize(("unique", "count"), [(True, 1), (False, 2)])
def test_names_are_shared_between_sessions_only_if_they_are_unique(unique: bool, count: int) -> None:
    ids = set()
    for session in ("s1", "s2"):
        builder = builder_of(session, has_unique_names=unique)
        builder.prompt("p1", "Fix it")
        ids |= {event.id for event in builder.made}

    assert len(ids) == count


def test_a_repeated_event_is_made_once() -> None:
    builder = builder_of()

    builder.prompt("p1", "Fix it")
    builder.prompt("p1", "Fix it")
    builder.end("exit")
    builder.end("again")

    assert [event.name for event in builder.made] == ["mark", "session.ended"]


def test_the_nth_thing_without_a_name_has_its_own_name() -> None:
    first, again = builder_of(), builder_of()

    names = [first.nth("ls"), first.nth("ls"), first.nth("cat")]

    assert len(set(names)) == 3
    assert [again.nth("ls"), again.nth("ls"), again.nth("cat")] == names


def test_closing_words_are_held_until_the_turn_ends() -> None:
    builder = builder_of()
    builder.prompt("p1", "Fix it")
    builder.hold_closing("a1", "Not yet")
    builder.hold_closing("a2", "All done")
    assert not builder.is_settled

    builder.release()

    assert [event.data["text"] for event in builder.made] == ["Fix it", "All done"]
    assert builder.is_settled


def test_an_answer_keeps_its_first_time_and_its_last_counts() -> None:
    builder = builder_of()
    builder.hold_answer("a1", {"output_tokens": 1})
    builder.at = NOON.replace(hour=13)
    builder.hold_answer("a1", {"output_tokens": 9})

    [answer] = builder.settle()

    assert (answer.at, answer.data["output_tokens"]) == (NOON, 9)


def test_a_record_without_any_time_is_counted_as_broken() -> None:
    builder, tally = EventBuilder("toy"), ImportTally()
    builder.begin(3, tally)

    assert not builder.is_dated()
    assert builder.is_dated(NOON)
    assert builder.is_dated()
    assert tally.complaints == [(3, "no time, and none before it")]


def test_nul_and_secrets_reach_no_event() -> None:
    """keeps: U-01"""
    builder = builder_of("s\0")
    secret = "ghp_" + "a1B2" * 9

    builder.prompt("p1", f"Use {secret}\0 please")
    builder.call("c1", [EventDraft("file.read", {"path": "a\0.py"})])

    prompt, read = builder.made
    assert secret not in str(prompt.data["text"])
    assert "\0" not in f"{prompt.data}{read.data}{prompt.context.session}"


def test_labels_are_cut_to_their_limit() -> None:
    assert label("x" * 10_000) == "x" * LABEL_CHARACTERS_MAX
    assert label(None) == ""


def test_times_are_utc_or_none() -> None:
    assert utc(datetime(2026, 11, 15, 12)) == NOON  # noqa: DTZ001 - a transcript without a zone
    assert utc(datetime.max.replace(tzinfo=UTC)) is not None
    assert moment(NOON.timestamp() * 1_000) == NOON
    assert moment(1e30) is None
    assert moment(None) is None

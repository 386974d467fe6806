"""The names of trails as events record them."""

from __future__ import annotations

import msgspec

from mica.model.event import RETRACTED, Event, EventId
from mica.model.trail import CREATED, CRYSTALLIZED, MEASURED, RENAMED, RESUMED, SUSPENDED, Measurement
from mica.model.walk import Step
from mica.navigation.trails.records import named_trails, renamed_files
from mica.testing.builders import START_AT, build


def naming(sequence: int, name: str = CREATED, *, key: str = "k", slug: str = "fix-login", **more: object) -> Event:
    steps = [Step(path="auth.py", operation="read", at=START_AT, event=EventId("e"))]
    return build(sequence, name, {"key": key, "slug": slug, "steps": msgspec.to_builtins(steps), **more})


def test_a_trail_has_the_name_and_state_that_was_recorded_last() -> None:
    events = [
        naming(1),
        build(2, RENAMED, {"key": "k", "slug": "login"}),
        build(3, SUSPENDED, {"key": "k", "reason": "wrong files"}),
        build(4, MEASURED, {"key": "k", "method": "replay", "sample": 9, "baseline_tokens": 900, "tokens": 500}),
    ]

    [suspended] = named_trails(events)
    [resumed] = named_trails([*events, build(5, RESUMED, {"key": "k"})])

    assert (suspended.slug, suspended.suspended, suspended.is_chosen) == ("login", "wrong files", True)
    assert suspended.measured == Measurement(method="replay", sample=9, baseline_tokens=900, tokens=500)
    assert resumed.suspended is None


def test_a_new_version_keeps_the_key_and_the_time_of_the_first() -> None:
    events = [naming(1), naming(2, CRYSTALLIZED, key="k2", keys=["k"], version=2)]
    [again] = named_trails([events[0], naming(2, CRYSTALLIZED, version=2)])

    assert (again.key, again.version, again.at) == ("k", 2, events[0].at)
    assert {each.key for each in named_trails(events)} == {"k", "k2"}


def test_a_name_counts_until_all_its_prompts_are_retracted() -> None:
    prompts = [build(1), build(2)]
    named = naming(3, CRYSTALLIZED, walks=[prompt.id for prompt in prompts])
    retracted = [build(10 + number, RETRACTED, {"mark": prompt.id}) for number, prompt in enumerate(prompts)]

    assert len(named_trails([named, retracted[0]])) == 1
    assert named_trails([named, *retracted]) == []


def test_events_that_cannot_be_read_or_belong_to_no_trail_are_ignored() -> None:
    assert named_trails([build(1, CREATED, {"slug": 5}), build(2, RENAMED, {"key": "unknown", "slug": "x"})]) == []


def test_a_file_that_was_renamed_twice_leads_to_its_current_path() -> None:
    events = [
        naming(1, CRYSTALLIZED, renamed=[["a.py", "b.py"]]),
        naming(2, CRYSTALLIZED, renamed=[["b.py", "c.py"]]),
    ]

    assert renamed_files(events) == {"a.py": "c.py", "b.py": "c.py"}
    assert renamed_files([*events, naming(3, CRYSTALLIZED, renamed=[["c.py", "a.py"]])]) == {
        "b.py": "a.py",
        "c.py": "a.py",
    }

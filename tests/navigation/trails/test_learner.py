"""Trails are learned from walks: common files, merged and generalized, in any order of input."""

from __future__ import annotations

import random

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from tests.navigation.trails.walks import FILES, read, walk

from mica.model.trail import (
    CREATED,
    CRYSTALLIZED,
    MEASURED,
    RENAMED,
    SUSPENDED,
    USED,
    Figures,
    key_of,
    resolve,
    with_state,
)
from mica.model.walk import Step
from mica.navigation.trails.learner import BLOCKS_MAX, blocks, describe, ending_of, learn_trails
from mica.settings import TrailSettings
from mica.testing.builders import build

GATES = TrailSettings()


def test_the_files_that_walks_have_in_common_are_a_trail() -> None:
    """keeps: A-46, A-05, A-38.

    The trail has the common files in order of access, its counts, and the walks it was learned from.
    """
    walks = [
        walk(1, ["x.py", "auth.py", "session.py"], outcome="success"),
        walk(2, ["auth.py", "y.py", "session.py"], outcome="failure", agent="smith"),
        walk(3, ["session.py", "auth.py", "z.py"]),
    ]

    trail = learn_trails(walks, gates=GATES)[0]

    assert trail.paths == ("auth.py", "session.py")
    assert (trail.runs, trail.successes, trail.failures, trail.sessions) == (3, 1, 1, 3)
    assert trail.walks == tuple(each.id for each in walks)
    assert trail.agents == {"scout": Figures(runs=2, successes=1), "smith": Figures(runs=1, failures=1)}
    assert (trail.first_at, trail.last_at) == (walks[0].ended_at, walks[2].ended_at)
    assert trail.shape == "fix-login"
    assert "login" in dict(trail.words)
    assert 0.999 < sum(dict(trail.words).values()) < 1.001, "the shares add up to 1"
    assert trail.tokens == 200
    assert trail.description == "2 files that earlier fix tasks about login used, beginning with auth.py"
    twice = [read("a.py", (1, 9)), read("a.py", (20, 29))]
    assert describe("fix", twice) == "1 file that earlier fix tasks used, beginning with a.py"


def test_each_run_counts_once() -> None:
    """keeps: TA-07, A-11, A-13. The third successful run makes it hot; a single walk is an observed trail."""
    walks = [walk(number, ["auth.py", "session.py"], outcome="success") for number in range(1, 4)]
    states = []
    for count in range(1, 4):
        (trail,) = learn_trails(walks[:count], gates=GATES)
        assert trail.runs == count
        assert trail.key == key_of(["auth.py", "session.py"])
        states.append(with_state(trail, now=trail.last_at, gates=GATES).state)
    assert states == ["observed", "observed", "hot"]


def test_a_commit_is_an_explicit_success_but_closing_words_are_not() -> None:
    """keeps: TA-09. An explicit outcome wins over a commit; partial or missing outcomes are unknown."""
    assert ending_of(walk(1, [])) is None
    assert ending_of(walk(1, [], committed=True)) == "success"
    assert ending_of(walk(1, [], committed=True, outcome="failure")) == "failure"
    assert ending_of(walk(1, [], committed=True, outcome="partial")) is None


def test_overlapping_trails_become_one_with_both_histories() -> None:
    """keeps: TA-14, A-13. Counts add up, and the old keys resolve to the merged trail."""
    six = [f"{name}.py" for name in "abcdef"]
    seven = [*six, "g.py"]
    walks = [
        *[walk(number, six, outcome="success") for number in (1, 2)],
        *[walk(number, seven, outcome="failure") for number in (3, 4, 5)],
    ]
    alone = [learn_trails(some, gates=GATES) for some in (walks[:2], walks[2:])]
    assert [(len(found), found[0].runs) for found in alone] == [(1, 2), (1, 3)]

    found = learn_trails(walks, gates=GATES)

    assert len(found) == 1
    assert (found[0].runs, found[0].successes, found[0].failures) == (5, 2, 3)
    assert resolve(key_of(six), found) == resolve(key_of(seven), found) == found[0]


@given(st.lists(FILES, max_size=12), st.randoms())
def test_the_order_of_learning_does_not_matter(walked: list[list[str]], chance: random.Random) -> None:
    """keeps: K-02. The same walks give the same trails in any order."""
    walks = [walk(number, paths) for number, paths in enumerate(walked, 1)]
    shuffled = list(walks)
    chance.shuffle(shuffled)

    found = learn_trails(walks, gates=GATES)

    assert learn_trails(shuffled, gates=GATES) == found
    for trail in found:
        assert trail.successes + trail.failures <= trail.runs <= len(walks)
        assert sum(figures.runs for figures in trail.agents.values()) == trail.runs
        assert resolve(trail.key, found) == trail
    assert len({trail.slug for trail in found}) == len(found)


def test_a_step_has_the_lines_read_last() -> None:
    """keeps: K-06, A-08. A step has the ranges of the latest walk, or the whole file, and no text."""
    walks = [
        walk(1, [read("auth.py", (1, 40)), "db.py"]),
        walk(2, [read("auth.py", (100, 140)), read("auth.py", (145, 160)), read("auth.py", (300, 320)), "db.py"]),
    ]

    (trail,) = learn_trails(walks, gates=GATES)

    steps = [(step.path, step.start_line, step.end_line) for step in trail.steps]
    assert steps == [("auth.py", 100, 160), ("auth.py", 300, 320), ("db.py", None, None)]
    assert "text" not in Step.__struct_fields__


@given(st.lists(st.tuples(st.integers(1, 900), st.integers(0, 80)), min_size=1, max_size=12))
def test_blocks_contain_every_line_that_was_read(spans: list[tuple[int, int]]) -> None:
    """keeps: A-08. The blocks are few and in order."""
    found = blocks([read("a.py", (start, start + more), of=10_000) for start, more in spans])
    ranges = [(step.start_line or 0, step.end_line or 0) for step in found]
    assert len(ranges) <= BLOCKS_MAX
    assert ranges == sorted(ranges)
    assert all(any(low <= start and start + more <= high for low, high in ranges) for start, more in spans)


def test_a_file_read_whole_is_one_block() -> None:
    """keeps: A-08, A-24. A whole file has no line numbers."""
    (step,) = blocks([read("a.py", (1, 500))])
    assert (step.start_line, step.end_line, step.tokens) == (None, None, 100)


def test_a_name_chosen_by_a_person_is_kept() -> None:
    """keeps: K-09. Slug, version and suspension come from events, and runs come from walks."""
    walks = [walk(number, ["auth.py", "session.py"]) for number in (1, 2)]
    (mined_trail,) = learn_trails(walks, gates=GATES)
    named = {
        "key": mined_trail.key,
        "slug": "login",
        "version": 1,
        "by": "user",
        "steps": msgspec.to_builtins(mined_trail.steps),
    }
    events = [build(50, CRYSTALLIZED, named)]

    (trail,) = learn_trails(walks, events, gates=GATES)
    assert (trail.slug, trail.version, trail.by, trail.runs) == ("login", 1, "user", 2)
    assert trail.used_at == walks[-1].ended_at, "a name is no use"
    (again,) = learn_trails([*walks, walk(3, ["session.py", "auth.py"])], events, gates=GATES)
    assert (again.key, resolve(key_of(["session.py", "auth.py"]), [again])) == (trail.key, again)

    events.append(build(51, RENAMED, {"key": trail.key, "slug": "sign-in"}))
    events.append(build(52, SUSPENDED, {"key": trail.key, "reason": "moved"}))
    events.append(
        build(53, MEASURED, {"key": trail.key, "method": "replay", "sample": 4, "baseline_tokens": 9, "tokens": 12})
    )
    (trail,) = learn_trails(walks, events, gates=GATES)
    assert (trail.slug, trail.suspended) == ("sign-in", "moved")
    assert trail.measured is not None
    assert trail.measured.saving == -3


def test_a_trail_made_by_hand_needs_no_walks() -> None:
    """A trail without walks has no runs and no success."""
    steps = msgspec.to_builtins([read("auth.py", (1, 40)), read("db.py")])
    (trail,) = learn_trails(
        [], [build(1, CREATED, {"slug": "auth", "steps": steps, "description": "Signing in"})], gates=GATES
    )
    assert (trail.name, trail.entry, trail.runs, trail.success) == ("nav:auth", "auth.py", 0, None)
    assert trail.used_at is None
    assert trail.description == "Signing in"


def test_a_use_with_an_outcome_counts_once() -> None:
    """keeps: A-45. The outcome of a use counts; a use without an outcome only moves the last time."""
    prompt = build(1, "mark", {"text": "Fix", "tags": ["prompt"]})
    walks = [walk(1, ["auth.py", "session.py"])]
    key = key_of(["auth.py", "session.py"])
    events = [
        build(2, USED, {"key": key, "outcome": "success"}, parent=prompt),
        build(3, USED, {"key": key, "outcome": "failure"}),
        build(9_000_000, USED, {"key": key}),
    ]

    (trail,) = learn_trails(walks, events, gates=GATES)

    assert (trail.runs, trail.successes, trail.failures) == (2, 1, 1)
    assert trail.last_at == trail.used_at == events[2].at


def test_unreadable_events_are_ignored() -> None:
    """keeps: A-30. Invalid events give no trails and no error."""
    events = [
        build(1, CREATED, {"slug": "x", "steps": "auth.py"}),
        build(2, CREATED, {"slug": "x", "steps": []}),
        build(3, RENAMED, {"key": "unknown", "slug": "y"}),
        build(4, USED, {"key": 7}),
    ]
    assert learn_trails([], events, gates=GATES) == []


def test_learning_is_bounded() -> None:
    """keeps: A-30, A-40.

    A walk through all files gives no trail with all files, and the number of trails is limited.
    """
    sweep = [walk(number, [f"f{each}.py" for each in range(200)]) for number in range(1, 4)]
    assert all(len(trail.paths) <= 12 for trail in learn_trails(sweep, gates=GATES))
    chance = random.Random(7)
    many = [walk(number, [f"f{chance.randrange(40)}.py" for _ in range(6)]) for number in range(1, 1_500)]
    assert len(learn_trails(many, gates=GATES)) <= 1_000

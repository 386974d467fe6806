"""Trails are learned from walks: sub-sequences, merged, generalised, blind to order."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from mica.model.event import EventId, event_id
from mica.model.trail import CREATED, CRYSTALLIZED, MEASURED, RENAMED, SUSPENDED, USED, Figures, key_of, resolve, seen
from mica.model.walk import Outcome, Step, Walk
from mica.navigation.trails import co_reads as mining
from mica.navigation.trails.co_reads import Found, generalised, merged, mined, normalised, similarity
from mica.navigation.trails.learner import describe, ending_of, learned
from mica.navigation.trails.steps import BLOCKS_MAX, blocks
from mica.navigation.trails.task_kinds import shape_of, slug_of, verb_class
from mica.settings import TrailSettings
from mica.testing.builders import START_AT, WRITER, build

GATES = TrailSettings()


def read(
    path: str, lines: tuple[int, int] | None = None, *, at: datetime = START_AT, tokens: int | None = 100, of: int = 500
) -> Step:
    start, end = lines or (None, None)
    return Step(
        path=path,
        operation="read",
        start_line=start,
        end_line=end,
        total_lines=of,
        tokens=tokens,
        at=at,
        event=EventId("e"),
    )


def walk(
    number: int,
    paths: Sequence[str | Step],
    *,
    prompt: str = "Fix the login",
    session: str | None = None,
    outcome: Outcome = "unknown",
    agent: str | None = "scout",
    **given: object,
) -> Walk:
    at = START_AT + timedelta(hours=number)
    made = Walk(
        id=event_id(WRITER, number),
        prompt=prompt,
        at=at,
        ended_at=at + timedelta(minutes=5),
        session=session or f"s{number}",
        agent=agent,
        steps=tuple(read(path, at=at) if isinstance(path, str) else path for path in paths),
        outcome=outcome,
    )
    return msgspec.structs.replace(made, **given)


def test_what_walks_have_in_common_is_a_trail() -> None:
    """A-46, A-05, A-38: the smallest common set in the order of access, with its figures and where it was learned."""
    walks = [
        walk(1, ["x.py", "auth.py", "session.py"], outcome="success"),
        walk(2, ["auth.py", "y.py", "session.py"], outcome="failure", agent="smith"),
        walk(3, ["session.py", "auth.py", "z.py"]),
    ]

    trail = learned(walks, gates=GATES)[0]

    assert trail.paths == ("auth.py", "session.py")
    assert (trail.runs, trail.successes, trail.failures, trail.sessions) == (3, 1, 1, 3)
    assert trail.walks == tuple(each.id for each in walks)
    assert trail.agents == {"scout": Figures(runs=2, successes=1), "smith": Figures(runs=1, failures=1)}
    assert (trail.first_at, trail.last_at) == (walks[0].ended_at, walks[2].ended_at)
    assert trail.shape == "fix-login"
    assert "login" in dict(trail.words)
    assert 0.999 < sum(dict(trail.words).values()) < 1.001, "shares of a whole"
    assert trail.tokens == 200
    assert trail.description == "Where fix tasks about login went: 2 files, beginning with auth.py"
    assert describe("fix", [read("a.py", (1, 9)), read("a.py", (20, 29))]).endswith("1 file, beginning with a.py")


def test_each_run_counts_once_from_the_first_on() -> None:
    """TA-07, A-11, A-13: the third successful run makes it hot; one walk alone is a trail that was observed."""
    walks = [walk(number, ["auth.py", "session.py"], outcome="success") for number in range(1, 4)]
    states = []
    for count in range(1, 4):
        (trail,) = learned(walks[:count], gates=GATES)
        assert trail.runs == count
        assert trail.key == key_of(["auth.py", "session.py"])
        states.append(seen(trail, now=trail.last_at, gates=GATES).state)
    assert states == ["observed", "observed", "hot"]


def test_a_commit_is_an_explicit_success_and_last_words_are_none() -> None:
    """TA-09: said wins over committed, partial counts for nothing, silence is unknown."""
    assert ending_of(walk(1, [])) is None
    assert ending_of(walk(1, [], committed=True)) == "success"
    assert ending_of(walk(1, [], committed=True, outcome="failure")) == "failure"
    assert ending_of(walk(1, [], committed=True, outcome="partial")) is None


def test_trails_that_overlap_become_one_and_both_histories_are_kept() -> None:
    """TA-14, A-13: counts add up, and the old keys resolve to the merged trail."""
    six = [f"{name}.py" for name in "abcdef"]
    seven = [*six, "g.py"]
    walks = [
        *[walk(number, six, outcome="success") for number in (1, 2)],
        *[walk(number, seven, outcome="failure") for number in (3, 4, 5)],
    ]
    alone = [learned(some, gates=GATES) for some in (walks[:2], walks[2:])]
    assert [(len(found), found[0].runs) for found in alone] == [(1, 2), (1, 3)]

    found = learned(walks, gates=GATES)

    assert len(found) == 1
    assert (found[0].runs, found[0].successes, found[0].failures) == (5, 2, 3)
    assert resolve(key_of(six), found) == resolve(key_of(seven), found) == found[0]


@given(
    st.lists(st.tuples(st.sets(st.integers(0, 9), min_size=1), st.sets(st.integers(0, 30), min_size=1)), max_size=20)
)
def test_no_walk_is_lost_or_counted_twice_by_a_merge(sets: list[tuple[set[int], set[int]]]) -> None:
    """TA-14: every set is kept or absorbed by one that overlaps it, with all of its walks."""
    given_ = [Found(items=frozenset(map(str, items)), walks=frozenset(walks)) for items, walks in sets]

    found = merged(given_, above=0.8)

    assert sum(1 + len(each.absorbed) for each in found) <= len(given_)
    for each in given_:
        hosts = [host for host in found if mining.overlap(host.items, each.items) > 0.8]
        assert any(each.walks <= host.walks for host in hosts)
    assert frozenset().union(*(each.walks for each in found)) == frozenset().union(*(each.walks for each in given_))
    for place, one in enumerate(found):
        assert all(mining.overlap(one.items, other.items) <= 0.8 for other in found[:place])


FILES = st.lists(st.sampled_from("a/x.py a/y.py a/z.py b.py c.py d.py e.ts f.ts".split()), max_size=6)


@given(st.lists(FILES, max_size=12), st.randoms())
def test_the_order_of_learning_does_not_matter(walked: list[list[str]], chance: random.Random) -> None:
    """K-02: the same walks make the same trails, in whichever order they arrive."""
    walks = [walk(number, paths) for number, paths in enumerate(walked, 1)]
    shuffled = list(walks)
    chance.shuffle(shuffled)

    found = learned(walks, gates=GATES)

    assert learned(shuffled, gates=GATES) == found
    for trail in found:
        assert trail.successes + trail.failures <= trail.runs <= len(walks)
        assert sum(figures.runs for figures in trail.agents.values()) == trail.runs
        assert resolve(trail.key, found) == trail
    assert len({trail.slug for trail in found}) == len(found)


@given(st.lists(FILES, max_size=10))
def test_a_mined_set_has_every_walk_that_touched_it_and_nothing_more_in_common(walked: list[list[str]]) -> None:
    """A-46: closed, whatever the walks."""
    baskets = [tuple(dict.fromkeys(paths)) for paths in walked]
    for found in mined(baskets):
        files = {item for item in found.items if "*" not in item}
        if files == found.items:
            covering = {place for place, paths in enumerate(baskets) if files <= set(paths)}
            assert covering == found.walks
            assert frozenset.intersection(*(frozenset(baskets[place]) for place in covering)) == files


def test_walks_that_differ_in_one_step_of_five_are_alike() -> None:
    """TA-08: similarity is no equality of strings."""
    five = ["a.py", "b.py", "c.py", "d.py", "e.py"]
    assert similarity(five, [*five[:4], "f.py"]) == 0.8 >= GATES.similar
    assert similarity(five, [*five[:3], "f.py", "g.py"]) < GATES.similar
    assert similarity(five, five) == 1
    assert similarity([], []) == 1


def test_files_of_one_kind_become_a_pattern() -> None:
    """TA-08: `a/x.py` and `a/y.py` generalise to what `a/z.py` fits."""
    assert generalised("a/x.py") == generalised("a/y.py") == "a/*.py"
    walks = [walk(number, [f"migrations/{number:04}.sql", "schema.py"]) for number in range(1, 4)]

    trail = learned(walks, gates=GATES)[0]

    assert trail.paths == ("migrations/*.sql", "schema.py")
    assert trail.runs == 3
    assert trail.steps[0].path == "migrations/0003.sql"


def test_paths_are_of_the_project_and_have_slashes() -> None:
    """Windows paths meet their twins; what lies outside of the project is no part of a trail."""
    assert normalised("src\\auth\\login.py") == normalised("./src//auth/login.py") == "src/auth/login.py"
    assert [normalised(path) for path in ("/etc/passwd", "C:\\x.py", "~/x", "../x.py", "")] == [None] * 5


def test_a_step_has_the_lines_that_were_read_last() -> None:
    """K-06, A-08: ranges of the latest walk as blocks, or the whole file; never a text."""
    walks = [
        walk(1, [read("auth.py", (1, 40)), "db.py"]),
        walk(2, [read("auth.py", (100, 140)), read("auth.py", (145, 160)), read("auth.py", (300, 320)), "db.py"]),
    ]

    (trail,) = learned(walks, gates=GATES)

    steps = [(step.path, step.start_line, step.end_line) for step in trail.steps]
    assert steps == [("auth.py", 100, 160), ("auth.py", 300, 320), ("db.py", None, None)]
    assert "text" not in Step.__struct_fields__


@given(st.lists(st.tuples(st.integers(1, 900), st.integers(0, 80)), min_size=1, max_size=12))
def test_blocks_hold_every_line_that_was_read(spans: list[tuple[int, int]]) -> None:
    """A-08: few, in order, apart."""
    found = blocks([read("a.py", (start, start + more), of=10_000) for start, more in spans])
    ranges = [(step.start_line or 0, step.end_line or 0) for step in found]
    assert len(ranges) <= BLOCKS_MAX
    assert ranges == sorted(ranges)
    assert all(any(low <= start and start + more <= high for low, high in ranges) for start, more in spans)


def test_a_file_that_was_read_whole_is_the_whole_file() -> None:
    """A-08, A-24: `full` is a form of its own."""
    (step,) = blocks([read("a.py", (1, 500))])
    assert (step.start_line, step.end_line, step.tokens) == (None, None, 100)


def test_what_a_person_named_stays_as_it_was_named() -> None:
    """A-14, K-09: slug, version and suspension come from events; runs from walks; others are absorbed."""
    walks = [walk(number, ["auth.py", "session.py"]) for number in (1, 2)]
    (mined_trail,) = learned(walks, gates=GATES)
    named = {
        "key": mined_trail.key,
        "slug": "login",
        "version": 1,
        "by": "user",
        "steps": msgspec.to_builtins(mined_trail.steps),
    }
    told = [build(50, CRYSTALLIZED, named)]

    (trail,) = learned(walks, told, gates=GATES)
    assert (trail.slug, trail.version, trail.by, trail.runs) == ("login", 1, "user", 2)
    (again,) = learned([*walks, walk(3, ["session.py", "auth.py"])], told, gates=GATES)
    assert (again.key, resolve(key_of(["session.py", "auth.py"]), [again])) == (trail.key, again)

    told.append(build(51, RENAMED, {"key": trail.key, "slug": "sign-in"}))
    told.append(build(52, SUSPENDED, {"key": trail.key, "reason": "moved"}))
    told.append(
        build(53, MEASURED, {"key": trail.key, "method": "replay", "sample": 4, "baseline_tokens": 9, "tokens": 12})
    )
    (trail,) = learned(walks, told, gates=GATES)
    assert (trail.slug, trail.suspended) == ("sign-in", "moved")
    assert trail.measured is not None
    assert trail.measured.saving == -3


def test_a_trail_made_by_hand_needs_no_walk() -> None:
    """A-32: what nobody walked yet has no runs and no success."""
    steps = msgspec.to_builtins([read("auth.py", (1, 40)), read("db.py")])
    (trail,) = learned(
        [], [build(1, CREATED, {"slug": "auth", "steps": steps, "description": "Signing in"})], gates=GATES
    )
    assert (trail.name, trail.entry, trail.runs, trail.success) == ("nav:auth", "auth.py", 0, None)
    assert trail.description == "Signing in"


def test_a_use_with_an_end_counts_and_one_within_a_walk_counts_once() -> None:
    """TA-12, A-07, A-45: outcomes of uses are evidence; a look is only a use."""
    prompt = build(1, "mark", {"text": "Fix", "tags": ["prompt"]})
    walks = [walk(1, ["auth.py", "session.py"])]
    key = key_of(["auth.py", "session.py"])
    told = [
        build(2, USED, {"key": key, "outcome": "success"}, parent=prompt),
        build(3, USED, {"key": key, "outcome": "failure"}),
        build(9_000_000, USED, {"key": key}),
    ]

    (trail,) = learned(walks, told, gates=GATES)

    assert (trail.runs, trail.successes, trail.failures) == (2, 1, 1)
    assert trail.last_at == told[2].at


def test_what_cannot_be_read_says_nothing() -> None:
    """A-30: half-written events of another version are no trails, and no failure."""
    told = [
        build(1, CREATED, {"slug": "x", "steps": "auth.py"}),
        build(2, CREATED, {"slug": "x", "steps": []}),
        build(3, RENAMED, {"key": "nobody", "slug": "y"}),
        build(4, USED, {"key": 7}),
    ]
    assert learned([], told, gates=GATES) == []


def test_the_shape_of_a_task_is_its_verb_and_its_objects() -> None:
    """A-02, A-20: without a model; a workflow's shape is its own name."""
    assert shape_of(["Please fix the login redirect"], [None], rarity={}) == "fix-login-redirect"
    assert shape_of(["How does the session cookie work?"], [None], rarity={}) == "explain-session-cookie"
    assert shape_of(["Implement the following plan: upload videos"], ["adw_build"], rarity={}) == "adw_build"
    assert verb_class("登录") == "work"
    assert shape_of([""], [None], rarity={}) == "work"
    assert slug_of("Fix: Café au lait!") == "fix-caf-au-lait"
    assert slug_of("登录") == "work"


def test_a_workflow_is_a_kind_of_its_own() -> None:
    """A-20: `adw_<workflow>`."""
    (trail,) = learned([walk(1, ["a.py", "b.py"], task="adw_build")], gates=GATES)
    assert (trail.shape, trail.slug) == ("adw_build", "adw-build")


def test_learning_is_bounded() -> None:
    """A-30, A-40: walks through everything make no trail of everything, and there are never more than so many."""
    sweep = [walk(number, [f"f{each}.py" for each in range(200)]) for number in range(1, 4)]
    assert all(len(trail.paths) <= 12 for trail in learned(sweep, gates=GATES))
    chance = random.Random(7)
    many = [walk(number, [f"f{chance.randrange(40)}.py" for _ in range(6)]) for number in range(1, 1_500)]
    assert len(learned(many, gates=GATES)) <= 1_000

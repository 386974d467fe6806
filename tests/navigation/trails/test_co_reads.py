"""Sets of files that walks have in common."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.navigation.trails.walks import FILES, walk

from mica.navigation.trails import co_reads as mining
from mica.navigation.trails.co_reads import CoReadSet, generalize, merge_sets, mine, normalize_path, similarity
from mica.navigation.trails.learner import learn_trails
from mica.settings import TrailSettings

GATES = TrailSettings()


@given(
    st.lists(st.tuples(st.sets(st.integers(0, 9), min_size=1), st.sets(st.integers(0, 30), min_size=1)), max_size=20)
)
def test_no_walk_is_lost_or_counted_twice_by_a_merge(sets: list[tuple[set[int], set[int]]]) -> None:
    """keeps: TA-14. Every set remains or is merged into one that overlaps it, with all of its walks."""
    sets_before = [CoReadSet(items=frozenset(map(str, items)), walks=frozenset(walks)) for items, walks in sets]

    found = merge_sets(sets_before, above=0.8)

    assert sum(1 + len(each.absorbed) for each in found) <= len(sets_before)
    for each in sets_before:
        hosts = [host for host in found if mining.overlap(host.items, each.items) > 0.8]
        assert any(each.walks <= host.walks for host in hosts)
    assert frozenset().union(*(each.walks for each in found)) == frozenset().union(
        *(each.walks for each in sets_before)
    )
    for place, one in enumerate(found):
        assert all(mining.overlap(one.items, other.items) <= 0.8 for other in found[:place])


@given(st.lists(FILES, max_size=10))
def test_a_set_has_all_walks_that_touched_it_and_all_files_they_share(walked: list[list[str]]) -> None:
    """keeps: A-46. Every set is closed."""
    baskets = [tuple(dict.fromkeys(paths)) for paths in walked]
    for found in mine(baskets):
        files = {item for item in found.items if "*" not in item}
        if files == found.items:
            covering = {place for place, paths in enumerate(baskets) if files <= set(paths)}
            assert covering == found.walks
            assert frozenset.intersection(*(frozenset(baskets[place]) for place in covering)) == files


def test_walks_that_differ_in_one_step_of_five_are_similar() -> None:
    """keeps: TA-08, A-02. Similar walks need not be equal."""
    five = ["a.py", "b.py", "c.py", "d.py", "e.py"]
    assert similarity(five, [*five[:4], "f.py"]) == 0.8 >= GATES.similar
    assert similarity(five, [*five[:3], "f.py", "g.py"]) < GATES.similar
    assert similarity(five, five) == 1
    assert similarity([], []) == 1


def test_files_of_one_kind_become_a_pattern() -> None:
    """keeps: TA-08. `a/x.py` and `a/y.py` become `a/*.py`."""
    assert generalize("a/x.py") == generalize("a/y.py") == "a/*.py"
    walks = [walk(number, [f"migrations/{number:04}.sql", "schema.py"]) for number in range(1, 4)]

    trail = learn_trails(walks, gates=GATES)[0]

    assert trail.paths == ("migrations/*.sql", "schema.py")
    assert trail.runs == 3
    assert trail.steps[0].path == "migrations/0003.sql"


def test_paths_are_normalized_and_those_outside_the_project_dropped() -> None:
    """Windows paths equal their POSIX form, and files outside the project are not part of a trail."""
    assert normalize_path("src\\auth\\login.py") == normalize_path("./src//auth/login.py") == "src/auth/login.py"
    assert [normalize_path(path) for path in ("/etc/passwd", "C:\\x.py", "~/x", "../x.py", "")] == [None] * 5

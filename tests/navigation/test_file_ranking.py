"""Search in a space with walks: results that name likely files move up, and other results keep their order."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as some

from mica import Memory
from mica.model.event import EventId, event_id, new_writer
from mica.model.hit import Hit
from mica.model.mark import Mark
from mica.navigation.engine.mentions import TreeNames, find_mentions, is_any_named
from mica.navigation.navigator import FILES_WEIGHT, boost_named_files
from mica.testing import HandClock
from mica.testing.builders import START_AT

WRITER = new_writer()


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    for path in ("auth/session.py", "web/banner.py", "docs/notes.md"):
        (tmp_path / "shop" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "shop" / path).write_text("# text\n")
    subprocess.run(["git", "init", "-q", str(tmp_path / "shop")], check=True)
    return tmp_path / "shop"


async def work(memory: Memory, clock: HandClock, shop: Path) -> None:
    """Record tasks that read one file, and two similar marks about two files."""
    memory.emit("session.started", {"cwd": str(shop)})
    with memory.context(session="notes"):
        memory.mark("What was seen today")
        memory.mark("The cookie of web/banner.py is lost")
        clock.move(minutes=1)
        memory.mark("The cookie of auth/session.py is lost")
    for number in range(5):
        clock.move(hours=2)
        steps = [{"path": "auth/session.py", "operation": "read"}]
        memory.trails.record("Why is nobody logged in after the redirect?", steps, session=f"s{number}", at=clock())
    clock.move(hours=2)


async def test_a_result_that_names_a_likely_file_comes_first(memory: Memory, clock: HandClock, shop: Path) -> None:
    """`parts` contains the factor, and results without file names keep their scores."""
    await work(memory, clock, shop)
    before = await memory.search("cookie lost redirect", level="mark")
    await memory.navigate("cookie lost redirect", root=shop)

    after = await memory.search("cookie lost redirect", level="mark")

    named = [hit for hit in after if "cookie of" in hit.text]
    assert named[0].text == "The cookie of auth/session.py is lost"
    assert 1 < named[0].parts["files"] <= 1 + FILES_WEIGHT
    assert not any("files" in hit.parts for hit in before)
    assert {hit.id for hit in before} == {hit.id for hit in after}
    assert {hit.id: hit.score for hit in before if "cookie of" not in hit.text} == {
        hit.id: hit.score for hit in after if "cookie of" not in hit.text
    }


async def test_a_space_without_walks_is_searched_as_before(memory: Memory) -> None:
    memory.mark("The cookie of auth/session.py is lost")
    memory.mark("The cookie of web/banner.py is lost")

    hits = await memory.search("cookie lost")

    assert not any("files" in hit.parts for hit in hits)


def hit(number: int, text: str, score: float, *, corrected_by: EventId | None = None) -> Hit:
    mark = Mark(id=event_id(WRITER, number), text=text, at=START_AT, position=number)
    return Hit(mark=mark, score=score, parts={"own": score}, corrected_by=corrected_by)


@given(
    some.lists(some.tuples(some.sampled_from(["in a.py", "in b/c.py", "nothing"]), some.floats(0.1, 9)), max_size=12),
    some.dictionaries(some.sampled_from(["a.py", "b/c.py", "d.py"]), some.floats(0, 1)),
)
def test_reordering_loses_nothing_and_raises_at_most_by_the_weight(
    texts: list[tuple[str, float]], likely: dict[str, float]
) -> None:
    """The hits are the same, each score grows by at most the weight, and the scores are in descending order."""
    hits = [hit(number, text, score) for number, (text, score) in enumerate(texts, start=1)]

    boosted = boost_named_files(hits, likely)

    scores = {each.id: each.score for each in hits}
    assert {each.id for each in boosted} == scores.keys()
    assert all(scores[each.id] <= each.score <= scores[each.id] * (1 + FILES_WEIGHT) for each in boosted)
    assert [each.score for each in boosted] == sorted((each.score for each in boosted), reverse=True)
    assert all(each.score == scores[each.id] for each in boosted if each.text == "nothing")


def test_a_corrected_result_stays_behind_its_correction() -> None:
    right = hit(2, "It is set after the redirect", 1.0)
    wrong = hit(1, "It is set in a.py before the redirect", 0.9, corrected_by=right.id)

    assert boost_named_files([right, wrong], {"a.py": 0.9}) == [right, wrong]


@given(
    some.lists(
        some.sampled_from(["auth/session.py", "session.py", "b/auth", "e.g.", "v1.2", ".env", "x/y.py", "and/or"])
    )
)
def test_the_quick_check_for_file_names_agrees_with_the_full_one(words: list[str]) -> None:
    names, text = TreeNames(["auth/session.py", "web/session.py", ".env", "web/y.py"]), " ".join(words)

    assert is_any_named(text, names) == bool(find_mentions(text, names).paths)

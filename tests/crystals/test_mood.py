"""Mood: seven numbers, counted, neutral until something moves them."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mica.crystals.digest import Source
from mica.crystals.mood import blend, mood, similarity
from mica.model.crystal import Mood

SEVEN = ("warmth", "weight", "tempo", "texture", "brightness", "saturation", "complexity")


def marks(*texts: str, tags: tuple[str, ...] = ()) -> list[Source]:
    return [Source(f"m{number}", text, tags) for number, text in enumerate(texts)]


def test_nothing_has_a_neutral_mood() -> None:
    """B-47: seven numbers, one half by default."""
    assert Mood.__struct_fields__ == SEVEN
    assert mood([]) == Mood()
    assert set(Mood().parts) == {0.5}
    assert Mood().dominant is None


def test_words_that_say_nothing_move_no_feeling() -> None:
    """B-48: honest, not cheerful."""
    found = mood(marks("The sky is blue", "Das Wasser ist nass"))

    assert (found.brightness, found.texture, found.warmth, found.weight, found.complexity) == (0.5,) * 5


@pytest.mark.parametrize(
    ("text", "tags", "brightness", "texture"),
    [
        ("All tests pass", (), 0.8, 0.5),
        ("The build failed", (), 0.2, 0.8),
        ("Exit code 1", ("error",), 0.2, 0.8),
        ("Everything is fine", ("evidence:pass",), 0.8, 0.5),
        ("There are no errors and 0 failed", (), 0.5, 0.5),
        ("The compass points north", (), 0.5, 0.5),
    ],
)
def test_success_brightens_and_failure_roughens(
    text: str, tags: tuple[str, ...], brightness: float, texture: float
) -> None:
    """B-48"""
    found = mood(marks(text, tags=tags))

    assert found.brightness == pytest.approx(brightness)
    assert found.texture == pytest.approx(texture)


def test_commits_tests_and_many_marks_count() -> None:
    """B-48"""
    found = mood([*marks("a", "b", tags=("commit",)), *marks("c", "d", tags=("test",))])

    assert found.warmth == pytest.approx(0.7)
    assert found.weight == pytest.approx(0.7)
    assert found.complexity == pytest.approx(0.4)
    assert found.tempo == pytest.approx(4 / 50)
    assert mood([Source("c", "a crystal of many", (), None, 60.0)]).saturation == 1.0


def test_moods_blend_by_weight_and_compare_by_angle() -> None:
    """B-49"""
    bright, dark = Mood(brightness=1.0), Mood(brightness=0.0)

    assert blend([(bright, 3), (dark, 1)]).brightness == pytest.approx(0.75)
    assert blend([]) == Mood()
    assert similarity(bright, bright) == pytest.approx(1.0)
    assert similarity(bright, dark) < 1
    assert similarity(Mood(**dict.fromkeys(SEVEN, 0.0)), bright) == 0.0
    assert bright.dominant == dark.dominant == "brightness"


@given(
    st.lists(
        st.builds(
            Source,
            id=st.text(max_size=3),
            text=st.text(),
            tags=st.lists(st.sampled_from(["error", "commit", "test", "pass"])).map(tuple),
            at=st.none(),
            weight=st.floats(0, 1e6),
        )
    )
)
def test_every_part_stays_between_0_and_1(sources: list[Source]) -> None:
    """B-47: clamped, whatever is counted."""
    found = mood(sources)

    assert all(0 <= part <= 1 for part in found.parts)
    assert msgspec.json.decode(msgspec.json.encode(found), type=Mood) == found

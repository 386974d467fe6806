"""Mood: seven numbers, neutral until there is evidence."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.crystals.working_days import OTHER, observe

import mica
from mica.crystals.digest import DigestSource
from mica.crystals.mood import blend, mood, similarity
from mica.model.crystal import Mood
from mica.model.event import EventId
from mica.testing import HandClock

SEVEN = ("warmth", "weight", "tempo", "texture", "brightness", "saturation", "complexity")


def marks(*texts: str, tags: tuple[str, ...] = ()) -> list[DigestSource]:
    return [DigestSource(EventId(f"m{number}"), text, tags) for number, text in enumerate(texts)]


def test_the_default_mood_is_neutral() -> None:
    """keeps: B-47. A mood is seven numbers, each one half by default."""
    assert Mood.__struct_fields__ == SEVEN
    assert mood([]) == Mood()
    assert set(Mood().parts) == {0.5}
    assert Mood().dominant is None


def test_neutral_words_do_not_change_the_mood() -> None:
    """keeps: B-48. Moods are honest, not cheerful."""
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
def test_success_raises_brightness_and_failure_raises_roughness(
    text: str, tags: tuple[str, ...], brightness: float, texture: float
) -> None:
    """keeps: B-48"""
    found = mood(marks(text, tags=tags))

    assert found.brightness == pytest.approx(brightness)
    assert found.texture == pytest.approx(texture)


def test_commits_tests_and_many_marks_change_the_mood() -> None:
    """keeps: B-48"""
    found = mood([*marks("a", "b", tags=("commit",)), *marks("c", "d", tags=("test",))])

    assert found.warmth == pytest.approx(0.7)
    assert found.weight == pytest.approx(0.7)
    assert found.complexity == pytest.approx(0.4)
    assert found.tempo == pytest.approx(4 / 50)
    assert mood([DigestSource(EventId("c"), "a crystal of many", (), None, 60.0)]).saturation == 1.0


def test_moods_blend_by_weight_and_compare_by_angle() -> None:
    """keeps: B-49"""
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
            DigestSource,
            id=st.text(max_size=3),
            text=st.text(),
            tags=st.lists(st.sampled_from(["error", "commit", "test", "pass"])).map(tuple),
            at=st.none(),
            weight=st.floats(0, 1e6),
        )
    )
)
def test_every_mood_component_stays_between_0_and_1(sources: list[DigestSource]) -> None:
    """keeps: B-47. Values are clamped for any counts."""
    found = mood(sources)

    assert all(0 <= part <= 1 for part in found.parts)
    assert msgspec.json.decode(msgspec.json.encode(found), type=Mood) == found


async def test_the_mood_of_a_day_is_weighted_by_the_marks_of_its_sessions(
    memory: mica.Memory, clock: HandClock
) -> None:
    """keeps: B-49"""
    observe(memory, clock, "s1")
    observe(memory, clock, "s2", texts=(*OTHER, "The nightly build failed again, and nobody knows the error yet."))

    made = await memory.crystals.make(level="day")

    sessions = [crystal for crystal in made if crystal.level == "session"]
    [day] = [crystal for crystal in made if crystal.level == "day"]
    assert len({crystal.mood for crystal in sessions}) == len({crystal.marks for crystal in sessions}) == 2
    assert day.mood == blend([(crystal.mood, crystal.marks) for crystal in sessions])

"""What a source answers is bounded and redacted before anything shows it, and failures are described in a line."""

from __future__ import annotations

from datetime import datetime

import pytest

import mica
from mica.errors import SourceFailed, StoreUnavailable
from mica.settings import Settings
from mica.sources.answer import REASON_CHARACTERS_MAX, Collected, ask_once, describe, limit
from mica.sources.protocol import Concept, Fragment, Partial, SourceDeclaration
from mica.testing import HandClock
from mica.testing.builders import START_AT, build

ABOUT = "service:app:login"
SECRET = "ghp_" + "a1B2" * 9


def fragment(text: str, **fields: object) -> Fragment:
    return Fragment(**({"key": "state", "text": text, "at": START_AT, "source": "?"} | fields))  # type: ignore[arg-type]  # a test's own


class AppSource:
    """A source with one answer, or one error."""

    declared = SourceDeclaration(name="app", fragments_max=2, characters_max=100)

    def __init__(self, answer: object) -> None:
        self.answer = answer

    async def fragments(self, question: object) -> object:
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer

    async def close(self) -> None:
        """Release nothing."""


async def test_a_tested_source_shows_no_secret(home: Settings, clock: HandClock) -> None:
    """What `mica sources test` prints is redacted as in a brief."""
    async with mica.open(":memory:", settings=home, clock=clock) as memory:
        memory.sources.register("app", lambda concept: [fragment(f"token {SECRET}", locator=f"token {SECRET}")])
        tested = await memory.sources.test("app", ABOUT)

    assert tested.error == ""
    [shown] = tested.fragments
    assert SECRET not in shown.text + shown.locator
    assert shown.text.startswith("token ")


async def test_a_tested_source_has_the_limits_of_its_declaration(clock: HandClock) -> None:
    answer = [fragment(f"word {number}", key=f"k{number}") for number in range(3)]

    tested = await ask_once(AppSource(answer), Concept.parse(ABOUT), now=clock())  # type: ignore[arg-type]  # answers anything

    assert [each.text for each in tested.fragments] == ["word 0", "word 1"]
    assert {each.source for each in tested.fragments} == {"app"}
    assert tested.missing == "more than 2 fragments; the first are used"


async def test_an_incomplete_answer_keeps_its_own_reason(clock: HandClock) -> None:
    answer = Partial([fragment("word")], missing="row 7 could not be read")

    tested = await ask_once(AppSource(answer), Concept.parse(ABOUT), now=clock())  # type: ignore[arg-type]  # answers anything

    assert tested.missing == "row 7 could not be read"
    assert len(tested.fragments) == 1


async def test_a_failed_test_says_why_without_secrets(clock: HandClock) -> None:
    failed = SourceFailed("app", f"no connection with token {SECRET}")

    tested = await ask_once(AppSource(failed), Concept.parse(ABOUT), now=clock())  # type: ignore[arg-type]  # answers anything

    assert "no connection" in tested.error
    assert SECRET not in tested.error
    assert tested.fragments == ()


def test_an_answer_is_cut_before_the_fragment_that_exceeds_the_characters() -> None:
    declared = SourceDeclaration(name="app", characters_max=40)

    answer = limit(declared, (fragment("x" * 12, key=f"k{number}") for number in range(9)))

    assert len(answer.fragments) == 2
    assert answer.missing == "more than 40 characters; the first 2 fragments are used"


def test_something_other_than_a_fragment_is_a_failure_of_the_source() -> None:
    with pytest.raises(SourceFailed, match="it gave a str, not a fragment"):
        limit(SourceDeclaration(name="app"), ["a row"])


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (SourceFailed("app", "the table is locked"), "the table is locked"),
        (StoreUnavailable("the disk is away"), "the disk is away"),
        (ValueError("no number"), "ValueError: no number"),
        (ValueError("\udc80"), "ValueError: ?"),
    ],
)
def test_a_failure_is_described_in_words(error: Exception, reason: str) -> None:
    assert describe(error) == reason


def test_a_long_failure_is_shortened() -> None:
    assert len(describe(ValueError("x" * 9_999))) == REASON_CHARACTERS_MAX


def test_withheld_statements_of_the_log_are_listed_as_missing() -> None:
    at = datetime.now(START_AT.tzinfo)
    own = fragment("from the log", source="marks", sources=(build(1).id,), at=at)
    other = fragment("from a table", source="app", at=at)
    collected = Collected(fragments=(own, other), missing={"late": "no answer"})

    left = collected.withhold_own("something was purged")

    assert left.fragments == (other,)
    assert left.missing == {"late": "no answer", "marks": "something was purged"}
    assert collected.withhold_own("why", name="log").missing == {"late": "no answer", "log": "why"}

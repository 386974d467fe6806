"""The composition of a brief within its budget, and compression."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as some
from tests.crystals.working_days import NOTES, OTHER
from tests.sources.scripted_sources import ScriptedSource

import mica
from mica import Memory
from mica.brief.budget import best_first
from mica.brief.composition import ConceptAccount, compose, compress_passages
from mica.brief.layout import with_cost
from mica.model.brief import Passage
from mica.settings import Settings
from mica.sources.answer import Collected
from mica.sources.cohere import cohere
from mica.sources.protocol import PHI_INV, Concept, Fragment
from mica.testing.builders import START_AT, build
from mica.tokens import estimate


def passage(text: str, *, score: float = 1.0, number: int = 1) -> Passage:
    at = START_AT + timedelta(days=number)
    return Passage(
        text=text, sources=(build(number).id,), tokens=0, score=score, at=at, source="marks", handle=f"#{number}"
    )


@pytest.mark.parametrize("is_compressed", [False, True])
@pytest.mark.parametrize("text", ["The cookie is set before the redirect", "日本語 です", "ok"])
def test_a_budget_with_room_for_one_line_shows_one_line(text: str, is_compressed: bool) -> None:
    """keeps: B-26. The smallest sufficient budget is exactly the cost of the whole text."""
    whole = compose("", [passage(text)], [], missing={}, budget_tokens=1_000)
    budget_tokens = estimate(whole.text)

    brief = compose("", [passage(text)], [], missing={}, budget_tokens=budget_tokens, is_compressed=is_compressed)
    smaller = compose("", [passage(text)], [], missing={}, budget_tokens=budget_tokens - 1)

    assert brief.text == whole.text
    assert (len(brief.passages), brief.left_out) == (1, 0)
    assert (smaller.text, smaller.left_out) == ("", 1)


def test_the_one_line_of_a_small_budget_is_the_best_that_fits() -> None:
    """keeps: B-26"""
    long, best, other = passage("word " * 60, score=3), passage("Use uv", score=2, number=2), passage("ok", number=3)
    budget_tokens = compose("", [best], [], missing={}, budget_tokens=1_000).tokens

    brief = compose("", [other, long, best], [], missing={}, budget_tokens=budget_tokens)

    assert [each.text for each in brief.passages] == ["Use uv"]
    assert brief.left_out == 2


_TEXTS = some.lists(
    some.one_of(
        some.text(max_size=300),
        some.sampled_from(
            ["The cookie is set before the redirect. ", "日本語", "🎉", "\n", "word " * 50, "a" + " " * 900]
        ),
    ),
    min_size=1,
    max_size=6,
).map("".join)


@given(
    marks=some.lists(some.tuples(_TEXTS, some.floats(0, 1)), min_size=1, max_size=6),
    budget=some.integers(1, 120),
    is_compressed=some.booleans(),
)
def test_a_budget_that_the_best_line_fits_is_never_answered_with_nothing(
    marks: list[tuple[str, float]], budget: int, is_compressed: bool
) -> None:
    """keeps: B-26. If no line fits, the brief says how many tokens the shortest one needs."""
    offered = [passage(text, score=score, number=number) for number, (text, score) in enumerate(marks, 1)]
    alone = [
        compose("", [each], [], missing={}, budget_tokens=100_000).tokens for each in sorted(offered, key=best_first)
    ]

    brief = compose("", offered, [], missing={}, budget_tokens=budget, is_compressed=is_compressed)

    assert brief.tokens == estimate(brief.text) <= budget
    assert bool(brief.passages) == bool(brief.text)
    assert brief.passages or alone[0] > budget
    assert brief.passages or brief.needed_tokens == min(alone) > budget
    assert brief.needed_tokens is None or not brief.passages


def test_the_smallest_sufficient_budget_of_a_brief_with_a_gap_includes_the_gap() -> None:
    missing = {"wiki": "it is down"}
    shown = compose("", [passage("ok")], [], missing=missing, budget_tokens=1_000)

    brief = compose("", [passage("ok")], [], missing=missing, budget_tokens=shown.tokens - 1)

    assert (brief.passages, brief.needed_tokens) == ((), shown.tokens)
    again = compose("", [passage("ok")], [], missing=missing, budget_tokens=shown.tokens)
    assert (again.text, again.needed_tokens) == (shown.text, None)


CONCEPT = "service:api:login"


_SENTENCES = some.sampled_from(
    [
        "The cookie is set before the redirect happens.",
        "Nothing else was changed in that week by anybody.",
        "Yes.",
        "The session store keeps tokens for thirty days.",
        "A proxy drops every header that it does not know.",
        "Deploys are frozen until the audit is over.",
    ]
)


_PASSAGES = some.lists(
    some.builds(
        lambda sentences, number, score: Passage(
            text=" ".join(sentences),
            sources=(build(number).id,),
            tokens=0,
            score=score,
            at=START_AT + timedelta(hours=number),
            source="marks",
        ),
        some.lists(_SENTENCES, min_size=1, max_size=5),
        some.integers(1, 9),
        some.floats(0, 1),
    ),
    max_size=6,
)


def _in_order(pieces: list[str], text: str) -> bool:
    place = 0
    for piece in pieces:
        place = text.find(piece, place)
        if place < 0:
            return False
        place += len(piece)
    return True


@given(some.lists(some.tuples(some.floats(0.3, 1), some.integers(1, 40)), max_size=12), some.integers(60, 400))
def test_statements_about_concepts_take_at_most_their_share_of_a_brief(
    sizes: list[tuple[float, int]], budget: int
) -> None:
    """keeps: C-09, K-28. They take at most 1/phi of it, and the whole is never over the budget by mica's estimate."""
    fragments = [
        Fragment(key=f"k{n}", text="word " * size, confidence=sure, at=START_AT, source=f"s{n}")
        for n, (sure, size) in enumerate(sizes)
    ]
    ranks = {each.source: 10 for each in fragments}
    account = ConceptAccount(
        concept=Concept.parse(CONCEPT),
        collected=Collected(fragments=tuple(fragments), ranks=ranks),
        coherent=cohere(fragments, ranks=ranks, now=START_AT, limit=12),
    )
    marks = [
        Passage(text=f"mark {n}", sources=(build(n).id,), tokens=0, score=0.1, at=START_AT, source="marks")
        for n in (1, 2)
    ]

    brief = compose("", marks, [account], missing={}, budget_tokens=budget)

    assert estimate(brief.text) <= budget
    stated = [each for each in brief.passages if each.origins]
    assert sum(each.tokens for each in stated) <= budget * PHI_INV
    assert compose("", marks, [account], missing={}, budget_tokens=budget) == brief


@given(_PASSAGES, some.integers(0, 200))
def test_compressed_text_is_an_ordered_part_of_the_original_within_the_budget(
    passages: list[Passage], budget: int
) -> None:
    """keeps: C-36, TC-10. Sentences are verbatim, gaps are marked, and a text that fits is unchanged."""
    compressed, coverage = compress_passages(
        passages, query="cookie redirect", budget_tokens=budget, cost=lambda each: with_cost(each, budget_tokens=500)
    )

    assert sum(each.tokens for each in compressed) <= budget
    wholes = {each.sources: each.text for each in passages}
    for each in compressed:
        pieces = [piece.strip() for piece in each.text.split("…") if piece.strip()]
        texts = [other.text for other in passages if other.sources == each.sources]
        assert any(_in_order(pieces, text) for text in texts), (pieces, wholes)
    if coverage is None:
        assert [each.text for each in compressed] == [each.text for each in passages]
    else:
        assert coverage.sentences <= coverage.of


@pytest.mark.parametrize("budget_tokens", range(1, 200, 20))
async def test_passages_without_a_sentence_left_are_counted(home: Settings, budget_tokens: int) -> None:
    """keeps: K-29. An empty brief says how many lines there could be, compressed or not."""
    async with mica.open(":memory:", settings=home) as memory:
        for thing in ("browser", "shop", "proxy", "mailer", "vault", "ledger"):
            memory.mark(f"The {thing} reads the login cookie")
        plain = await memory.brief("login cookie", budget_tokens=budget_tokens)
        short = await memory.brief("login cookie", budget_tokens=budget_tokens, compress=True)

    shown = [len({each.sources for each in brief.passages}) for brief in (plain, short)]
    assert shown[0] + plain.left_out == shown[1] + short.left_out == 6


async def test_contradictions_are_decided_before_texts_are_compressed(memory: Memory) -> None:
    """keeps: C-02, C-25. Compression changes how much of a text is shown, never which statement wins."""
    filler = "Somebody wrote a long story about something that has nothing to do with it. " * 6
    memory.mark(f"{filler}The login cookie is set before the redirect. {filler}")
    memory.sources.add(ScriptedSource("database", {"port": 8080}, rank=10))
    memory.sources.add(ScriptedSource("file", {"port": 8081}))

    plain, short = [
        await memory.brief("login cookie redirect", concept="service:api:login", budget_tokens=250, compress=compress)
        for compress in (False, True)
    ]

    assert (plain.is_compressed, short.is_compressed) == (False, True)
    assert plain.coherence == short.coherence is not None
    conflict = "- conflicts: port: [file] says port is 8081, loses to [database] (less trusted, rank 20 against 10)"
    for brief in (plain, short):
        assert conflict in brief.text.splitlines()
        assert "[database]: port is 8080" in brief.text


async def test_compression_is_opt_in_and_reports_how_much_remains(memory: Memory) -> None:
    """keeps: C-25, K-29. The sentence that answers the question stays."""
    with memory.context(session="s1"):
        for note in (*NOTES, *OTHER):
            memory.mark(note)
        memory.mark("The login cookie is set before the redirect. That surprised everybody in the meeting.")

    plain = await memory.brief("login cookie redirect", budget_tokens=150)
    short = await memory.brief("login cookie redirect", budget_tokens=150, compress=True)

    assert "- compressed: " not in plain.text
    assert "The login cookie is set before the redirect." in short.text
    assert "- compressed: " in short.text
    assert " sentences are shown, in their own words" in short.text
    assert (plain.is_compressed, short.is_compressed) == (False, True)
    assert max(plain.tokens, short.tokens) <= 150

"""Beliefs in a brief: rules first, what is in force, both sides of a conflict, and nothing that has ended."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

import mica
from mica import Memory
from mica.brief.belief_source import SECTION, BeliefSource, excerpt_of_belief
from mica.brief.composition import RULES_SHARE
from mica.brief.excerpt import passage_of
from mica.brief.layout import HEADING_TOKENS, cost_within
from mica.model.belief import KINDS, Belief, BeliefKind
from mica.model.brief import SECTIONS, Brief, Passage
from mica.settings import Settings
from mica.sources.protocol import Question
from mica.testing import HandClock

RULES = (
    "Always use uv run",
    "Never use floats for money",
    "Keep amounts in cents until they are printed",
    "Write commit messages in English",
    "Ask before a force push to main",
    "Put fixtures into the folder of their test",
    "Log with structlog and never print",
    "Close every socket in a finally block",
)


def of_section(brief: Brief, section: str) -> list[str]:
    return [each.text for each in brief.passages if each.section == section]


async def state(memory: Memory, text: str, *, tag: str = "prompt", session: str = "s1", by: str = "user") -> None:
    """Record a statement of a session."""
    with memory.context(session=session):
        memory.mark(text, tags=(tag,), origin="user" if by == "user" else "agent")
    await memory.durable()


async def test_each_kind_has_its_section(memory: Memory) -> None:
    """keeps: C-40, U-01"""
    texts: dict[BeliefKind, str] = {
        "rule": "Never use floats for money",
        "preference": "Ann prefers short commit messages",
        "decision": "The shop keeps sessions in redis",
        "fact": "The proxy listens on port 8443",
        "gotcha": "The mailer drops attachments above nine megabytes",
        "task": "Translate the report into French",
        "question": "Who may delete members of the club?",
    }
    for kind, text in texts.items():
        await memory.beliefs.add(kind, text)

    brief = await memory.brief(budget_tokens=2_000)

    for kind, text in texts.items():
        assert text in of_section(brief, SECTION[kind])
    headings = [line for line in brief.text.splitlines() if line.startswith("## ")]
    assert headings == ["## Rules", "## Now", "## Decisions", "## Known"]
    assert set(SECTION) == set(KINDS)


async def test_a_belief_cites_its_evidence_and_names_its_speaker(memory: Memory, clock: HandClock) -> None:
    with memory.context(session="s1", user="ann"):
        first = memory.mark("Never use floats for money", tags=("prompt",), origin="user")
    clock.move(days=1)
    with memory.context(session="s2", user="ann"):
        second = memory.mark("Never use floats for money!", tags=("prompt",), origin="user")

    brief = await memory.brief(budget_tokens=500)

    [rule] = [each for each in brief.passages if each.section == "rules"]
    assert (rule.source, rule.kind, rule.at) == ("beliefs", "ann", clock())
    assert rule.sources == (first.id, second.id)
    assert brief.text.count("floats for money") == 1


async def test_what_the_asking_session_said_is_left_out(memory: Memory) -> None:
    """keeps: U-01. Its agent has it before it anyway; another session gets it."""
    await state(memory, "Never use floats for money", session="s1")
    await state(memory, "The proxy listens on port 8443", session="s1", tag="fact")
    await state(memory, "Always use uv run", session="s2")

    async def told(session: str, query: str) -> str:
        with memory.context(session=session):
            return (await memory.brief(query, budget_tokens=1_000)).text

    for query in ("", "floats, uv and the proxy port"):
        first, second = await told("s1", query), await told("s2", query)
        assert "floats" not in first
        assert "8443" not in first
        assert "uv run" in first
        assert "floats" in second
        assert "8443" in second
        assert "uv run" not in second


async def test_a_replaced_belief_is_shown_only_by_what_replaced_it(memory: Memory, clock: HandClock) -> None:
    """keeps: C-42"""
    await memory.beliefs.add("fact", "The proxy timeout is 30 seconds")
    clock.move(days=1)
    old = next(each for each in await memory.beliefs.list() if "30 seconds" in each.text)
    await memory.beliefs.correct(old, "The proxy timeout is 90 seconds")

    for query in ("", "proxy timeout"):
        brief = await memory.brief(query, budget_tokens=1_000)
        assert "90 seconds" in brief.text
        assert "30 seconds" not in brief.text


@pytest.mark.parametrize("query", ["", "floats for money"])
async def test_an_ended_belief_is_not_shown(memory: Memory, query: str) -> None:
    """keeps: C-42. Neither as a belief nor as a sentence of recent work."""
    await state(memory, "Never use floats for money")
    await state(memory, "The report is translated into French", tag="closing", by="agent", session="s2")
    assert "floats" in (await memory.brief(query, budget_tokens=1_000)).text
    [rule] = await memory.beliefs.list("rule")

    await memory.beliefs.end(rule, reason="the ledger does the rounding")

    brief = await memory.brief(query, budget_tokens=1_000)
    assert "floats" not in brief.text
    assert "French" in brief.text or query


async def test_a_retracted_mark_leaves_no_belief(memory: Memory) -> None:
    with memory.context(session="s1"):
        mark = memory.mark("Never use floats for money", tags=("prompt",), origin="user")
    await memory.retract(mark.id, reason="it was a joke")

    assert "floats" not in (await memory.brief(budget_tokens=1_000)).text


async def test_a_purged_belief_is_in_no_brief(memory: Memory) -> None:
    """keeps: U-10"""
    with memory.context(session="s1"):
        secret = memory.mark("Always log in to the shop with hunter2", tags=("prompt",), origin="user")
    await memory.brief(budget_tokens=1_000)
    await memory.purge(ids=[secret.id])

    for query in ("", "log in to the shop"):
        assert "hunter2" not in (await memory.brief(query, budget_tokens=1_000)).text


async def test_a_conflict_is_shown_with_both_sides(memory: Memory, clock: HandClock) -> None:
    """keeps: C-43. Neither side is chosen for the agent."""
    for user, session, text in (
        ("ann", "s1", "Use squash merges for the api repository"),
        ("ben", "s2", "Use rebase merges for the api repository"),
    ):
        clock.move(seconds=1)
        with memory.context(session=session, user=user):
            memory.mark(text, tags=("prompt",), origin="user")
    beliefs = await memory.beliefs.list()

    brief = await memory.brief(budget_tokens=1_000)

    shown = [each for each in beliefs if each.text in brief.text]
    assert len(shown) == sum(each.is_in_force for each in beliefs)
    positions = {each.id: each.position for each in shown}
    for each in shown:
        for other in each.conflicts:
            assert f"conflicts with #{positions[other]}" in brief.text


async def test_the_conflict_of_a_belief_is_named_beside_its_speaker(memory: Memory) -> None:
    one = await memory.beliefs.add("fact", "The upload times out after 30 seconds")
    other = await memory.beliefs.add("fact", "The download needs a token")

    excerpt = excerpt_of_belief(one, 1.0, opposed=[other])

    assert excerpt.kind == f"user, conflicts with #{other.position}"


async def test_an_agents_belief_that_is_only_forming_is_not_told_as_a_belief(memory: Memory) -> None:
    """keeps: C-41"""
    await state(memory, "The import is slow on large files.", tag="closing", by="agent")
    await memory.beliefs.refresh()

    source = BeliefSource(memory._store.beliefs)
    forming = [each for each in await memory.beliefs.list() if not each.is_in_force]
    told = await source.fragments(Question(task="import", now=forming[0].at))

    assert forming
    assert not {each.text for each in told} & {each.text for each in forming}


@pytest.mark.parametrize("query", ["", "money in the shop"])
async def test_rules_take_at_most_their_share_and_the_rest_is_counted(memory: Memory, query: str) -> None:
    """keeps: C-40"""
    for rule in RULES:
        await memory.beliefs.add("rule", rule)

    for budget in (80, 120, 160, 240):
        brief = await memory.brief(query, budget_tokens=budget)
        rules = [each for each in brief.passages if each.section == "rules"]
        assert brief.tokens <= budget
        assert len(rules) == 1 or sum(each.tokens for each in rules) <= RULES_SHARE * budget
        if rules and len(rules) < len(RULES):
            assert f"- missing: rules ({len(RULES) - len(rules)} more rule" in brief.text
            assert brief.missing["rules"].startswith(f"{len(RULES) - len(rules)} more rule")
    assert set(RULES) == set(of_section(await memory.brief(query, budget_tokens=1_000), "rules"))


async def test_a_larger_budget_shows_all_rules_of_a_smaller_one(home: Settings) -> None:
    async with mica.open(":memory:", settings=home) as memory:
        for rule in RULES:
            await memory.beliefs.add("rule", rule)
        before: set[str] = set()
        for budget in range(60, 500, 20):
            shown = set(of_section(await memory.brief(budget_tokens=budget), "rules"))
            assert before <= shown, budget
            before = shown
    assert before == set(RULES)


async def test_instruction_files_are_not_repeated(home: Settings, tmp_path: Path) -> None:
    """The client shows them to the agent anyway."""
    (tmp_path / "AGENTS.md").write_text("# Rules\n\n- Always use uv run\n")
    async with mica.open(":memory:", settings=home) as memory:
        with memory.context(session="s0"):
            memory.emit("session.started", {"cwd": str(tmp_path), "directory": str(tmp_path)})
        for rule in RULES[:2]:
            await memory.beliefs.add("rule", rule)
        brief = await memory.brief(budget_tokens=500)

    assert RULES[1] in brief.text
    assert RULES[0] not in brief.text


# -- The budget is used ----------------------------------------------------------------------------------------


def unique_words(number: int, count: int) -> str:
    """Words that no other number has, so that no belief repeats or ends another."""
    syllables = "ba de fi go ku la me ni po ru sa te vi wo zu".split()
    names = []
    for place in range(count):
        rest = number * 100 + place
        name = ""
        for _ in range(4):
            rest, at = divmod(rest, len(syllables))
            name += syllables[at]
        names.append(f"q{name}x")
    return " ".join(names)


STATED = some.lists(some.tuples(some.sampled_from(KINDS), some.integers(2, 24)), min_size=1, max_size=14)


def cost(passage: Passage) -> int:
    return (cost_within(passage, 100_000) or 0) + HEADING_TOKENS


@settings(max_examples=30, deadline=None)
@given(stated=STATED, budget=some.integers(70, 700), query=some.booleans())
def test_a_budget_is_used_while_a_belief_in_force_that_fits_was_left_out(
    home_for_all: Settings, stated: Sequence[tuple[BeliefKind, int]], budget: int, query: bool
) -> None:
    """keeps: U-01. At least 95 % of it, by mica's own estimator; rules have a share of their own."""

    async def ask() -> tuple[Brief, list[Belief]]:
        async with mica.open(":memory:", settings=home_for_all) as memory:
            for number, (kind, count) in enumerate(stated):
                await memory.beliefs.add(kind, unique_words(number, count).capitalize())
            task = unique_words(0, 2) if query else ""
            return await memory.brief(task, budget_tokens=budget, is_preview=True), await memory.beliefs.in_force()

    brief, beliefs = asyncio.run(ask())

    shown = {each.text for each in brief.passages}
    fitting = [
        each
        for each in beliefs
        if SECTION[each.kind] != "rules"
        and not any(each.text in text for text in shown)
        and cost(passage_of(excerpt_of_belief(each, 1.0))) <= budget - brief.tokens
    ]
    assert brief.tokens <= budget
    if not brief.passages:  # the fence alone takes most of a tiny budget
        assert brief.needed_tokens is None or brief.needed_tokens > budget
    else:
        assert not fitting or brief.tokens >= 0.95 * budget
    assert [each.section for each in brief.passages] == sorted(
        (each.section for each in brief.passages), key=SECTIONS.index
    )


@pytest.fixture(scope="session")
def home_for_all(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    home = tmp_path_factory.mktemp("home")
    return mica.load_settings({"HOME": str(home), "MICA_BRIEF_DEADLINE_S": "30", "MICA_SEMANTIC": "off"})

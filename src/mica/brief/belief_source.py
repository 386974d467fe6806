"""The source of beliefs: standing rules, decisions in force, facts, and open work."""

from __future__ import annotations

from collections.abc import Sequence

from mica.beliefs.subjects import lookup_keys, subject_of
from mica.brief.budget import BELIEFS
from mica.brief.excerpt import Excerpt
from mica.brief.worth import MATCH, UNRELATED, of_belief, relevance
from mica.model.belief import IN_FORCE, Belief, BeliefKind, BeliefQuery
from mica.model.brief import Section
from mica.sources.protocol import Fragment, Question, SourceDeclaration
from mica.store.protocol import BeliefTable

RULES_MAX = 300  # far more than fit into any brief
OPEN_MAX = 40
LATEST_MAX = 80  # decisions, facts and gotchas, of which the newest are worth most
REPLACING = 0.1  # added to a belief that replaced another: the old one may still be in an agent's window

SECTION: dict[BeliefKind, Section] = {
    "rule": "rules",
    "preference": "rules",
    "decision": "decisions",
    "fact": "known",
    "gotcha": "known",
    "task": "now",
    "question": "now",
}


class BeliefSource:
    """A source of the beliefs that are in force."""

    declared = SourceDeclaration(name=BELIEFS, concepts=(), is_live=True, answers_tasks=True)

    def __init__(self, table: BeliefTable) -> None:
        self._table = table

    async def fragments(self, question: Question) -> Sequence[Fragment]:
        beliefs = [each for each in await self._candidates(question) if _is_news(each, question)]
        matching = relevance(question.task, [each.text for each in beliefs])
        scores = {each.id: worth(each, question, share) for each, share in zip(beliefs, matching, strict=True)}
        by_id = {each.id: each for each in beliefs}
        excerpts = []
        for each in beliefs:
            opposed = [by_id[other] for other in each.conflicts if other in by_id]
            score = max([scores[each.id], *(scores[other.id] for other in opposed)])  # both sides are shown
            excerpts.append(excerpt_of_belief(each, score, opposed=opposed))
        return excerpts

    async def _candidates(self, question: Question) -> list[Belief]:
        wanted: list[tuple[tuple[BeliefKind, ...], int]] = [
            (("rule", "preference"), RULES_MAX),
            (("task", "question"), OPEN_MAX),
            (("decision", "fact", "gotcha"), LATEST_MAX),
        ]
        found = [
            each
            for kinds, limit in wanted
            for each in await self._table.query(BeliefQuery(kinds=kinds, states=IN_FORCE, limit=limit))
        ]
        keys = lookup_keys([subject_of(question.task)]) if question.task else []
        related = await self._table.related(keys) if keys else {}
        found += [each for beliefs in related.values() for each in beliefs if each.is_in_force]
        return list({each.id: each for each in found}.values())

    async def close(self) -> None:
        """Do nothing: no resource is held."""


def _is_news(belief: Belief, question: Question) -> bool:
    """Return True if a belief was stated by the time of a question, and not only by the session that asks."""
    return belief.at <= question.now and (question.session is None or belief.session != question.session)


def worth(belief: Belief, question: Question, share: float) -> float:
    """Return the worth of a belief for a question; `share` says how well it matches the task."""
    own = of_belief(belief, now=question.now)
    own += REPLACING if belief.replaces else 0
    if question.task:
        other = UNRELATED[SECTION[belief.kind]]
        own *= other + (1 - other) * min(1.0, 2 * share)
    return own + MATCH * share


def excerpt_of_belief(belief: Belief, score: float, *, opposed: Sequence[Belief] = ()) -> Excerpt:
    """Convert a belief to an excerpt. Its kind names the speaker, and the beliefs in `opposed` that contradict it."""
    note = f", conflicts with {' '.join(f'#{each.position}' for each in opposed)}" if opposed else ""
    return Excerpt(
        text=belief.text,
        sources=belief.evidence,
        score=score,
        at=belief.last_at,
        source=BeliefSource.declared.name,
        kind=f"{_speaker(belief)}{note}",
        locator=f"#{belief.position}",
        section=SECTION[belief.kind],
        ordinal=0,
    )


def _speaker(belief: Belief) -> str:
    if belief.by == "user":
        return belief.user or "user"
    return "commit" if belief.place == "commit" else "agent"

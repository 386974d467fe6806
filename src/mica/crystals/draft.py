"""Drafts of crystals: turns sources into the input of a digest, and a digest into a draft."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from operator import add
from typing import NamedTuple

import msgspec

from mica.crystals.digest import Digest, DigestSource
from mica.crystals.mood import blend, mood
from mica.crystals.periods import DuePeriod
from mica.model.crystal import Crystal, CrystalDraft, Dropped, Level, Mood, Statement, count_tokens
from mica.model.event import EventId, Origin
from mica.model.mark import Mark
from mica.tokens import estimate

SHARES: dict[Level, float] = {"session": 0.15, "day": 0.6, "week": 0.6, "epoch": 0.3}  # of the tokens of the sources
TOKENS_LEAST, TOKENS_MAX = 120, 400  # bounds of the share; below, how a session ended does not fit beside its request
STATED_MAX = 5  # principles of marks that a crystal repeats
# The confidence in a verbatim quote, by its origin.
TRUST: dict[Origin, float] = {"user": 0.95, "agent": 0.9, "tool": 0.85, "imported": 0.8}


class Material(msgspec.Struct, frozen=True, kw_only=True):
    """The sources of a digest, and the marks behind each of them."""

    sources: tuple[DigestSource, ...]
    marks: dict[EventId, tuple[EventId, ...]]  # by the source's id
    owners: dict[EventId, EventId]  # the mark or crystal of each source
    tokens: int

    def besides(self, known: Collection[EventId]) -> Material:
        """Return the sources of which at least one mark is not in `known`."""
        fresh = [each for each in self.sources if not set(self.marks[each.id]) <= set(known)]
        return Material(
            sources=tuple(fresh),
            marks={each.id: self.marks[each.id] for each in fresh},
            owners={each.id: self.owners[each.id] for each in fresh},
            tokens=sum(estimate(each.text) for each in fresh),
        )

    def quote_latest(self) -> Digest:
        """Return a digest that quotes the latest sources verbatim, with at most TOKENS_LEAST tokens together."""
        quotes: list[Statement] = []
        left = TOKENS_LEAST
        for source in reversed(self.sources):
            if (left := left - estimate(source.text)) < 0:
                break
            quotes.append(Statement(source.text, (source.id,)))
        return Digest(insight=tuple(reversed(quotes)))

    def budget(self, due_period: DuePeriod[Mark] | DuePeriod[Crystal]) -> int:
        """Return the maximum number of tokens of the crystal, which is always below that of its sources."""
        # Statements are never split. If there are few, only one may be left out, or the next level would have none.
        least = min(TOKENS_LEAST, self.tokens * 2 // 3 if due_period.level == "session" else self.tokens - 1)
        return min(TOKENS_MAX, max(least, round(self.tokens * SHARES[due_period.level])), self.tokens - 1)


def material(sources: Sequence[Mark] | Sequence[Crystal]) -> Material:
    """Convert marks, or the statements of crystals, to digest sources.

    The weight of a statement is the number of marks beneath its crystal, divided by the number of its statements.
    """
    pieces: list[DigestSource] = []
    marks: dict[EventId, tuple[EventId, ...]] = {}
    owners: dict[EventId, EventId] = {}
    tokens = 0
    for source in sources:
        if isinstance(source, Mark):
            pieces.append(DigestSource(source.id, source.text, tags=source.tags, at=source.at, reason=source.why or ""))
            marks[source.id], owners[source.id] = (source.id,), source.id
            tokens += estimate(source.text)
            continue
        tokens += source.tokens
        share = source.marks / len(source.statements)
        for number, statement in enumerate(source.statements):
            identifier = EventId(f"{source.id}/{number}")
            weight = max(1.0, share)
            piece = DigestSource(identifier, statement.text, at=source.start_at, weight=weight, is_whole=True)
            pieces.append(piece)
            marks[identifier], owners[identifier] = statement.sources, source.id
    return Material(sources=tuple(pieces), marks=marks, owners=owners, tokens=tokens)


def make_draft(
    due_period: DuePeriod[Mark] | DuePeriod[Crystal], made_of: Material, digest: Digest, *, method: str
) -> CrystalDraft | None:
    """Return a draft made from a digest; None if the digest has no insight or is not shorter than its sources.

    `method` is the name of the method that made the digest, which is recorded.
    """
    parts = DraftSections(*(_cited(part, made_of) for part in (digest.insight, digest.significance, digest.principles)))
    if not parts.insight or parts.tokens >= made_of.tokens:
        return None
    parts = parts.with_principles(stated_principles(due_period.sources), room_tokens=made_of.tokens)
    return _draft(due_period, made_of, digest, parts, method=method)


def continue_draft(
    due_period: DuePeriod[Mark] | DuePeriod[Crystal],
    made_of: Material,
    written: Sequence[Crystal],
    digest: Digest,
    *,
    method: str,
) -> CrystalDraft | None:
    """Return a draft that keeps the statements of `written` crystals and adds those of `digest`.

    A statement is kept if all marks that it cites are beneath the sources. `digest` covers the other sources, and is
    left out if the draft would not be shorter than the sources. Returns None if no statement of an insight is kept, or
    if the kept statements alone are not shorter than the sources.
    """
    beneath = frozenset[EventId]().union(*made_of.marks.values())
    own = [
        tuple(each for crystal in written for each in getattr(crystal, name) if beneath.issuperset(each.sources))
        for name in ("insight", "significance", "principles")
    ]
    parts = DraftSections(*own)
    if not parts.insight or parts.tokens >= made_of.tokens:
        return None
    new = DraftSections(*(_cited(part, made_of) for part in (digest.insight, digest.significance, digest.principles)))
    longer = DraftSections(*map(add, parts, new))
    parts = longer if longer.tokens < made_of.tokens else parts
    parts = parts.with_principles(stated_principles(due_period.sources), room_tokens=made_of.tokens)
    topics = dict.fromkeys([*(topic for crystal in written for topic in crystal.topics), *digest.topics])
    draft = _draft(due_period, made_of, msgspec.structs.replace(digest, topics=tuple(topics)), parts, method=method)
    labels = [crystal.label for crystal in written if crystal.label is not None]
    return msgspec.structs.replace(
        draft,
        confidence=min(crystal.confidence for crystal in written),
        label=due_period.label or next(iter(labels), None),
        dropped=_still_dropped(draft, written),
    )


def _still_dropped(draft: CrystalDraft, written: Sequence[Crystal]) -> tuple[Dropped, ...]:
    """Return the dropped sources of a draft. Reasons recorded in the earlier crystals `written` take precedence."""
    earlier = {each.id: each for crystal in written for each in crystal.dropped}
    return tuple(earlier.get(each.id, each) for each in draft.dropped)


class DraftSections(NamedTuple):
    """The statements of a draft by section."""

    insight: tuple[Statement, ...]
    significance: tuple[Statement, ...]
    principles: tuple[Statement, ...]

    @property
    def tokens(self) -> int:
        return count_tokens(self.insight + self.significance + self.principles)

    def with_principles(self, stated: Sequence[Statement], *, room_tokens: int) -> DraftSections:
        """Return the sections with new principles from `stated` put before the other principles.

        At most STATED_MAX are added, and only as long as all statements together stay below `room_tokens`.
        """
        known = {statement.text for statement in (*self.insight, *self.significance, *self.principles)}
        parts = self
        for number, each in enumerate(each for each in stated if each.text not in known):
            principles = (*parts.principles[:number], each, *parts.principles[number:])
            longer = parts._replace(principles=principles)
            if number >= STATED_MAX or longer.tokens >= room_tokens:
                break
            parts = longer
        return parts


def stated_principles(sources: Sequence[Mark] | Sequence[Crystal]) -> list[Statement]:
    """Return the principles that were recorded with marks, latest first, each with all marks that state it."""
    by_text: dict[str, list[EventId]] = {}
    for source in reversed(sources):
        if isinstance(source, Mark):
            for principle in source.principles:
                by_text.setdefault(principle.strip(), []).append(source.id)
    return [Statement(text, tuple(reversed(marks))) for text, marks in by_text.items() if text]


def _draft(
    due_period: DuePeriod[Mark] | DuePeriod[Crystal],
    made_of: Material,
    digest: Digest,
    parts: DraftSections,
    *,
    method: str,
) -> CrystalDraft:
    statements = parts.insight + parts.significance + parts.principles
    cited = {each for statement in statements for each in statement.sources}
    used = {made_of.owners[each] for each, behind in made_of.marks.items() if cited.intersection(behind)}
    why: dict[EventId, Dropped] = {}
    for each in digest.dropped:
        owner = made_of.owners[each.id]
        why.setdefault(
            owner, Dropped(owner, each.reason, made_of.owners.get(each.similar_to) if each.similar_to else None)
        )
    sources: Sequence[Mark] | Sequence[Crystal] = due_period.sources
    return CrystalDraft(
        level=due_period.level,
        period=due_period.period,
        insight=parts.insight,
        significance=parts.significance,
        principles=parts.principles,
        topics=digest.topics,
        mood=_mood(sources, made_of),
        sources=tuple(source.id for source in sources),
        start_at=min(source.at if isinstance(source, Mark) else source.start_at for source in sources),
        end_at=max(source.at if isinstance(source, Mark) else source.end_at for source in sources),
        tokens=parts.tokens,
        source_tokens=made_of.tokens,
        confidence=_confidence(sources, cited),
        marks=sum(1 if isinstance(source, Mark) else source.marks for source in sources),
        dropped=tuple(why.get(source.id, Dropped(source.id, "no room")) for source in sources if source.id not in used),
        method=method,
        revision=due_period.revision,
        supersedes=due_period.superseded,
        label=due_period.label,
    )


def _cited(statements: Sequence[Statement], made_of: Material) -> tuple[Statement, ...]:
    """Return the statements with the marks that they cite, in place of the sources of the digest."""
    return tuple(
        Statement(
            each.text,
            tuple(dict.fromkeys(mark for source in each.sources for mark in made_of.marks.get(source, (source,)))),
        )
        for each in statements
    )


def _mood(sources: Sequence[Mark] | Sequence[Crystal], made_of: Material) -> Mood:
    crystals = [source for source in sources if isinstance(source, Crystal)]
    if crystals:
        return blend([(crystal.mood, max(1, crystal.marks)) for crystal in crystals])
    return mood(made_of.sources)


def _confidence(sources: Sequence[Mark] | Sequence[Crystal], cited: set[EventId]) -> float:
    """Return the mean confidence of the sources. Marks count only if they are cited; crystals always count."""
    trusted = [
        TRUST.get(source.origin, 0.5) if isinstance(source, Mark) else source.confidence
        for source in sources
        if isinstance(source, Crystal) or source.id in cited
    ]
    return round(sum(trusted) / len(trusted), 3) if trusted else 0.5

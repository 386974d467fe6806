"""From what is to be closed to a crystal: the sources as a digest wants them, and its answer as a draft."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from mica.crystallize.closing import Closing
from mica.crystallize.digest import Digest, Source
from mica.crystallize.digest import Statement as Said
from mica.crystallize.mood import blend, mood
from mica.crystals import Crystal, Draft, Dropped, Mood, Statement, said_tokens
from mica.model import EventId, Mark, Origin
from mica.tokens import estimate

MARKS_SHARE, CRYSTALS_SHARE = 0.10, 0.30  # of the tokens of the sources, for a crystal over them
TOKENS_LEAST, TOKENS_MAX = 60, 400  # where a share is very small or very large
# How far a sentence that is quoted word for word can be trusted: as far as who said it.
TRUST: dict[Origin, float] = {"user": 0.95, "agent": 0.9, "tool": 0.85, "imported": 0.8}


class Material(msgspec.Struct, frozen=True, kw_only=True):
    """What a digest is made of, and which marks each of its sources stands for."""

    sources: tuple[Source, ...]
    marks: dict[str, tuple[EventId, ...]]  # by the source's id
    owners: dict[str, EventId]  # the mark or crystal that a source belongs to
    tokens: int

    def budget(self, closing: Closing[Mark] | Closing[Crystal]) -> int:
        """How long the crystal may be; always shorter than its sources."""
        share = MARKS_SHARE if closing.level == "session" else CRYSTALS_SHARE
        least = min(TOKENS_LEAST, self.tokens // 2)
        return min(TOKENS_MAX, max(least, round(self.tokens * share)), self.tokens - 1)


def material(sources: Sequence[Mark] | Sequence[Crystal]) -> Material:
    """Marks by themselves; crystals by their statements, each with the weight of the marks behind it."""
    found: list[Source] = []
    marks: dict[str, tuple[EventId, ...]] = {}
    owners: dict[str, EventId] = {}
    tokens = 0
    for source in sources:
        if isinstance(source, Mark):
            found.append(Source(id=source.id, text=source.text, tags=source.tags, at=source.at))
            marks[source.id], owners[source.id] = (source.id,), source.id
            tokens += estimate(source.text)
            continue
        tokens += source.tokens
        share = source.marks / len(source.statements)
        for number, statement in enumerate(source.statements):
            identifier = f"{source.id}/{number}"
            found.append(Source(id=identifier, text=statement.text, at=source.start_at, weight=max(1.0, share)))
            marks[identifier], owners[identifier] = statement.sources, source.id
    return Material(sources=tuple(found), marks=marks, owners=owners, tokens=tokens)


def drafted(
    closing: Closing[Mark] | Closing[Crystal], made_of: Material, digest: Digest, *, method: str
) -> Draft | None:
    """The crystal that a digest comes to; None when it says nothing, because nothing shorter could be said."""
    insight, significance, principles = (
        _cited(part, made_of) for part in (digest.insight, digest.significance, digest.principles)
    )
    statements = insight + significance + principles
    tokens = said_tokens(statements)
    if not insight or tokens >= made_of.tokens:
        return None
    cited = {each for statement in statements for each in statement.sources}
    used = {made_of.owners[each] for each, behind in made_of.marks.items() if cited.intersection(behind)}
    why: dict[EventId, Dropped] = {}
    for each in digest.dropped:
        owner = made_of.owners[each.id]
        why.setdefault(owner, Dropped(owner, each.reason, made_of.owners.get(each.similar_to)))
    sources: Sequence[Mark] | Sequence[Crystal] = closing.sources
    return Draft(
        level=closing.level,
        period=closing.period,
        insight=insight,
        significance=significance,
        principles=principles,
        topics=digest.topics,
        mood=_mood(sources, made_of),
        sources=tuple(source.id for source in sources),
        start_at=min(source.at if isinstance(source, Mark) else source.start_at for source in sources),
        end_at=max(source.at if isinstance(source, Mark) else source.end_at for source in sources),
        tokens=tokens,
        source_tokens=made_of.tokens,
        confidence=_confidence(sources, cited),
        marks=sum(1 if isinstance(source, Mark) else source.marks for source in sources),
        dropped=tuple(why.get(source.id, Dropped(source.id, "no room")) for source in sources if source.id not in used),
        method=method,
        revision=closing.revision,
        supersedes=tuple(crystal.id for crystal in closing.supersedes),
        label=closing.label,
    )


def _cited(said: Sequence[Said], made_of: Material) -> tuple[Statement, ...]:
    return tuple(
        Statement(each.text, tuple(dict.fromkeys(mark for source in each.sources for mark in made_of.marks[source])))
        for each in said
    )


def _mood(sources: Sequence[Mark] | Sequence[Crystal], made_of: Material) -> Mood:
    crystals = [source for source in sources if isinstance(source, Crystal)]
    if crystals:
        return blend([(crystal.mood, max(1, crystal.marks)) for crystal in crystals])
    return mood(made_of.sources)


def _confidence(sources: Sequence[Mark] | Sequence[Crystal], cited: set[EventId]) -> float:
    """How far what is said can be trusted, on average."""
    trusted = [
        TRUST.get(source.origin, 0.5) if isinstance(source, Mark) else source.confidence
        for source in sources
        if isinstance(source, Crystal) or source.id in cited
    ]
    return round(sum(trusted) / len(trusted), 3) if trusted else 0.5

"""Crystals (summaries of many marks, or of many crystals of the level below) and the five laws that they obey.

A crystal is recorded as an event and never changed; a later crystal may supersede it. It is live until it is superseded
or retracted. Its level is a session, a day, a week or an epoch (the time between two marks tagged `milestone`). A
crystal may also summarize a causal tree, which is an event with all its descendants. It then has the level of a
session, but no crystal of a day covers it. The laws, by name:

immutability  crystallization never changes a mark or crystal
provenance    all sources exist; each statement cites marks that the sources cover; sources not cited are listed
levels        the sources of a session's crystal are marks; those of any other crystal are crystals of the level below
time          the period of a crystal contains the times of its sources
compression   a crystal has fewer tokens than its sources
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Annotated, Literal

import msgspec

from mica.errors import InvalidEvent, InvalidInput, LawBroken
from mica.model.event import CRYSTAL, MARK, Context, Event, EventId, split_id
from mica.model.mark import mark_of
from mica.tokens import ESTIMATOR, estimate

Level = Literal["session", "day", "week", "epoch"]
LEVELS: tuple[Level, ...] = ("session", "day", "week", "epoch")
OF_MARKS = -1  # the level of a mark, below all levels of crystals
TREE = "tree:"  # prefix of the period of a crystal that summarizes a causal tree, not a time span

_PERIODS: dict[Level, tuple[str, ...]] = {
    "session": ("session:", "pool:", TREE),
    "day": ("day:",),
    "week": ("week:",),
    "epoch": ("epoch:",),
}


def check_period(level: Level, period: str) -> None:
    """Raise InvalidInput if a crystal of this level cannot have this period.

    A period is a text that begins with its kind, such as `day:2026-11-03`.
    """
    if level not in LEVELS:
        raise InvalidInput(f"there is no level {level!r}; use one of {', '.join(LEVELS)}")
    begins = _PERIODS[level]
    if not isinstance(period, str) or not any(period.startswith(each) and len(period) > len(each) for each in begins):
        known = " or ".join(f"{each}…" for each in begins)
        raise InvalidInput(f"a {level} crystal cannot have the period {period!r}; its period looks like {known}")


NEUTRAL = 0.5  # the value of each quality of a mood if there is no evidence

Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
Period = Annotated[str, msgspec.Meta(min_length=3, max_length=600)]
Text = Annotated[str, msgspec.Meta(min_length=1, max_length=20_000)]
Topic = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]


class Statement(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A sentence of a crystal, and the ids of the marks that it cites (`sources`)."""

    text: Text
    sources: tuple[EventId, ...]


class Dropped(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A source of a crystal that no statement cites, and the reason."""

    id: EventId
    reason: Text
    similar_to: EventId | None = None  # a cited source with the same content


class Mood(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The mood of the work that a crystal summarizes: seven qualities between 0 and 1, computed from its marks."""

    warmth: Share = NEUTRAL  # from the commits
    weight: Share = NEUTRAL  # from the tests
    tempo: Share = NEUTRAL  # from the number of marks
    texture: Share = NEUTRAL  # from the failures: smooth or rough
    brightness: Share = NEUTRAL  # from successes compared with failures
    saturation: Share = NEUTRAL  # from the number of marks, compared with a full session
    complexity: Share = NEUTRAL  # from the kinds of marks

    @property
    def parts(self) -> tuple[float, ...]:
        return msgspec.structs.astuple(self)

    @property
    def dominant(self) -> str | None:
        """The name of the quality that is furthest from neutral; None if all are neutral."""
        furthest = max(self.__struct_fields__, key=lambda name: abs(getattr(self, name) - NEUTRAL))
        return furthest if getattr(self, furthest) != NEUTRAL else None


def join_statements(texts: Iterable[str]) -> str:
    """Join statements into one text; repeated statements are left out.

    Each statement but the last one gets a full stop if it does not end with punctuation.
    """
    distinct = [stripped for text in dict.fromkeys(texts) if (stripped := text.strip())]
    ended = [text if text.endswith((".", "!", "?", ":", ";", "…")) else f"{text}." for text in distinct[:-1]]
    return " ".join([*ended, *distinct[-1:]])


class CrystalDraft(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A crystal before it is recorded; it has no id and no time of recording yet."""

    level: Level
    period: Period  # what it summarizes: session:s1, day:2026-11-03, week:2026-W45, epoch:first release, tree:<id>
    insight: tuple[Statement, ...]
    sources: tuple[EventId, ...]  # marks, or crystals of the level below
    start_at: datetime
    end_at: datetime
    tokens: int  # of all statements
    source_tokens: int
    method: Annotated[str, msgspec.Meta(min_length=1, max_length=200)]  # extractive-1, model:<id>, committed:<agent>
    significance: tuple[Statement, ...] = ()  # why it matters
    principles: tuple[Statement, ...] = ()
    topics: tuple[Topic, ...] = ()
    mood: Mood = Mood()
    confidence: Share = 0.5
    marks: int = 0  # number of marks that it covers, directly or through other crystals
    dropped: tuple[Dropped, ...] = ()
    open: tuple[EventId, ...] = ()  # problems, questions and tasks that no mark fulfills
    revision: Annotated[int, msgspec.Meta(ge=1)] = 1
    supersedes: tuple[EventId, ...] = ()
    label: Annotated[str, msgspec.Meta(max_length=200)] | None = None  # the name of an epoch
    estimator: str = ESTIMATOR  # the name of the method that counted the tokens

    @property
    def statements(self) -> tuple[Statement, ...]:
        return self.insight + self.significance + self.principles

    @property
    def text(self) -> str:
        """The statements of the insight as one text."""
        return join_statements(statement.text for statement in self.insight)

    @property
    def is_tree(self) -> bool:
        return self.period.startswith(TREE)

    @property
    def number(self) -> int:
        """The level as a number: 0 for a session, 3 for an epoch."""
        return LEVELS.index(self.level)

    @property
    def compression(self) -> float:
        """The compression ratio: tokens of the sources per token of the crystal."""
        return self.source_tokens / self.tokens


class Crystal(CrystalDraft, frozen=True, kw_only=True):
    """A recorded summary of marks or crystals, with its sources and the sources that it does not cite."""

    id: EventId
    made_at: datetime
    context: Context
    position: int | None = None


def count_tokens(statements: Iterable[Statement]) -> int:
    """The estimated number of tokens of the distinct statements, written one per line."""
    return estimate("\n".join(dict.fromkeys(statement.text for statement in statements)))


def crystal_data(draft: CrystalDraft) -> dict[str, object]:
    """Return the data of the event that records a crystal."""
    data: dict[str, object] = msgspec.to_builtins(draft)
    return {"text": draft.text, **data}


def crystal_of(event: Event) -> Crystal:
    """Decode the crystal that an event records. Raises InvalidEvent if the event does not record a crystal."""
    try:
        recorded = _decode(event.body)
    except msgspec.ValidationError as error:
        raise InvalidEvent(f"event {event.id!r} is not a crystal: {error}") from error
    known = {name: getattr(recorded, name) for name in CrystalDraft.__struct_fields__}
    return Crystal(id=event.id, made_at=event.at, context=event.context, position=event.position, **known)


class CrystalData(CrystalDraft, frozen=True, kw_only=True):
    """The data of a crystal's event: the crystal, and a `text` that repeats the insight for search and display."""

    text_copy: object = msgspec.field(name="text", default=None)


_decode = msgspec.json.Decoder(CrystalData).decode


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """A period that has no crystal yet, with the reason why it waits."""

    period: str
    count: int  # the number of marks or crystals that its crystal would summarize
    reason: str


# -- The laws -------------------------------------------------------------------------------------------------


class Fact(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The properties of a source (mark or crystal) that are needed to check the laws."""

    level: int  # OF_MARKS, or the number of the crystal's level
    start_at: datetime
    end_at: datetime
    tokens: int
    cites: frozenset[EventId]  # the id of the mark itself, or of the marks that the crystal's statements cite
    is_live: bool = True  # whether it is neither retracted nor superseded


def source_fact(event: Event, *, is_live: bool = True) -> Fact | None:
    """Return the properties of a mark or crystal as a source. Return None if the event cannot be a source.

    Only marks and crystals can be sources. A mark that only repeats text that mica itself gave to an agent cannot.
    """
    if event.name == MARK and event.origin != "recalled":
        return Fact(
            level=OF_MARKS,
            start_at=event.at,
            end_at=event.at,
            tokens=estimate(mark_of(event).text),
            cites=frozenset([event.id]),
            is_live=is_live,
        )
    if event.name == CRYSTAL:
        crystal = crystal_of(event)
        return Fact(
            level=crystal.number,
            start_at=crystal.start_at,
            end_at=crystal.end_at,
            tokens=crystal.tokens,
            cites=frozenset(cited for statement in crystal.statements for cited in statement.sources),
            is_live=is_live,
        )
    return None


def check_laws(crystal: CrystalDraft, facts: Mapping[EventId, Fact]) -> None:
    """Raise LawBroken, with the name of the law, if a crystal breaks a law.

    `facts` has the properties of the crystal's sources, by their ids, except for sources that are not stored.
    """
    _check_provenance(crystal, facts)
    for identifier, fact in facts.items():
        if fact.level != crystal.number - 1:
            below = "marks" if crystal.number == 0 else f"{LEVELS[crystal.number - 1]} crystals"
            actual = "a mark" if fact.level == OF_MARKS else f"a {LEVELS[fact.level]} crystal"
            raise LawBroken("levels", f"a {crystal.level} crystal is made of {below} only; {identifier} is {actual}")
    if own := [identifier for identifier in crystal.sources if identifier in crystal.supersedes]:
        raise LawBroken("provenance", f"{own[0]} is its source; a crystal cannot supersede its own source")
    for moment in (crystal.start_at, crystal.end_at):
        if moment.tzinfo is None:
            raise LawBroken("time", f"{moment.isoformat()} has no time zone; use aware datetimes")
    first, last = min(fact.start_at for fact in facts.values()), max(fact.end_at for fact in facts.values())
    if crystal.start_at > first or crystal.end_at < last:
        raise LawBroken(
            "time",
            f"its time, {crystal.start_at.isoformat()} to {crystal.end_at.isoformat()}, must contain that of its "
            f"sources, {first.isoformat()} to {last.isoformat()}",
        )
    if crystal.estimator != ESTIMATOR:
        raise LawBroken("compression", f"its tokens are counted by {crystal.estimator!r}, which is unknown here")
    if crystal.tokens < count_tokens(crystal.statements):
        raise LawBroken("compression", f"it claims {crystal.tokens} tokens and has {count_tokens(crystal.statements)}")
    whole = sum(fact.tokens for fact in facts.values())
    if crystal.source_tokens != whole:
        raise LawBroken("compression", f"it claims {crystal.source_tokens:,} source tokens and has {whole:,}")
    if not 0 < crystal.tokens < whole:
        raise LawBroken("compression", f"it has {crystal.tokens:,} tokens, its sources {whole:,}; it must have fewer")


def _check_provenance(crystal: CrystalDraft, facts: Mapping[EventId, Fact]) -> None:
    if not crystal.sources:
        raise LawBroken("provenance", "a crystal needs at least one source")
    if len(set(crystal.sources)) < len(crystal.sources):
        raise LawBroken("provenance", "a source may be listed only once")
    if unknown := [identifier for identifier in crystal.sources if identifier not in facts]:
        raise no_source(unknown[0])
    if ended := [identifier for identifier in crystal.sources if not facts[identifier].is_live]:
        raise LawBroken("provenance", f"{ended[0]} was retracted or superseded; use its replacement")
    if not crystal.insight:
        raise LawBroken("provenance", "a crystal needs an insight; this one is empty")
    beneath = frozenset[EventId]().union(*(facts[identifier].cites for identifier in crystal.sources))
    for statement in crystal.statements:
        if not statement.sources or not beneath.issuperset(statement.sources):
            raise LawBroken(
                "provenance", f"every statement cites marks beneath its crystal; this one does not: {statement.text!r}"
            )
    cited = {each for statement in crystal.statements for each in statement.sources}
    dropped = {each.id for each in crystal.dropped}
    for identifier in crystal.sources:
        if not (facts[identifier].cites & cited) and identifier not in dropped:
            raise LawBroken("provenance", f"{identifier} is neither cited nor listed as dropped")


def no_source(identifier: str) -> LawBroken:
    """Make the error for an id that cannot be a source."""
    why = "there is no such event, it is of another kind, it only repeats recalled text, or it was purged"
    return LawBroken("provenance", f"{identifier} cannot be a source: {why}")


def overlap(crystal: CrystalDraft) -> LawBroken:
    """Make the error for a crystal with a source that another live crystal already covers.

    It is not raised for crystals of causal trees, which may cover the same marks as others.
    """
    return LawBroken("overlap", f"another live crystal covers a source of {crystal.period}; supersede that crystal")


# -- Retractions ------------------------------------------------------------------------------------------------


class _Retraction(msgspec.Struct):
    mark: EventId
    reason: str = ""


def retraction_target(event: Event) -> EventId:
    """Return the id of the mark or crystal that an event retracts. Raises InvalidEvent if it has no valid id."""
    try:
        retracted = msgspec.json.decode(event.body, type=_Retraction).mark
    except msgspec.DecodeError as error:
        raise InvalidEvent(f"event {event.id!r} does not name a mark to retract: {error}") from error
    split_id(retracted)
    return retracted


# -- Queries ----------------------------------------------------------------------------------------------------


class CrystalQuery(msgspec.Struct, frozen=True, kw_only=True):
    """A filter for crystals. All fields that are not None must match.

    Of the crystals that match, the `limit` latest are returned, oldest first. Raises InvalidInput for an unknown level,
    a negative limit, or a time without a time zone.
    """

    level: Level | None = None
    period: str | None = None
    since: datetime | None = None  # the crystal ends at this time or later
    until: datetime | None = None  # the crystal begins before this time
    is_live: bool | None = True  # the crystal is neither superseded nor retracted; None for all crystals
    is_sealed: bool | None = None  # the crystal is a source of a live crystal of the next level
    is_stale: bool | None = None  # the crystal has a source that was retracted or superseded
    positions: frozenset[int] | None = None  # the crystal has one of these positions in the log
    limit: int | None = 100

    def __post_init__(self) -> None:
        for at in (self.since, self.until):
            if at is not None and at.tzinfo is None:
                raise InvalidInput(f"{at.isoformat()} has no time zone; use an aware datetime")
        if self.level is not None and self.level not in LEVELS:
            raise InvalidInput(f"there is no level {self.level!r}; use one of {', '.join(LEVELS)}")
        if self.limit is not None and self.limit < 0:
            raise InvalidInput(f"a limit of {self.limit} is not possible; give 0 or more, or None for all")

"""What many marks meant, in their own words: a digest without a model.

Sentences are taken verbatim, each with the marks it is from. Those are taken that cover the most of what an author
would tell of the work, under a budget; whatever no statement cites is listed with the reason. Nothing is written:
the same sources give the same digest, byte for byte.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import Literal, TypeAlias

import msgspec

from mica import tokens
from mica.crystals.choice import Candidate, choose, is_said
from mica.crystals.roles import (
    is_announcement,
    is_fragment,
    is_heading,
    is_instruction,
    is_principle,
    is_question,
    is_significance,
)
from mica.crystals.salience import KINDS, REQUESTS, Said, Table, Tally, shipped, tally, weigh
from mica.crystals.sentences import parts, split, tail
from mica.crystals.topics import topics
from mica.crystals.units import IDENTIFIER, spelled
from mica.errors import InvalidInput
from mica.store.pace import Pause, paced, unhurried

Count: TypeAlias = Callable[[str], int]
Reason: TypeAlias = Literal["empty", "filler", "only asked", "said by another", "no room", "not cited"]

INDIFFERENT = 0.6  # of the mean salience: a unit below it costs, so that a sentence of empty words never pays
REQUEST_SHARE = 0.195  # of the budget: what was asked for is no evidence of work
HEAD_FACTOR = 1.5  # the first sentence of a mark says what it is about
FILLER_FACTOR = 0.8
SAYERS_MAX = 8  # statements of one unit that are compared with a dropped source
THOUGHT_UNITS_MIN = 2  # beside numbers: a heading of one word tells nothing
RAN = frozenset({"edit", "command"})  # marks of what a tool did
FACTORS = {  # how much a kind of mark is worth telling; the highest of its tags counts
    "report": 1.5, "veto": 1.0, "eureka": 1.0, "milestone": 1.0, "decision": 1.0, "reflection": 0.95, "commit": 0.9,
    "taste": 0.9, "gotcha": 0.9, "finding": 0.8, "task": 0.8, "friction": 0.7, "joy": 0.7, "prompt": 0.6, "plan": 0.6,
    "narration": 0.5, "error": 0.4, "edit": 0.3, "command": 0.15,
}  # fmt: skip
FACTOR_ELSE = 0.8


class Source(msgspec.Struct, frozen=True, gc=False):
    """A mark, or a statement of a lower crystal; several statements of one crystal share its id."""

    id: str
    text: str
    tags: tuple[str, ...] = ()
    at: datetime | None = None
    weight: float = 1.0  # how many marks it stands for


class Statement(msgspec.Struct, frozen=True, gc=False):
    """A sentence, exactly as it stands in each of the sources it cites."""

    text: str
    sources: tuple[str, ...]


class Dropped(msgspec.Struct, frozen=True, gc=False):
    """A source that no statement cites, and why."""

    id: str
    reason: Reason
    similar_to: str = ""  # the source that says it, where it is said by another


class Digest(msgspec.Struct, frozen=True, kw_only=True):
    """Each statement once, in the order of time; every source is cited or dropped, never both."""

    insight: tuple[Statement, ...] = ()
    significance: tuple[Statement, ...] = ()  # why it matters, where a source says so
    principles: tuple[Statement, ...] = ()  # rules, where a source states one
    topics: tuple[str, ...] = ()
    dropped: tuple[Dropped, ...] = ()
    tokens: int = 0
    source_tokens: int = 0

    @property
    def statements(self) -> tuple[Statement, ...]:
        return (*self.insight, *self.significance, *self.principles)


def extract(
    sources: Sequence[Source],
    *,
    budget_tokens: int,
    task: str = "",
    counted: Tally | None = None,
    count: Count = tokens.estimate,
    table: Table | None = None,
    pause: Pause = unhurried,
) -> Digest:
    """The digest of these sources, at most the budget and smaller than they are together.

    What the task line says again is the request's, not the work's: it is held to a share of the budget like prompts.
    Where the sources are statements of lower crystals, `counted` is the tally of all marks below them; without it
    each source counts by its weight. `pause` is called every few microseconds: work that nobody waits for can be kept
    there. Raises InvalidInput for a time without a zone or a budget below 0.
    """
    _check(sources, budget_tokens)
    ordered = in_time(sources)
    table = table or shipped()
    reading = _Reading(table, count)
    lines = reading.lines(paced(ordered, pause))
    likely = weigh(counted or _tally(reading, lines, pause), table, pause=pause)
    worth = _worth(likely, table, (unit for line in lines for said in line for unit in said.units))
    sentences = _thoughts(paced(_distinct(lines), pause), reading.is_thought)
    source_tokens = sum(count(source.text) for source in paced(sources, pause))
    limit = min(budget_tokens, source_tokens - 1)
    if all(reading.cost(said[0].text) > limit for said in sentences):  # no sentence has room: a clause of one may
        lines = reading.parts(paced(lines, pause))
        sentences = _thoughts(paced(_distinct(lines), pause), reading.is_thought)
    wholes = len(sentences)
    tails = {number: tail for number, said in enumerate(paced(sentences, pause)) if (tail := reading.tail(said))}
    sentences += tails.values()
    thoughts = [*range(wholes), *tails]
    candidates = [
        _candidate(said, ordered, reading, task, thought=thought)
        for said, thought in zip(paced(sentences, pause), thoughts, strict=True)
    ]
    share = 1.0 if all(candidate.is_request for candidate in candidates) else REQUEST_SHARE
    taken = choose(candidates, worth, budget_tokens=limit, request_tokens=int(limit * share), pause=pause)
    chosen = [sentences[number] for number in taken]
    statements = [Statement(said[0].text, _cited(said, ordered)) for said in chosen]
    left = limit - sum(candidates[number].tokens for number in taken)
    asked = {each for each, number in zip(statements, taken, strict=True) if candidates[number].is_request}
    insight, significance, principles = _parts(statements, asked)
    return Digest(
        insight=insight,
        significance=significance,
        principles=principles,
        topics=topics(lines, worth, spelled=reading.spelled, pause=pause),
        dropped=tuple(
            _dropped(
                ordered,
                paced(lines, pause),
                chosen,
                is_thought=reading.is_thought,
                fits=lambda said: reading.cost(said.text) <= limit,
                had_room=lambda said: reading.cost(said.text) <= left,
            )
        ),
        tokens=count("\n".join(statement.text for statement in statements)) if statements else 0,
        source_tokens=source_tokens,
    )


def count_mentions(sources: Sequence[Source], *, pause: Pause = unhurried) -> Tally:
    """What to carry up: the counts of every unit of these sources."""
    reading = _Reading(shipped())
    return _tally(reading, reading.lines(paced(in_time(sources), pause)), pause)


def _tally(reading: _Reading, lines: Iterable[Line], pause: Pause) -> Tally:
    return tally(said for line in reading.parts(paced(lines, pause)) for said in line)


def in_time(sources: Sequence[Source]) -> list[Source]:
    """The sources in the order of time; as they are given where one has no time."""
    dated = [(source.at, number) for number, source in enumerate(sources) if source.at is not None]
    return [sources[number] for _, number in sorted(dated)] if len(dated) == len(sources) else list(sources)


def _check(sources: Iterable[Source], budget_tokens: int) -> None:
    if budget_tokens < 0:
        raise InvalidInput(f"a digest cannot have {budget_tokens} tokens; give 0 or more")
    for source in sources:
        if source.at is not None and source.at.tzinfo is None:
            raise InvalidInput(f"source {source.id!r} is dated {source.at.isoformat()} without a time zone")


Line: TypeAlias = list[Said]  # the sentences of one source
Test: TypeAlias = Callable[[Said], bool]


class _Reading:
    """Reads each text once, however often it is asked about. It lasts as long as one digest: no text outlives that."""

    def __init__(self, table: Table, count: Count = tokens.estimate) -> None:
        once = self.spelled = cache(lambda text: tuple(spelled(text)))
        self.units = cache(lambda text: tuple(dict.fromkeys([unit for unit, _ in once(text)])))
        self.cost = cache(lambda text: max(1, count(text + "\n")))  # with the line end that parts it from the next
        self.is_thought = cache(lambda said: _is_thought(said, table))

    def lines(self, sources: Iterable[Source]) -> list[Line]:
        """The sentences of each source."""
        return [
            [
                Said(
                    text=sentence,
                    units=self.units(sentence),
                    place=place,
                    is_head=number == 0,
                    kinds=tuple(kind for kind in KINDS if kind in source.tags),
                    weight=source.weight,
                )
                for number, sentence in enumerate(split(source.text))
            ]
            for place, source in enumerate(sources)
        ]

    def parts(self, lines: Iterable[Line]) -> list[Line]:
        """The same, with long sentences in their clauses."""
        return [[part for said in line for part in self._parts(said)] for line in lines]

    def _parts(self, said: Said) -> Iterator[Said]:
        for number, text in enumerate(parts(said.text)):
            if text == said.text:
                yield said
            else:
                yield msgspec.structs.replace(
                    said, text=text, units=self.units(text), is_head=said.is_head and number == 0
                )

    def tail(self, said: Sequence[Said]) -> list[Said]:
        """The last clause of a sentence with every place where it was said, where it tells something by itself."""
        if not (text := tail(said[0].text)):
            return []
        ends = [msgspec.structs.replace(each, text=text, units=self.units(text)) for each in said]
        return ends if any(map(self.is_thought, ends)) else []


def _worth(likely: Mapping[str, float], table: Table, mentioned: Iterable[str]) -> dict[str, float]:
    """What covering a unit brings: its salience above the indifferent, times its rarity."""
    known = {unit: likely[unit] for unit in dict.fromkeys(mentioned) if unit in likely}
    bar = INDIFFERENT * sum(known.values()) / max(1, len(known))
    return {unit: (salience - bar) * table.rarity(unit) for unit, salience in known.items()}


def _distinct(lines: Iterable[Line]) -> Iterable[list[Said]]:
    """Each sentence once, with every place where it was said."""
    found: dict[str, list[Said]] = {}
    for line in lines:
        for said in line:
            found.setdefault(said.text, []).append(said)
    return found.values()


def _thoughts(sentences: Iterable[list[Said]], is_thought: Test) -> list[list[Said]]:
    """The sentences that tell something by themselves; all of them where none does."""
    every = list(sentences)
    return [said for said in every if any(map(is_thought, said))] or every


def _is_thought(said: Said, table: Table) -> bool:
    named = sum(not unit.isdigit() for unit in said.units)
    if "prompt" in said.kinds and (
        is_instruction(said.text) or is_question(said.text) or (is_heading(said.text) and not said.is_head)
    ):
        return False
    return (
        named >= THOUGHT_UNITS_MIN
        and not is_fragment(said.text)
        and not is_announcement(said.text)
        and not _is_boilerplate(said, table)
    )


def _is_boilerplate(said: Said, table: Table) -> bool:
    """Whether a tool says no more than that it ran, or failed: it names nothing, as "Exit code 1" does.

    Nor does an error of words that are common in all work, as "String to replace not found in file." is.
    """
    if any(unit.startswith(IDENTIFIER) for unit in said.units):
        return False
    if RAN.intersection(said.kinds):
        return True
    return "error" in said.kinds and (is_heading(said.text) or all(map(table.is_common, said.units)))


def _candidate(
    said: Sequence[Said], sources: Sequence[Source], reading: _Reading, task: str, *, thought: int
) -> Candidate:
    tags = [sources[each.place].tags for each in said]
    factor = max(FACTORS.get(tag, FACTOR_ELSE) for each in tags for tag in each or ("",))
    if any(each.is_head for each in said):
        factor *= HEAD_FACTOR
    if said[0].is_filler:
        factor *= FILLER_FACTOR
    return Candidate(
        units=said[0].units,
        tokens=reading.cost(said[0].text),
        factor=factor,
        is_request=all(REQUESTS.intersection(each) for each in tags) or bool(task and said[0].text in task),
        thought=thought,
    )


def _cited(said: Iterable[Said], sources: Sequence[Source]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(sources[each.place].id for each in said))


def _parts(statements: Sequence[Statement], asked: Collection[Statement]) -> tuple[tuple[Statement, ...], ...]:
    """Insight, significance and principles: each statement in one of them, and never all in the last two.

    What was asked for is neither a rule that emerged nor a reason.
    """
    parts: tuple[list[Statement], ...] = ([], [], [])
    for statement in statements:
        if statement not in asked and is_principle(statement.text):
            parts[2].append(statement)
        elif statement not in asked and is_significance(statement.text):
            parts[1].append(statement)
        else:
            parts[0].append(statement)
    insight, significance, principles = map(tuple, parts)
    return (insight, significance, principles) if insight else (tuple(statements), (), ())


def _dropped(
    sources: Sequence[Source],
    lines: Iterable[Line],
    taken: Sequence[Sequence[Said]],
    *,
    is_thought: Test,
    fits: Test,
    had_room: Test,
) -> Iterator[Dropped]:
    """Why each source that is not cited was left out; a source of several statements by the first of them.

    `fits`: a digest of this budget could hold the sentence. `had_room`: this one still could.
    """
    listed = {sources[each.place].id for said in taken for each in said}
    sayers: dict[str, list[str]] = {}
    for said in taken:
        for unit in said[0].units:
            sayers.setdefault(unit, []).append(sources[said[0].place].id)
    for source, line in zip(sources, lines, strict=True):
        if source.id in listed:
            continue
        listed.add(source.id)
        named = dict.fromkeys(unit for said in line for unit in said.units)
        others = Counter(name for unit in named for name in sayers.get(unit, ())[:SAYERS_MAX])
        thoughts = [said for said in line if is_thought(said)]
        if not named:
            yield Dropped(source.id, "empty")
        elif others and is_said(named, sayers):
            yield Dropped(source.id, "said by another", others.most_common(1)[0][0])
        elif not any(map(fits, line)):
            yield Dropped(source.id, "no room")
        elif REQUESTS.intersection(source.tags):
            yield Dropped(source.id, "only asked")
        elif all(said.is_filler for said in thoughts) or any(map(had_room, thoughts)):
            yield Dropped(source.id, "filler")
        else:
            yield Dropped(source.id, "no room")

"""A digest of marks in their own words, without a model.

It takes sentences verbatim, each with the marks it comes from, and prefers those that cover most of what an author
would tell of the work within a budget. Each source that no statement cites is listed with the reason. Nothing is
rewritten: the same sources give the same digest, byte for byte.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import TypeAlias

import msgspec

from mica import tokens
from mica.crystals.salience import (
    IDENTIFIER,
    KINDS,
    REQUESTS,
    MentionTally,
    SentenceRead,
    Spelled,
    Table,
    load_table,
    spell_units,
    tally,
    weigh,
)
from mica.crystals.sentences import (
    SentenceCandidate,
    choose,
    is_announcement,
    is_covered,
    is_fragment,
    is_heading,
    is_instruction,
    is_principle,
    is_question,
    is_significance,
    parts,
    split,
    tail,
)
from mica.errors import InvalidInput
from mica.model.crystal import Dropped, Statement
from mica.model.event import EventId
from mica.store.priority import Pause, never_pause, with_pauses

Count: TypeAlias = Callable[[str], int]

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


class DigestSource(msgspec.Struct, frozen=True, gc=False):
    """A mark, or one statement of a crystal of the level below."""

    id: EventId  # of the mark; of a statement, its crystal's id and its number there
    text: str
    tags: tuple[str, ...] = ()
    at: datetime | None = None
    weight: float = 1.0  # how many marks it stands for


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
    sources: Sequence[DigestSource],
    *,
    budget_tokens: int,
    task: str = "",
    counted: MentionTally | None = None,
    count: Count = tokens.estimate,
    table: Table | None = None,
    pause: Pause = never_pause,
) -> Digest:
    """A digest of these sources, within the budget and smaller than the sources together.

    Sentences that repeat the task are limited to a share of the budget, like prompts. If the sources are statements of
    lower crystals, `counted` is the tally of all marks beneath them; without it each source counts by its weight.
    `pause` is called every few microseconds, so that background work can yield. Raises InvalidInput for a time without
    a time zone or a budget below 0.
    """
    _check(sources, budget_tokens)
    ordered = sort_by_time(sources)
    table = table or load_table()
    reading = TextReader(table, count)
    lines = reading.lines(with_pauses(ordered, pause))
    likely = weigh(counted or _tally(reading, lines, pause), table, pause=pause)
    worth = _worth(likely, table, (unit for line in lines for said in line for unit in said.units))
    sentences = _thoughts(with_pauses(_distinct(lines), pause), reading.is_thought)
    source_tokens = sum(count(source.text) for source in with_pauses(sources, pause))
    limit = min(budget_tokens, source_tokens - 1)
    if all(reading.cost(said[0].text) > limit for said in sentences):  # no sentence has room: a clause of one may
        lines = reading.parts(with_pauses(lines, pause))
        sentences = _thoughts(with_pauses(_distinct(lines), pause), reading.is_thought)
    wholes = len(sentences)
    tails = {number: tail for number, said in enumerate(with_pauses(sentences, pause)) if (tail := reading.tail(said))}
    sentences += tails.values()
    thoughts = [*range(wholes), *tails]
    candidates = [
        _candidate(said, ordered, reading, task, thought=thought)
        for said, thought in zip(with_pauses(sentences, pause), thoughts, strict=True)
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
                with_pauses(lines, pause),
                chosen,
                is_thought=reading.is_thought,
                fits=lambda said: reading.cost(said.text) <= limit,
                had_room=lambda said: reading.cost(said.text) <= left,
            )
        ),
        tokens=count("\n".join(statement.text for statement in statements)) if statements else 0,
        source_tokens=source_tokens,
    )


def count_mentions(sources: Sequence[DigestSource], *, pause: Pause = never_pause) -> MentionTally:
    """The counts of every unit of these sources, for the level above."""
    reading = TextReader(load_table())
    return _tally(reading, reading.lines(with_pauses(sort_by_time(sources), pause)), pause)


def _tally(reading: TextReader, lines: Iterable[Line], pause: Pause) -> MentionTally:
    return tally(said for line in reading.parts(with_pauses(lines, pause)) for said in line)


def sort_by_time(sources: Sequence[DigestSource]) -> list[DigestSource]:
    """The sources in order of time; in the given order if one has no time."""
    dated = [(source.at, number) for number, source in enumerate(sources) if source.at is not None]
    return [sources[number] for _, number in sorted(dated)] if len(dated) == len(sources) else list(sources)


def _check(sources: Iterable[DigestSource], budget_tokens: int) -> None:
    if budget_tokens < 0:
        raise InvalidInput(f"a digest cannot have {budget_tokens} tokens; give 0 or more")
    for source in sources:
        if source.at is not None and source.at.tzinfo is None:
            raise InvalidInput(f"source {source.id!r} is dated {source.at.isoformat()} without a time zone")


Line: TypeAlias = list[SentenceRead]  # the sentences of one source
Test: TypeAlias = Callable[[SentenceRead], bool]


class TextReader:
    """Caches units and token counts of texts for the duration of one digest."""

    def __init__(self, table: Table, count: Count = tokens.estimate) -> None:
        once = self.spelled = cache(lambda text: tuple(spell_units(text)))
        self.units = cache(lambda text: tuple(dict.fromkeys([unit for unit, _ in once(text)])))
        self.cost = cache(lambda text: max(1, count(text + "\n")))  # with the line end that parts it from the next
        self.is_thought = cache(lambda said: _is_thought(said, table))

    def lines(self, sources: Iterable[DigestSource]) -> list[Line]:
        """The sentences of each source."""
        return [
            [
                SentenceRead(
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
        """The lines with long sentences split into clauses."""
        return [[part for said in line for part in self._parts(said)] for line in lines]

    def _parts(self, said: SentenceRead) -> Iterator[SentenceRead]:
        for number, text in enumerate(parts(said.text)):
            if text == said.text:
                yield said
            else:
                yield msgspec.structs.replace(
                    said, text=text, units=self.units(text), is_head=said.is_head and number == 0
                )

    def tail(self, said: Sequence[SentenceRead]) -> list[SentenceRead]:
        """The last clause of a sentence at all its places, if it can be read by itself; else empty."""
        if not (text := tail(said[0].text)):
            return []
        ends = [msgspec.structs.replace(each, text=text, units=self.units(text)) for each in said]
        return ends if any(map(self.is_thought, ends)) else []


def _worth(likely: Mapping[str, float], table: Table, mentioned: Iterable[str]) -> dict[str, float]:
    """The value of covering each unit: its salience above the bar, times its rarity."""
    known = {unit: likely[unit] for unit in dict.fromkeys(mentioned) if unit in likely}
    bar = INDIFFERENT * sum(known.values()) / max(1, len(known))
    return {unit: (salience - bar) * table.rarity(unit) for unit, salience in known.items()}


def _distinct(lines: Iterable[Line]) -> Iterable[list[SentenceRead]]:
    """The distinct sentences, each with all its places."""
    found: dict[str, list[SentenceRead]] = {}
    for line in lines:
        for said in line:
            found.setdefault(said.text, []).append(said)
    return found.values()


def _thoughts(sentences: Iterable[list[SentenceRead]], is_thought: Test) -> list[list[SentenceRead]]:
    """The sentences that can be read by themselves; all of them if none can."""
    every = list(sentences)
    return [said for said in every if any(map(is_thought, said))] or every


def _is_thought(said: SentenceRead, table: Table) -> bool:
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


def _is_boilerplate(said: SentenceRead, table: Table) -> bool:
    """True for output of a tool that names nothing, such as "Exit code 1".

    Also for an error that has only common words, such as "String to replace not found in file.".
    """
    if any(unit.startswith(IDENTIFIER) for unit in said.units):
        return False
    if RAN.intersection(said.kinds):
        return True
    return "error" in said.kinds and (is_heading(said.text) or all(map(table.is_common, said.units)))


def _candidate(
    said: Sequence[SentenceRead], sources: Sequence[DigestSource], reading: TextReader, task: str, *, thought: int
) -> SentenceCandidate:
    tags = [sources[each.place].tags for each in said]
    factor = max(FACTORS.get(tag, FACTOR_ELSE) for each in tags for tag in each or ("",))
    if any(each.is_head for each in said):
        factor *= HEAD_FACTOR
    if said[0].is_filler:
        factor *= FILLER_FACTOR
    return SentenceCandidate(
        units=said[0].units,
        tokens=reading.cost(said[0].text),
        factor=factor,
        is_request=all(REQUESTS.intersection(each) for each in tags) or bool(task and said[0].text in task),
        thought=thought,
    )


def _cited(said: Iterable[SentenceRead], sources: Sequence[DigestSource]) -> tuple[EventId, ...]:
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
    sources: Sequence[DigestSource],
    lines: Iterable[Line],
    taken: Sequence[Sequence[SentenceRead]],
    *,
    is_thought: Test,
    fits: Test,
    had_room: Test,
) -> Iterator[Dropped]:
    """The sources that are not cited, with the reason; of several statements of a source, the first decides.

    `fits`: a digest of this budget could hold the sentence. `had_room`: this one still could.
    """
    listed = {sources[each.place].id for said in taken for each in said}
    sayers: dict[str, list[EventId]] = {}
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
        elif others and is_covered(named, sayers):
            yield Dropped(source.id, "said by another", others.most_common(1)[0][0])
        elif not any(map(fits, line)):
            yield Dropped(source.id, "no room")
        elif REQUESTS.intersection(source.tags):
            yield Dropped(source.id, "only asked")
        elif all(said.is_filler for said in thoughts) or any(map(had_room, thoughts)):
            yield Dropped(source.id, "filler")
        else:
            yield Dropped(source.id, "no room")


# -- Topics ---------------------------------------------------------------------------------------------------


TOPICS_MAX = 8
LEAD_SHARE_MAX = 0.34  # of its sentences that a term begins: above it, it is a verb like "add"
TERM_CHARACTERS_MIN = 3


def topics(
    lines: Sequence[Iterable[SentenceRead]],
    worth: Mapping[str, float],
    *,
    spelled: Callable[[str], Iterable[Spelled]] = spell_units,
    pause: Pause = never_pause,
) -> tuple[str, ...]:
    """The most valuable terms, each in its most frequent spelling, without numbers and leading verbs."""
    sentences = [sentence for line in lines for sentence in line]
    said = Counter(unit for sentence in sentences for unit in sentence.units)
    able = (unit for unit in said if not unit.isdigit() and worth.get(unit, 0.0) > 0)
    best = heapq.nsmallest(4 * TOPICS_MAX, able, key=lambda unit: (-worth[unit] * min(2, said[unit]), unit))
    spellings: dict[str, Counter[str]] = {unit: Counter() for unit in best}
    leading = Counter[str]()
    for sentence in with_pauses(sentences, pause):
        if spellings.keys().isdisjoint(sentence.units):
            continue
        for unit, spelling in spell_units(sentence.text):
            if unit in spellings:
                spellings[unit][spelling] += 1
                leading[unit] += sentence.text[: len(spelling)].lower() == spelling
    found: list[str] = []
    for unit, written in spellings.items():
        term = min(written, key=lambda spelling: (-written[spelling], spelling))
        is_verb = leading[unit] > LEAD_SHARE_MAX * said[unit]
        is_part = not unit.startswith(IDENTIFIER) and any(term in longer.lower() for longer in found)
        if len(term) >= TERM_CHARACTERS_MIN and not is_verb and not is_part:
            found.append(term)
    return tuple(found[:TOPICS_MAX])

"""An extractive digest of marks, made without a model.

It takes sentences verbatim, each with the marks it comes from. Within the budget it prefers sentences with the terms
that an author would most probably mention when reporting on the work. Each source that is not cited is listed with the
reason. The same sources always give the same digest, byte for byte.
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
    Sentence,
    Spelling,
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
)
from mica.errors import InvalidInput
from mica.model.crystal import Dropped, Statement
from mica.model.event import EventId
from mica.store.priority import Pause, never_pause, with_pauses

Count: TypeAlias = Callable[[str], int]

INDIFFERENT = 0.6  # of the mean salience; words below it have negative worth, so that empty sentences are never chosen
REQUEST_SHARE = 0.195  # of the budget, for requests: they are no evidence of work
HEAD_FACTOR = 1.5  # the first sentence of a mark usually names its subject
FILLER_FACTOR = 0.8
CITING_MAX = 8  # sources per unit that are compared with a dropped source
THOUGHT_UNITS_MIN = 2  # words of a sentence that are no numbers; a heading of one word is not useful
TOOL_KINDS = frozenset({"edit", "command"})  # marks of tool use
FACTORS = {  # the value of a mark by its tags; the highest counts
    "report": 1.5, "veto": 1.0, "eureka": 1.0, "milestone": 1.0, "decision": 1.0, "reflection": 0.95, "commit": 0.9,
    "taste": 0.9, "gotcha": 0.9, "finding": 0.8, "task": 0.8, "friction": 0.7, "joy": 0.7, "prompt": 0.6, "plan": 0.6,
    "narration": 0.5, "error": 0.4, "edit": 0.3, "command": 0.15,
}  # fmt: skip
FACTOR_ELSE = 0.8


class DigestSource(msgspec.Struct, frozen=True, gc=False):
    """One input of a digest: a mark, or one statement of a crystal of the level below."""

    id: EventId  # of the mark; of a statement, its crystal's id and its number there
    text: str
    tags: tuple[str, ...] = ()
    at: datetime | None = None
    weight: float = 1.0  # the number of marks that it represents
    reason: str = ""  # that the author of a mark stated
    is_whole: bool = False  # its text is one statement and is not split


class Digest(msgspec.Struct, frozen=True, kw_only=True):
    """The statements of a digest in order of time, without repetitions. Every source is either cited or dropped."""

    insight: tuple[Statement, ...] = ()
    significance: tuple[Statement, ...] = ()  # reasons and consequences stated by a source
    principles: tuple[Statement, ...] = ()  # rules stated by a source
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
    may_cut: bool = True,
    pause: Pause = never_pause,
) -> Digest:
    """Make a digest of `sources` that fits the budget and is shorter than all sources together.

    Prompts, plans, and sentences that repeat `task` take at most REQUEST_SHARE of the budget, unless there is nothing
    else. If the sources are statements of crystals, pass as `counted` the tally of all marks beneath them; otherwise
    each source counts by its weight. If no whole sentence fits, and `may_cut` is set, sentences are cut at colons and
    semicolons. `count` returns the tokens of a text. `table` has the learned weights, by default
    those that are shipped with mica. `pause` is called between small steps and may block, so that queries come first.
    Raises InvalidInput if a time has no time zone or the budget is negative.
    """
    _check(sources, budget_tokens)
    ordered = sort_by_time(sources)
    table = table or load_table()
    reading = TextReader(table, count)
    lines = reading.lines(with_pauses(ordered, pause))
    likely = weigh(counted or _tally(reading, lines, pause), table, pause=pause)
    worth = _worth(likely, table, (unit for line in lines for sentence in line for unit in sentence.units))
    sentences = _thoughts(with_pauses(_distinct(lines), pause), reading.is_thought)
    source_tokens = sum(count(source.text) for source in with_pauses(sources, pause))
    limit = min(budget_tokens, source_tokens - 1)
    if may_cut and all(reading.cost(same[0].text) > limit for same in sentences):  # no sentence fits, but a clause may
        lines = reading.parts(with_pauses(lines, pause))
        sentences = _thoughts(with_pauses(_distinct(lines), pause), reading.is_thought)
    candidates = [_candidate(same, ordered, reading, task) for same in with_pauses(sentences, pause)]
    share = 1.0 if all(candidate.is_request for candidate in candidates) else REQUEST_SHARE
    numbers = choose(candidates, worth, budget_tokens=limit, request_tokens=int(limit * share), pause=pause)
    chosen = [sentences[number] for number in numbers]
    statements = [Statement(same[0].text, _cited(same, ordered)) for same in chosen]
    left = limit - sum(candidates[number].tokens for number in numbers)
    requests = {each for each, number in zip(statements, numbers, strict=True) if candidates[number].is_request}
    insight, significance, principles = _parts(statements, requests)
    return Digest(
        insight=insight,
        significance=significance,
        principles=principles,
        topics=topics(lines, worth, spell=reading.spell, pause=pause),
        dropped=tuple(
            _dropped(
                ordered,
                with_pauses(lines, pause),
                chosen,
                is_thought=reading.is_thought,
                fits=lambda sentence: reading.cost(sentence.text) <= limit,
                had_room=lambda sentence: reading.cost(sentence.text) <= left,
            )
        ),
        tokens=count("\n".join(statement.text for statement in statements)) if statements else 0,
        source_tokens=source_tokens,
    )


def count_mentions(sources: Sequence[DigestSource], *, pause: Pause = never_pause) -> MentionTally:
    """Count the mentions of every term and identifier in `sources`. Pass the result to `extract` as `counted`."""
    reading = TextReader(load_table())
    return _tally(reading, reading.lines(with_pauses(sort_by_time(sources), pause)), pause)


def _tally(reading: TextReader, lines: Iterable[Line], pause: Pause) -> MentionTally:
    return tally(sentence for line in reading.parts(with_pauses(lines, pause)) for sentence in line)


def sort_by_time(sources: Sequence[DigestSource]) -> list[DigestSource]:
    """Return the sources in order of time. If any source has no time, return them in their present order."""
    dated = [(source.at, number) for number, source in enumerate(sources) if source.at is not None]
    return [sources[number] for _, number in sorted(dated)] if len(dated) == len(sources) else list(sources)


def _check(sources: Iterable[DigestSource], budget_tokens: int) -> None:
    if budget_tokens < 0:
        raise InvalidInput(f"a digest cannot have {budget_tokens} tokens; give 0 or more")
    for source in sources:
        if source.at is not None and source.at.tzinfo is None:
            raise InvalidInput(
                f"source {source.id!r} is dated {source.at.isoformat()} without a time zone; use an aware datetime"
            )


Line: TypeAlias = list[Sentence]  # the sentences of one source
Test: TypeAlias = Callable[[Sentence], bool]


class TextReader:
    """Splits sources into sentences. Caches the terms, identifiers and token counts of texts for one digest."""

    def __init__(self, table: Table, count: Count = tokens.estimate) -> None:
        once = self.spell = cache(lambda text: tuple(spell_units(text)))
        self.units = cache(lambda text: tuple(dict.fromkeys([unit for unit, _ in once(text)])))
        self.cost = cache(lambda text: max(1, count(text + "\n")))  # including the line end
        self.is_thought = cache(lambda sentence: _is_thought(sentence, table))

    def lines(self, sources: Iterable[DigestSource]) -> list[Line]:
        """Return the sentences of each source: one list per source, in order."""
        return [
            [
                Sentence(
                    text=sentence,
                    units=self.units(sentence),
                    place=place,
                    is_head=number == 0,
                    kinds=tuple(kind for kind in KINDS if kind in source.tags),
                    weight=source.weight,
                )
                for number, sentence in enumerate([source.text] if source.is_whole else split(source.text))
            ]
            for place, source in enumerate(sources)
        ]

    def parts(self, lines: Iterable[Line]) -> list[Line]:
        """Return `lines` with long sentences split into clauses."""
        return [[part for sentence in line for part in self._parts(sentence)] for line in lines]

    def _parts(self, sentence: Sentence) -> Iterator[Sentence]:
        for number, text in enumerate(parts(sentence.text)):
            if text == sentence.text:
                yield sentence
            else:
                yield msgspec.structs.replace(
                    sentence, text=text, units=self.units(text), is_head=sentence.is_head and number == 0
                )


def _worth(likely: Mapping[str, float], table: Table, mentioned: Iterable[str]) -> dict[str, float]:
    """Return the worth of each mentioned unit (term or identifier): how much it adds to a digest that mentions it.

    The worth is the salience of the unit, minus INDIFFERENT times the mean salience, multiplied by the rarity of the
    unit.
    """
    known = {unit: likely[unit] for unit in dict.fromkeys(mentioned) if unit in likely}
    bar = INDIFFERENT * sum(known.values()) / max(1, len(known))
    return {unit: (salience - bar) * table.rarity(unit) for unit, salience in known.items()}


def _distinct(lines: Iterable[Line]) -> Iterable[list[Sentence]]:
    by_text: dict[str, list[Sentence]] = {}
    for line in lines:
        for sentence in line:
            by_text.setdefault(sentence.text, []).append(sentence)
    return by_text.values()


def _thoughts(sentences: Iterable[list[Sentence]], is_thought: Test) -> list[list[Sentence]]:
    every = list(sentences)
    return [same for same in every if any(map(is_thought, same))] or every


def _is_thought(sentence: Sentence, table: Table) -> bool:
    """Return True if a sentence is worth quoting: it is readable by itself and is neither announcement nor boilerplate.

    In a prompt, instructions and questions are not worth quoting, and neither are headings after the first sentence.
    """
    text = sentence.text
    named = sum(not unit.isdigit() for unit in sentence.units)
    if "prompt" in sentence.kinds and (
        is_instruction(text) or is_question(text) or (is_heading(text) and not sentence.is_head)
    ):
        return False
    return (
        named >= THOUGHT_UNITS_MIN
        and not is_fragment(text)
        and not is_announcement(text)
        and not _is_boilerplate(sentence, table)
    )


def _is_boilerplate(sentence: Sentence, table: Table) -> bool:
    """Return True for a sentence in a mark about an edit, command or error that says nothing specific.

    Examples are "Exit code 1" and "String to replace not found in file.", which has only common words. A sentence with
    an identifier is never boilerplate.
    """
    if any(unit.startswith(IDENTIFIER) for unit in sentence.units):
        return False
    if TOOL_KINDS.intersection(sentence.kinds):
        return True
    return "error" in sentence.kinds and (is_heading(sentence.text) or all(map(table.is_common, sentence.units)))


def _candidate(
    same: Sequence[Sentence], sources: Sequence[DigestSource], reading: TextReader, task: str
) -> SentenceCandidate:
    tags = [sources[each.place].tags for each in same]
    factor = max(FACTORS.get(tag, FACTOR_ELSE) for each in tags for tag in each or ("",))
    if any(each.is_head for each in same):
        factor *= HEAD_FACTOR
    if same[0].is_filler:
        factor *= FILLER_FACTOR
    return SentenceCandidate(
        units=same[0].units,
        tokens=reading.cost(same[0].text),
        factor=factor,
        is_request=all(REQUESTS.intersection(each) for each in tags) or bool(task and same[0].text in task),
    )


def _cited(same: Iterable[Sentence], sources: Sequence[DigestSource]) -> tuple[EventId, ...]:
    return tuple(dict.fromkeys(sources[each.place].id for each in same))


def _parts(statements: Sequence[Statement], requests: Collection[Statement]) -> tuple[tuple[Statement, ...], ...]:
    """Divide statements into insight, significance and principles.

    Statements in `requests` always belong to the insight. If the insight would be empty, all statements are put there.
    """
    parts: tuple[list[Statement], ...] = ([], [], [])
    for statement in statements:
        if statement not in requests and is_principle(statement.text):
            parts[2].append(statement)
        elif statement not in requests and is_significance(statement.text):
            parts[1].append(statement)
        else:
            parts[0].append(statement)
    insight, significance, principles = map(tuple, parts)
    return (insight, significance, principles) if insight else (tuple(statements), (), ())


def _dropped(
    sources: Sequence[DigestSource],
    lines: Iterable[Line],
    chosen: Sequence[Sequence[Sentence]],
    *,
    is_thought: Test,
    fits: Test,
    had_room: Test,
) -> Iterator[Dropped]:
    """Yield each source that is not cited, with the reason. Of sources with the same id, only the first counts.

    `fits` tests if a sentence alone fits the budget, `had_room` if it fits together with the chosen sentences.
    """
    listed = {sources[each.place].id for same in chosen for each in same}
    citing: dict[str, list[EventId]] = {}
    for first, *_ in chosen:
        for unit in first.units:
            citing.setdefault(unit, []).append(sources[first.place].id)
    for source, line in zip(sources, lines, strict=True):
        if source.id in listed:
            continue
        listed.add(source.id)
        named = dict.fromkeys(unit for sentence in line for unit in sentence.units)
        others = Counter(name for unit in named for name in citing.get(unit, ())[:CITING_MAX])
        thoughts = [sentence for sentence in line if is_thought(sentence)]
        if not named:
            yield Dropped(source.id, "empty")
        elif others and is_covered(named, citing):
            yield Dropped(source.id, "said by another", others.most_common(1)[0][0])
        elif not any(map(fits, line)):
            yield Dropped(source.id, "no room")
        elif REQUESTS.intersection(source.tags):
            yield Dropped(source.id, "only asked")
        elif all(sentence.is_filler for sentence in thoughts) or any(map(had_room, thoughts)):
            yield Dropped(source.id, "filler")
        else:
            yield Dropped(source.id, "no room")


# -- Topics ---------------------------------------------------------------------------------------------------


TOPICS_MAX = 8
LEAD_SHARE_MAX = 0.34  # of its sentences that begin with the term; above it, the term is a verb like "add"
TERM_CHARACTERS_MIN = 3


def topics(
    lines: Sequence[Iterable[Sentence]],
    worth: Mapping[str, float],
    *,
    spell: Callable[[str], Iterable[Spelling]] = spell_units,
    pause: Pause = never_pause,
) -> tuple[str, ...]:
    """Return the terms with the highest worth, at most TOPICS_MAX, in their most frequent spelling.

    `lines` has the sentences of each source, and `worth` the worth of each unit (term or identifier). `spell` yields
    the units of a text with their spellings. Numbers and verbs are left out.
    """
    sentences = [sentence for line in lines for sentence in line]
    counts = Counter(unit for sentence in sentences for unit in sentence.units)
    candidates = (unit for unit in counts if not unit.isdigit() and worth.get(unit, 0.0) > 0)
    best = heapq.nsmallest(4 * TOPICS_MAX, candidates, key=lambda unit: (-worth[unit] * min(2, counts[unit]), unit))
    spellings: dict[str, Counter[str]] = {unit: Counter() for unit in best}
    leading = Counter[str]()
    for sentence in with_pauses(sentences, pause):
        if spellings.keys().isdisjoint(sentence.units):
            continue
        for unit, spelling in spell(sentence.text):
            if unit in spellings:
                spellings[unit][spelling] += 1
                leading[unit] += sentence.text[: len(spelling)].lower() == spelling
    terms: list[str] = []
    for unit, written in spellings.items():
        term = min(written, key=lambda spelling: (-written[spelling], spelling))
        is_verb = leading[unit] > LEAD_SHARE_MAX * counts[unit]
        is_part = not unit.startswith(IDENTIFIER) and any(term in longer.lower() for longer in terms)
        if len(term) >= TERM_CHARACTERS_MIN and not is_verb and not is_part:
            terms.append(term)
    return tuple(terms[:TOPICS_MAX])

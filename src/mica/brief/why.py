"""Explains recorded events: the evidence of each line of a brief, of a crystal or of what sources answered."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import datetime

import msgspec

from mica.beliefs.statements import is_short_answer, statements
from mica.beliefs.testimony import place_of, read_testimony
from mica.brief.belief_source import BeliefSource
from mica.brief.file_source import RankedFileSource
from mica.brief.pasted_line import PastedLine, join_words
from mica.brief.receipts import BRIEF, CONFLICTS
from mica.errors import InvalidEvent
from mica.events.hot import ReadChains, ReadLog
from mica.format.beliefs import ending_words
from mica.model.belief import Belief
from mica.model.crystal import Crystal, crystal_of
from mica.model.event import (
    CRYSTAL,
    JUDGMENT_RETRACTED,
    MARK,
    RETRACTED,
    Event,
    EventId,
    EventQuery,
    is_id,
    is_tombstone,
)
from mica.model.mark import Mark, mark_of
from mica.model.teaching import WITHDRAWN
from mica.sources.account import line
from mica.sources.cohere import Origin, Stated
from mica.sources.protocol import GATHERED_NAMES

RECEIPTS_MAX = 500  # the latest that are searched for a line that names no event
# The events that withdraw something, each with the field that names it.
WITHDRAWALS = {RETRACTED: "mark", JUDGMENT_RETRACTED: "judgment", WITHDRAWN: "teaching"}
LINES_MAX = 5  # explanations of one line: the same text may be about several concepts
STEPS_MAX = 20  # back from an event; `mica events tree` shows longer chains
ANSWERED_MARKS_MAX = 50  # latest marks before a short answer that are searched for what it answers
ANSWERING_WORDS_MAX = 100  # of a user's text that may have an answer
ANSWER_WORDS_MAX = 8  # an answer up to this length is shown together with its question


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """An event that supports a statement."""

    id: EventId
    number: str  # the short number, for people
    name: str
    at: datetime
    origin: str
    session: str | None
    agent: str | None
    text: str
    retracted: str | None = None  # the reason, if it was retracted


class Because(msgspec.Struct, frozen=True, kw_only=True):
    """One statement of an explained event, and its evidence."""

    text: str
    evidence: tuple[Evidence, ...]
    source: str = ""  # of a passage: the name of its source
    origins: tuple[tuple[str, str], ...] = ()  # in other systems: each source, and the row or file in it
    score: float | None = None
    tokens: int | None = None


class Why(msgspec.Struct, frozen=True, kw_only=True):
    """The explanation of an event or a belief: its statements in order, each with the events that support it."""

    id: str
    name: str
    at: datetime
    text: str  # the query of a brief, or the text of the event
    because: tuple[Because, ...]
    missing: dict[str, str] = {}  # of a brief: the missing parts and the reasons
    retracted: str | None = None  # the reason, if it was retracted


class ReceiptPassage(msgspec.Struct):
    source: str
    sources: tuple[EventId, ...] = ()
    tokens: int | None = None
    score: float | None = None
    text: str = ""
    origins: tuple[tuple[str, str], ...] = ()
    kind: str = ""
    key: str = ""
    confidence: float = 0.0


class _Stale(msgspec.Struct):
    source: str
    reason: str = ""


class ReceiptData(msgspec.Struct):
    query: str
    passages: tuple[ReceiptPassage, ...]
    lost: tuple[ReceiptPassage, ...] = ()
    missing: dict[str, str] = {}
    degraded: tuple[_Stale, ...] = ()  # of a gather
    is_compressed: bool = False


class GatherReceipt(msgspec.Struct):
    """The record of what sources answered about a concept. Its fragments are decoded in the same way as passages."""

    concept: str
    fragments: tuple[ReceiptPassage, ...]
    lost: tuple[ReceiptPassage, ...] = ()
    missing: dict[str, str] = {}
    degraded: tuple[_Stale, ...] = ()


async def why(event: Event, *, log: ReadLog, chains: ReadChains) -> Why:
    """Explain an event.

    A recorded brief, a crystal and a recorded answer of sources are explained line by line. Any other event is
    explained by itself and its ancestors, together at most STEPS_MAX events.
    """
    if event.name in (BRIEF, *GATHERED_NAMES) and (receipt := _receipt(event)) is not None:
        because = [await _explain_passage(log, passage) for passage in receipt.passages]
        return _why(event, receipt.query, because, missing=receipt.missing)
    if event.name == CRYSTAL:
        crystal = crystal_of(event)
        because = [await _because(log, *statement) for statement in _statements(crystal)]
        return _why(event, crystal.text, because)
    chain = [event, *await chains.ancestors(event.id)][:STEPS_MAX]
    return _why(event, _text(event), [Because(text=_text(each), evidence=(_evidence(each),)) for each in chain])


async def why_belief(belief: Belief, history: Sequence[Belief], *, log: ReadLog) -> Why:
    """Explain a belief by its evidence, then those that it replaced or that replaced it, the latest first."""
    others = [each for each in reversed(history) if each.id != belief.id]
    because = [await _explain_belief(log, each) for each in (belief, *others)]
    return Why(id=belief.id, name="belief", at=belief.at, text=belief.text, because=tuple(because))


async def _explain_belief(log: ReadLog, belief: Belief) -> Because:
    events = [*belief.evidence, *([belief.ended_by] if belief.ended_by else [])]
    because = await _because(log, belief.text, dict.fromkeys(events))
    return msgspec.structs.replace(because, source=f"{belief.kind}, {ending_words(belief) or belief.state}")


async def with_retractions(log: ReadLog, explanations: Sequence[Why]) -> list[Why]:
    """Return copies of the explanations. In them, each retracted event has the reason of its retraction."""
    reasons: dict[object, str] = {}
    for each in await log.query(EventQuery(names=tuple(WITHDRAWALS), limit=None)):
        reasons.setdefault(each.data.get(WITHDRAWALS[each.name]), str(each.data.get("reason", "")))
    return [
        msgspec.structs.replace(
            one,
            retracted=reasons.get(one.id),
            because=tuple(
                msgspec.structs.replace(
                    line,
                    evidence=tuple(
                        msgspec.structs.replace(each, retracted=reasons.get(each.id)) for each in line.evidence
                    ),
                )
                for line in one.because
            ),
        )
        for one in explanations
    ]


def _receipt(event: Event) -> ReceiptData | None:
    try:
        if event.name in GATHERED_NAMES:
            gather = msgspec.convert(event.data, GatherReceipt)
            return ReceiptData(
                query=gather.concept,
                passages=gather.fragments,
                lost=gather.lost,
                missing=gather.missing,
                degraded=gather.degraded,
            )
        return msgspec.convert(event.data, ReceiptData)
    except msgspec.ValidationError:
        return None  # an event of this name not written by mica


async def explain_line(line: PastedLine, *, log: ReadLog, chains: ReadChains) -> list[Why]:
    """Find a line in the latest recorded briefs and answers of sources, and explain it; the latest record comes first.

    The line may be cut after its first words. Passages that begin with it are explained, up to LINES_MAX. If there are
    none, passages that contain it after their first line or sentence are explained. A line about a whole brief
    (conflicts, gaps, compression) and a list of files are explained only by the latest record that contains them. The
    result is empty if no record contains the line, or if the line has too few words.
    """
    if not line.is_long_enough:
        return []
    beginning: dict[tuple[object, ...], Why] = {}
    continued: dict[tuple[object, ...], Why] = {}
    compared: set[tuple[object, ...]] = set()
    for event in reversed(await log.query(EventQuery(names=(BRIEF, *GATHERED_NAMES), limit=RECEIPTS_MAX))):
        if (receipt := _receipt(event)) is None:
            continue
        if not beginning and (note := await _note(event, receipt, line.words, log=log, chains=chains)) is not None:
            return [note]
        about = receipt.query if event.name in GATHERED_NAMES else ""
        for passage in (*receipt.passages, *receipt.lost):
            same = _identity(passage, about)
            shown = (same, passage.source, passage.sources, receipt.is_compressed, bool(receipt.query.strip()))
            if same in beginning or shown in compared:
                continue
            if not passage.origins:  # the text of another source may be another one in every receipt
                compared.add(shown)
            if (match := await _match(log, line, passage, event, receipt)) is not None:
                because = await _explain_passage(log, passage, match)
                found = beginning if match.is_beginning else continued
                found.setdefault(same, _why(event, receipt.query or because.text, [because]))
            if len(beginning) == LINES_MAX:
                return list(beginning.values())
    return list((beginning or continued).values())[:LINES_MAX]


def _identity(passage: ReceiptPassage, about: str) -> tuple[object, ...]:
    """Return what passages have in common that one explanation is enough for: for mica's own text, its first event."""
    if _is_files(passage):
        return (passage.source,)
    return (about, passage.source, passage.origins) if passage.origins else (passage.sources[:1],)


def _is_files(passage: ReceiptPassage) -> bool:
    return passage.source == RankedFileSource.declared.name and not passage.origins


class _LineMatch(msgspec.Struct, frozen=True, kw_only=True):
    """Where a passage contains a line."""

    is_beginning: bool = True  # False: in a later line or sentence
    text: str = ""  # of a short answer with what it answers; "" for a text that its event has
    answered: tuple[Event, ...] = ()  # the event with what it answers


async def _match(
    log: ReadLog, line: PastedLine, passage: ReceiptPassage, event: Event, receipt: ReceiptData
) -> _LineMatch | None:
    """Return where a passage contains `line`, or None if it does not."""
    if passage.origins:
        return _LineMatch() if _begins(passage, event, line) else None
    if _is_files(passage):
        steps = [await _find(log, each) for each in passage.sources]
        return _LineMatch() if line.names_files(steps, has_query=bool(receipt.query.strip())) else None
    continued = None
    # A belief may have the words of any of its evidence; everything else is shown for its first event.
    for each in passage.sources if passage.source == BeliefSource.declared.name else passage.sources[:1]:
        if (source := await _find(log, each)) is None:
            continue
        if line.begins_excerpt(source, is_compressed=receipt.is_compressed):
            return _LineMatch()
        for text, answered in await _completed(log, source, line):
            if line.begins_labelled(text, source):
                return _LineMatch(text=text, answered=(answered,))
        if continued is None and line.continues_excerpt(source):
            continued = _LineMatch(is_beginning=False)
    return continued


async def _completed(log: ReadLog, event: Event, line: PastedLine) -> list[tuple[str, Event]]:
    """Return the short answer in an event together with what it may answer, and the event that has this.

    A brief shows such an answer with the proposal or the question before it. The result is empty for any other event.
    """
    mark = _mark(event)
    if mark is None or mark.origin != "user" or len(mark.text.split()) > ANSWERING_WORDS_MAX:
        return []
    place = place_of(mark.tags)
    earlier = [
        (each, before)
        for each in reversed(await log.query(EventQuery(names=(MARK,), until=event.at, limit=ANSWERED_MARKS_MAX)))
        if each.id != event.id and (before := _mark(each)) is not None
    ]
    found = []
    if place == "prompt" and is_short_answer(mark.text):
        for each, before in earlier:
            if before.session == mark.session and place_of(before.tags) == "closing":
                answered = [one.text for one in statements(mark.text, place=place, by="user", answered=before.text)]
                testimony = read_testimony(event, answered=before.text)
                answered += [] if testimony is None else [one.text for one in testimony.stated]
                found += [(text, each) for text in dict.fromkeys(answered)]
                break
    short = [
        each.text
        for each in statements(mark.text, place=place, by="user")
        if len(each.text.split()) <= ANSWER_WORDS_MAX and join_words(each.text)
    ]
    for each, before in earlier if short else ():
        for one in statements(before.text, place=place_of(before.tags), by=before.origin):
            # The first words of a question are those of the question itself.
            found += [
                (f"{one.text} {answer}", each)
                for answer in short
                if join_words(f"{one.text} {answer.split()[0]}") in line.words
            ]
    return found


def _mark(event: Event) -> Mark | None:
    try:
        return mark_of(event) if event.name == MARK and not is_tombstone(event) else None
    except InvalidEvent:
        return None


async def _find(log: ReadLog, identifier: EventId) -> Event | None:
    event = await log.get(identifier) if is_id(identifier) else None
    return None if event is None or is_tombstone(event) else event


async def _note(event: Event, receipt: ReceiptData, shown: str, *, log: ReadLog, chains: ReadChains) -> Why | None:
    """Explain a line about a whole brief: its conflicts, a gap or its compression.

    `shown` has the words of the line. The result is None if it is not such a line.
    """
    lost = [each for each in receipt.lost if each.kind == CONFLICTS]
    if lost and f"{join_words(f'{CONFLICTS} ' + ' '.join(each.text for each in lost))} ".startswith(shown):
        return _why(event, receipt.query, [await _explain_passage(log, each) for each in lost])
    gaps = {
        "missing": receipt.missing,
        "stale": {each.source: each.reason for each in receipt.degraded},
    }
    for kind, reasons in gaps.items():
        for name, reason in reasons.items():
            if f"{shown} ".startswith(f"{join_words(f'{kind} {name}')} "):
                return _why(event, receipt.query, [], missing={name: reason})
    if receipt.is_compressed and re.match(r"compressed \d", shown):
        return await why(event, log=log, chains=chains)
    return None


def _begins(passage: ReceiptPassage, event: Event, pasted: PastedLine) -> bool:
    """Return True if the passage begins with the line `pasted`, with or without the names of its sources."""
    shown = f"{passage.kind} {passage.text}"
    if passage.key:
        stated = Stated(
            key=passage.key,
            text=passage.text,
            confidence=passage.confidence,
            at=event.at,
            source=passage.source,
            origins=tuple(Origin(*origin) for origin in passage.origins),
        )
        shown = line(stated)
    return pasted.begins(passage.text, shown)


def _why(event: Event, text: str, because: Iterable[Because], *, missing: dict[str, str] | None = None) -> Why:
    return Why(id=event.id, name=event.name, at=event.at, text=text, because=tuple(because), missing=missing or {})


def _statements(crystal: Crystal) -> list[tuple[str, Sequence[EventId]]]:
    return [(statement.text, statement.sources) for statement in crystal.statements]


async def _because(log: ReadLog, text: str, sources: Iterable[EventId]) -> Because:
    events = [event for each in sources if (event := await log.get(each)) is not None]
    return Because(text=text, evidence=tuple(map(_evidence, events)))


async def _explain_passage(log: ReadLog, passage: ReceiptPassage, match: _LineMatch | None = None) -> Because:
    """Explain a passage by its sources. `match` has the text of a short answer that the passage completes."""
    because = await _because(log, "", passage.sources)
    texts = [each.text for each in because.evidence]
    text = passage.text or "its source no longer exists"
    if texts and not passage.origins:
        text = ", ".join(texts) if _is_files(passage) else texts[0]
    if match is not None and match.text:
        text = match.text
        because = msgspec.structs.replace(because, evidence=(*because.evidence, *map(_evidence, match.answered)))
    return msgspec.structs.replace(
        because, text=text, source=passage.source, score=passage.score, tokens=passage.tokens, origins=passage.origins
    )


def _evidence(event: Event) -> Evidence:
    return Evidence(
        id=event.id,
        number=event.number,
        name=event.name,
        at=event.at,
        origin=event.origin,
        session=event.context.session,
        agent=event.context.agent,
        text=_text(event),
    )


def _text(event: Event) -> str:
    """Return a short text for an event: its text, query, command or reason; else its path; else its name."""
    if is_tombstone(event):
        return "purged"
    if event.name == CRYSTAL:
        return crystal_of(event).text
    data = event.data
    for name in ("text", "query", "command", "reason"):
        if isinstance(value := data.get(name), str):
            return value
    if not isinstance(path := data.get("path"), str):
        return event.name
    first, last = data.get("start_line"), data.get("end_line")
    return f"{path}:{first}-{last}" if isinstance(first, int) and isinstance(last, int) else path

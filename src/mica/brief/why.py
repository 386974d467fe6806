"""Explains events: the evidence of each line of a brief, gather or crystal."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import datetime

import msgspec

from mica.brief.receipts import BRIEF, CONFLICTS
from mica.events.hot import ReadLog, Reads
from mica.model.crystal import Crystal, crystal_of
from mica.model.event import CRYSTAL, RETRACTED, Event, EventId, EventQuery, is_tombstone
from mica.model.teaching import WITHDRAWN
from mica.sources.account import line
from mica.sources.cohere import Origin, Stated
from mica.sources.protocol import GATHERED, JUDGMENT_RETRACTED
from mica.words import words

RECEIPTS_MAX = 500  # the latest that are searched for a line that names no event
# The events that withdraw something, each with the field that names it.
WITHDRAWALS = {RETRACTED: "mark", JUDGMENT_RETRACTED: "judgment", WITHDRAWN: "teaching"}
LINES_MAX = 5  # explanations of one line: the same text may be about several concepts
WORDS_MIN = 2  # to identify a line; too many lines begin with the same single word
STEPS_MAX = 20  # back from an event; `mica events tree` shows longer chains
_HANDLES = re.compile(r"\((#\d+(?:[ ,]+#\d+)*)\)\s*$")  # at the end of a line of a brief


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
    """One statement and its evidence."""

    text: str
    evidence: tuple[Evidence, ...]
    source: str = ""  # of a passage: the name of its source
    origins: tuple[tuple[str, str], ...] = ()  # of other systems: each source, and the row or file in it
    score: float | None = None
    tokens: int | None = None


class Why(msgspec.Struct, frozen=True, kw_only=True):
    """The explanation of an event: its statements in order, each with its evidence."""

    id: EventId
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
    """The record of a gather; its fragments and lost fragments are read as passages."""

    concept: str
    fragments: tuple[ReceiptPassage, ...]
    lost: tuple[ReceiptPassage, ...] = ()
    missing: dict[str, str] = {}
    degraded: tuple[_Stale, ...] = ()


def parse_handles(text: str) -> list[str]:
    """Return the handles at the end of a line, as in `… (#12 #14)`; any other text is returned as its own handle."""
    match = _HANDLES.search(text)
    return re.findall(r"#\d+", match[1]) if match else [text.strip()]


async def why(reads: Reads, event: Event) -> Why:
    """Explain a brief, a gather, a crystal or any other event."""
    if event.name in (BRIEF, GATHERED) and (receipt := _receipt(event)) is not None:
        because = [await _of_passage(reads.log, passage) for passage in receipt.passages]
        return _why(event, receipt.query, because, missing=receipt.missing)
    if event.name == CRYSTAL:
        crystal = crystal_of(event)
        because = [await _because(reads.log, *statement) for statement in _statements(crystal)]
        return _why(event, crystal.text, because)
    chain = [event, *await reads.chains.ancestors(event.id)][:STEPS_MAX]
    return _why(event, _text(event), [Because(text=_text(each), evidence=(_evidence(each),)) for each in chain])


async def with_retractions(log: ReadLog, explanations: Sequence[Why]) -> list[Why]:
    """Add the reason of the retraction to every explained event and evidence that was retracted since."""
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
        if event.name == GATHERED:
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


async def explain_line(reads: Reads, text: str) -> list[Why]:
    """Explain a line that names no event, or its beginning, by searching its words in the latest receipts.

    A line of a gather does not name its concept; if it is about several, each is explained, the latest first. A line
    about conflicts, gaps or compression is explained by the latest receipt that has it.
    """
    beginning = _words(text)
    explanations: dict[tuple[object, ...], Why] = {}
    if beginning.count(" ") + 1 < WORDS_MIN:
        return []
    for event in reversed(await reads.log.query(EventQuery(names=(BRIEF, GATHERED), limit=RECEIPTS_MAX))):
        if (receipt := _receipt(event)) is None:
            continue
        if not explanations and (note := await _note(reads, event, receipt, beginning)) is not None:
            return [note]
        about = receipt.query if event.name == GATHERED else ""
        for passage in (*receipt.passages, *receipt.lost):
            same = (about, passage.source, passage.origins)
            if passage.origins and same not in explanations and _begins(passage, event, beginning):
                explanations[same] = _why(event, receipt.query or passage.text, [await _of_passage(reads.log, passage)])
                if len(explanations) == LINES_MAX:
                    return list(explanations.values())
    return list(explanations.values())


async def _note(reads: Reads, event: Event, receipt: ReceiptData, beginning: str) -> Why | None:
    """Explain a line about a whole brief: its conflicts, a gap, or its compression."""
    lost = [each for each in receipt.lost if each.kind == CONFLICTS]
    if lost and f"{_words(f'{CONFLICTS} ' + ' '.join(each.text for each in lost))} ".startswith(beginning):
        return _why(event, receipt.query, [await _of_passage(reads.log, each) for each in lost])
    gaps = {
        "missing": receipt.missing,
        "stale": {each.source: each.reason for each in receipt.degraded},
    }
    for kind, reasons in gaps.items():
        for name, reason in reasons.items():
            if f"{beginning} ".startswith(f"{_words(f'{kind} {name}')} "):
                return _why(event, receipt.query, [], missing={name: reason})
    if receipt.is_compressed and beginning.startswith("compressed "):
        return await why(reads, event)
    return None


def _begins(passage: ReceiptPassage, event: Event, beginning: str) -> bool:
    """Return True if a passage begins with these words, as it was shown or without the names of its sources."""
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
    return any(f"{_words(text)} ".startswith(f"{beginning} ") for text in (passage.text, shown))


def _words(text: str) -> str:
    return " ".join(words(text))


def _why(event: Event, text: str, because: Iterable[Because], *, missing: dict[str, str] | None = None) -> Why:
    return Why(id=event.id, name=event.name, at=event.at, text=text, because=tuple(because), missing=missing or {})


def _statements(crystal: Crystal) -> list[tuple[str, Sequence[EventId]]]:
    return [(statement.text, statement.sources) for statement in crystal.statements]


async def _because(log: ReadLog, text: str, sources: Iterable[EventId]) -> Because:
    events = [event for each in sources if (event := await log.get(each)) is not None]
    return Because(text=text, evidence=tuple(map(_evidence, events)))


async def _of_passage(log: ReadLog, passage: ReceiptPassage) -> Because:
    because = await _because(log, "", passage.sources)
    recorded = passage.text or "its source no longer exists"
    text = recorded if passage.origins or not because.evidence else because.evidence[0].text
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
    """Return the text of an event in one line."""
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

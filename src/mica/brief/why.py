"""Why something was said: what each line of a brief, a crystal or a handoff comes from."""

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

RECEIPTS_MAX = 500  # the latest, among which a line is looked for that names no event
# What says that something does not hold any more, and where it names that.
TAKEN_BACK = {RETRACTED: "mark", JUDGMENT_RETRACTED: "judgment", WITHDRAWN: "teaching"}
LINES_MAX = 5  # that are told of one line: the same may have been said of several concepts
WORDS_MIN = 2  # by which a line is known; a word alone begins too many
STEPS_MAX = 20  # back from an event; a longer chain is `mica events tree`
_HANDLES = re.compile(r"\((#\d+(?:[ ,]+#\d+)*)\)\s*$")  # as they end a line of a brief


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """An event that something rests on."""

    id: EventId
    number: str  # by which a person can ask for it
    name: str
    at: datetime
    origin: str
    session: str | None
    agent: str | None
    text: str
    retracted: str | None = None  # the reason, when it does not hold any more


class Because(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was said, and what it rests on."""

    text: str
    evidence: tuple[Evidence, ...]
    source: str = ""  # of a passage: which source offered it
    origins: tuple[tuple[str, str], ...] = ()  # of what other systems state: each source, and the row or file in it
    score: float | None = None
    tokens: int | None = None


class Why(msgspec.Struct, frozen=True, kw_only=True):
    """What the lines of something rest on, in their order."""

    id: EventId
    name: str
    at: datetime
    text: str  # what was asked, or what it says
    because: tuple[Because, ...]
    missing: dict[str, str] = {}  # of a brief: what it could not tell, and why
    retracted: str | None = None  # the reason, when it does not hold any more


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
    """The record of a gather: its fragments are passages too, and so is what lost against them."""

    concept: str
    fragments: tuple[ReceiptPassage, ...]
    lost: tuple[ReceiptPassage, ...] = ()
    missing: dict[str, str] = {}
    degraded: tuple[_Stale, ...] = ()


def handles(text: str) -> list[str]:
    """The events that a line names at its end, as in `… (#12 #14)`; what is no such line names itself."""
    found = _HANDLES.search(text)
    return re.findall(r"#\d+", found[1]) if found else [text.strip()]


async def why(reads: Reads, event: Event) -> Why:
    """What this brief, crystal or other event rests on."""
    if event.name in (BRIEF, GATHERED) and (receipt := _receipt(event)) is not None:
        because = [await _of_passage(reads.log, passage) for passage in receipt.passages]
        return _why(event, receipt.query, because, missing=receipt.missing)
    if event.name == CRYSTAL:
        crystal = crystal_of(event)
        found = _why(event, crystal.text, [await _because(reads.log, *said) for said in _statements(crystal)])
    else:
        led = [event, *await reads.chains.ancestors(event.id)][:STEPS_MAX]
        found = _why(event, _text(event), [Because(text=_text(each), evidence=(_evidence(each),)) for each in led])
    return found


async def with_retractions(log: ReadLog, found: Sequence[Why]) -> list[Why]:
    """The same, saying of everything that was told or is rested on whether somebody took it back since, and why."""
    reasons: dict[object, str] = {}
    for each in await log.query(EventQuery(names=tuple(TAKEN_BACK), limit=None)):
        reasons.setdefault(each.data.get(TAKEN_BACK[each.name]), str(each.data.get("reason", "")))
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
        for one in found
    ]


def _receipt(event: Event) -> ReceiptData | None:
    try:
        if event.name == GATHERED:
            told = msgspec.convert(event.data, GatherReceipt)
            return ReceiptData(
                query=told.concept,
                passages=told.fragments,
                lost=told.lost,
                missing=told.missing,
                degraded=told.degraded,
            )
        return msgspec.convert(event.data, ReceiptData)
    except msgspec.ValidationError:
        return None  # somebody else's event of this name


async def of_line(reads: Reads, said: str) -> list[Why]:
    """What a line rests on that names no event, or its beginning: found in the latest receipts by its words.

    A line of a gather does not name its concept: where the same was said of several, each is told, the latest first. A
    line that names what lost, what is missing or that a text is compressed is of the latest receipt that says it.
    """
    wanted = _words(said)
    found: dict[tuple[object, ...], Why] = {}
    if wanted.count(" ") + 1 < WORDS_MIN:
        return []
    for event in reversed(await reads.log.query(EventQuery(names=(BRIEF, GATHERED), limit=RECEIPTS_MAX))):
        if (receipt := _receipt(event)) is None:
            continue
        if not found and (note := await _note(reads, event, receipt, wanted)) is not None:
            return [note]
        about = receipt.query if event.name == GATHERED else ""
        for passage in (*receipt.passages, *receipt.lost):
            same = (about, passage.source, passage.origins)
            if passage.origins and same not in found and _begins(passage, event, wanted):
                found[same] = _why(event, receipt.query or passage.text, [await _of_passage(reads.log, passage)])
                if len(found) == LINES_MAX:
                    return list(found.values())
    return list(found.values())


async def _note(reads: Reads, event: Event, receipt: ReceiptData, wanted: str) -> Why | None:
    """What a line rests on that says something of a whole brief: its conflicts, a gap, that it is compressed."""
    lost = [each for each in receipt.lost if each.kind == CONFLICTS]
    if lost and f"{_words(f'{CONFLICTS} ' + ' '.join(each.text for each in lost))} ".startswith(wanted):
        return _why(event, receipt.query, [await _of_passage(reads.log, each) for each in lost])
    gaps = {
        "missing": receipt.missing,
        "stale": {each.source: each.reason for each in receipt.degraded},
    }
    for kind, reasons in gaps.items():
        for name, reason in reasons.items():
            if f"{wanted} ".startswith(f"{_words(f'{kind} {name}')} "):
                return _why(event, receipt.query, [], missing={name: reason})
    if receipt.is_compressed and wanted.startswith("compressed "):
        return await why(reads, event)
    return None


def _begins(passage: ReceiptPassage, event: Event, wanted: str) -> bool:
    """Whether a passage begins in these words, as it was shown or without the names of its sources."""
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
    return any(f"{_words(text)} ".startswith(f"{wanted} ") for text in (passage.text, shown))


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
    found = await _because(log, "", passage.sources)
    gone = passage.text or "what it rested on is not here any more"
    text = gone if passage.origins or not found.evidence else found.evidence[0].text
    return msgspec.structs.replace(
        found, text=text, source=passage.source, score=passage.score, tokens=passage.tokens, origins=passage.origins
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
    """What an event says, in a line."""
    if is_tombstone(event):
        return "purged"
    if event.name == CRYSTAL:
        return crystal_of(event).text
    said = event.data
    for name in ("text", "query", "command", "reason"):
        if isinstance(value := said.get(name), str):
            return value
    if not isinstance(path := said.get("path"), str):
        return event.name
    first, last = said.get("start_line"), said.get("end_line")
    return f"{path}:{first}-{last}" if isinstance(first, int) and isinstance(last, int) else path

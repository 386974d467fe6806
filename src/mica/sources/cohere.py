"""One account of what sources stated: duplicates once, conflicts decided and shown. A pure function.

Of statements about one key, the order is validity, rank of the source, confidence, recency, and then what makes it the
same everywhere (K-22). Text is never blended; numbers are where every source calls its own an estimate. Coherence is
agreement: the weight of the claims that agree with the one that won, over the weight of all (K-23).
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from functools import lru_cache
from itertools import pairwise

import msgspec

from mica.model.event import EventId
from mica.sources.protocol import PHI_INV, PHI_INV_3, Fragment, Value, weight

STATED_MAX = 5  # fragments in one account; more are hard to hold in mind
ALONE = 0.5  # of what is above an even chance, that a key keeps which one source alone speaks of
ALONE_AGREEMENT = ALONE + (1 - ALONE) / 2

SENTENCE_BLANKS = 3  # a text of four words or more says the same whatever its key
_NUMBER = re.compile(r"[+-]?(0|[1-9]\d{0,30})(\.\d{1,30})?")
RECALLED = re.compile(r"<\s*memory\s+from=", re.IGNORECASE)  # how the fence around recalled text begins


class Origin(msgspec.Struct, frozen=True, order=True):
    """Where a statement was found: the source, and the row, file or event in it."""

    source: str
    locator: str = ""


class Stated(msgspec.Struct, frozen=True, kw_only=True):
    """A statement that stands: what is said of a key, and everyone who says so."""

    key: str
    text: str
    value: Value = None
    confidence: float  # as it may be shown: what one source alone claims is capped
    at: datetime
    source: str  # whose words these are
    origins: tuple[Origin, ...]
    sources: tuple[EventId, ...] = ()
    blended: tuple[tuple[str, float], ...] = ()  # of an estimate: every source with its number


class Conflict(msgspec.Struct, frozen=True, kw_only=True):
    """A statement that lost against another about the same key. It is kept, and shown."""

    key: str
    text: str
    value: Value = None
    confidence: float
    at: datetime
    source: str
    origins: tuple[Origin, ...]
    sources: tuple[EventId, ...] = ()
    against: str  # the source that won
    reason: str  # why this one lost: expired, not valid yet, less trusted, less sure, older, same in all else


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the fragments that are not shown. Nothing goes without being counted."""

    duplicates: int = 0  # the same claim about the same key, or the same words again
    unsure: int = 0  # below the least confidence
    expired: int = 0  # not valid now, and nothing that is valid was said of their key
    junk: int = 0  # without words
    loops: int = 0  # recalled text that a source had copied from a brief
    beyond: int = 0  # statements that stand, but are more than fit into one account


class Coherent(msgspec.Struct, frozen=True, kw_only=True):
    """One account of a concept, its statements in the order of their times."""

    fragments: tuple[Stated, ...] = ()
    conflicts: tuple[Conflict, ...] = ()
    coherence: float | None = None  # from 0 to 1; None when nothing was said
    speaking: tuple[str, ...] = ()  # the sources that had something to say
    counts: Counts = Counts()


def cohere(
    fragments: Iterable[Fragment], *, ranks: Mapping[str, int], now: datetime, limit: int = STATED_MAX
) -> Coherent:
    """The account that these fragments give, in whichever order they came. `ranks` are those of the sources by name."""
    keys: dict[str, list[Fragment]] = defaultdict(list)
    speaking: set[str] = set()
    loops = junk = unsure = 0
    for each in fragments:
        text = each.text
        if "<" in text and RECALLED.search(text):
            loops += 1
        elif not text or text.isspace():
            junk += 1
        elif each.confidence < PHI_INV_3:
            unsure += 1
        else:
            keys[_folded_key(each.key)].append(each)
            speaking.add(each.source)
    standing: list[Fragment | Stated] = []
    conflicts: list[Conflict] = []
    agreements: list[float] = []
    expired = duplicates = 0
    for about in sorted(keys):
        order = keys[about]
        if len(order) == 1 and _validity(order[0], now) == 0:  # most keys: one source, one word
            standing.append(order[0])
            agreements.append(ALONE_AGREEMENT)
            continue
        order = _in_order(order, ranks, now)
        if _validity(order[0], now) > 0:
            expired += len(order)
            continue
        claims = _claims(order)
        duplicates += len(order) - len(claims)
        won, *others = claims.values()
        valid = {said: claim for said, claim in claims.items() if _validity(claim[0], now) == 0}
        agreements.append(_agreement(valid, ranks, now))
        if (blended := _blended(list(valid.values()), ranks, now)) is not None:
            standing.append(blended)
            losing = [claim for said, claim in claims.items() if said not in valid]
        else:
            standing.append(_stated(won, now))
            losing = others
        conflicts += [_conflict(claim, won[0], ranks, now) for claim in losing]
    once = _said_once(standing, ranks)
    shown = [_alone(each) for each in _chosen(once, limit)]
    return Coherent(
        fragments=tuple(sorted(shown, key=lambda each: (each.at, each.key, each.source))),
        conflicts=tuple(conflicts),
        coherence=math.fsum(agreements) / len(agreements) if agreements else None,
        speaking=tuple(sorted(speaking)),
        counts=Counts(
            duplicates=duplicates + len(standing) - len(once),
            unsure=unsure,
            expired=expired,
            junk=junk,
            loops=loops,
            beyond=len(once) - len(shown),
        ),
    )


def canonical(value: Value) -> str:
    """What is compared: `8080` and "8080" are one value, `True` and "true" too, and blanks and case do not count."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return _number(Decimal(value) if isinstance(value, int) else Decimal(str(value)))
    folded = _folded(value or "")
    return _number(Decimal(folded)) if _NUMBER.fullmatch(folded) else folded


def _number(number: Decimal) -> str:
    written = f"{number:f}"
    written = written.rstrip("0").rstrip(".") if "." in written else written
    return "0" if written == "-0" else written


def _folded(text: str) -> str:
    return " ".join((text if text.isascii() else unicodedata.normalize("NFKC", text)).split()).casefold()


_folded_key = lru_cache(maxsize=2_000)(_folded)  # sources speak of the same keys again and again


def _said(fragment: Fragment) -> str:
    return canonical(fragment.text if fragment.value is None else fragment.value)


def _validity(fragment: Fragment, now: datetime) -> int:
    """0 while it is valid, 1 once it was, 2 as long as it is not yet."""
    if fragment.valid_until is not None and fragment.valid_until <= now:
        return 1
    return 2 if fragment.valid_from is not None and fragment.valid_from > now else 0


def _in_order(fragments: Iterable[Fragment], ranks: Mapping[str, int], now: datetime) -> list[Fragment]:
    """K-22: the first of these is the one that holds."""
    places = sorted([(_place(each, ranks, now), number, each) for number, each in enumerate(fragments)])
    if any(one[0] == other[0] for one, other in pairwise(places)):  # what is left makes it the same everywhere
        return sorted([each for _, _, each in places], key=lambda e: (_place(e, ranks, now), msgspec.json.encode(e)))
    return [each for _, _, each in places]


def _place(fragment: Fragment, ranks: Mapping[str, int], now: datetime) -> tuple[object, ...]:
    return (
        _validity(fragment, now),
        ranks[fragment.source],
        -fragment.confidence,
        -fragment.at.timestamp(),
        fragment.source,
        fragment.locator,
        fragment.text,
        _said(fragment),
    )


def _claims(order: Sequence[Fragment]) -> dict[str, list[Fragment]]:
    """Those that say the same, together, by what they say, each in their order: the first of them is the best."""
    found: dict[str, list[Fragment]] = {}
    for each in order:
        found.setdefault(_said(each), []).append(each)
    return found


def _agreement(valid: Mapping[str, Sequence[Fragment]], ranks: Mapping[str, int], now: datetime) -> float:
    """K-23: the share of the weight of all valid claims that agrees with the first of them.

    It goes towards an even chance where one source speaks.
    """
    won = next(iter(valid))
    weights = {
        (each.source, said): weight(ranks[each.source], each.confidence)
        for said, claim in valid.items()
        for each in reversed(claim)  # the surest word of each source counts, once
        if _validity(each, now) == 0
    }
    agreeing = math.fsum(each for (_, said), each in weights.items() if said == won)
    share = agreeing / math.fsum(weights.values())
    is_alone = len({source for source, _ in weights}) == 1
    return min(share, ALONE * share + (1 - ALONE) / 2) if is_alone else share


def _blended(valid: Sequence[Sequence[Fragment]], ranks: Mapping[str, int], now: datetime) -> Stated | None:
    """One estimate of several that differ; None where one of them is no estimate, or is no number."""
    every = [each for claim in valid for each in claim if _validity(each, now) == 0]
    numbers: dict[str, tuple[float, Fragment]] = {}
    for each in every:
        if not each.is_estimate or isinstance(each.value, bool) or not isinstance(each.value, int | float):
            return None
        numbers.setdefault(each.source, (float(each.value), each))  # the first word of a source is its best
    if len(valid) < 2 or len(numbers) < 2:
        return None
    weights = {source: weight(ranks[source], each.confidence) for source, (_, each) in numbers.items()}
    total = math.fsum(weights.values())
    value = math.fsum(weights[source] * number for source, (number, _) in numbers.items()) / total
    value = min(max(value, min(n for n, _ in numbers.values())), max(n for n, _ in numbers.values()))
    first = every[0]
    each_said = tuple((source, number) for source, (number, _) in sorted(numbers.items()))
    confidence = math.fsum(weights[source] * each.confidence for source, (_, each) in numbers.items()) / total
    return Stated(
        key=first.key,
        text=f"about {value:.4g} ({', '.join(f'{source} {number:.4g}' for source, number in each_said)})",
        value=value,
        confidence=confidence,
        at=max(each.at for each in every),
        source=first.source,
        origins=_origins(every),
        sources=_events(every),
        blended=each_said,
    )


def _shown(each: Fragment | Stated) -> float:
    """The confidence that is shown: what one source alone claims is capped."""
    return each.confidence if type(each) is Stated or each.sources else min(each.confidence, PHI_INV)


def _alone(each: Fragment | Stated) -> Stated:
    """A statement of what one source alone says."""
    if isinstance(each, Stated):
        return each
    return Stated(
        key=each.key,
        text=each.text,
        value=each.value,
        confidence=_shown(each),
        at=each.at,
        source=each.source,
        origins=(Origin(each.source, each.locator),),
        sources=each.sources,
    )


def _stated(claim: Sequence[Fragment], now: datetime) -> Stated:
    first = claim[0]
    if len(claim) == 1:
        return _alone(first)
    valid = [each for each in claim if _validity(each, now) == 0]
    is_confirmed = len({each.source for each in valid}) > 1 or any(each.sources for each in valid)
    return Stated(
        key=first.key,
        text=first.text,
        value=first.value,
        confidence=first.confidence if is_confirmed else min(first.confidence, PHI_INV),
        at=first.at,
        source=first.source,
        origins=_origins(claim),
        sources=_events(claim),
    )


def _conflict(claim: Sequence[Fragment], won: Fragment, ranks: Mapping[str, int], now: datetime) -> Conflict:
    first = claim[0]
    reason = "same in all else"
    if validity := _validity(first, now):
        reason = "expired" if validity == 1 else "not valid yet"
    elif ranks[first.source] != ranks[won.source]:
        reason = f"less trusted, rank {ranks[first.source]} against {ranks[won.source]}"
    elif first.confidence != won.confidence:
        reason = "less sure"
    elif first.at != won.at:
        reason = "older"
    return Conflict(
        key=won.key,
        text=first.text,
        value=first.value,
        confidence=min(first.confidence, PHI_INV),
        at=first.at,
        source=first.source,
        origins=_origins(claim),
        sources=_events(claim),
        against=won.source,
        reason=reason,
    )


def _origins(claim: Iterable[Fragment]) -> tuple[Origin, ...]:
    return tuple(sorted({Origin(each.source, each.locator) for each in claim}))


def _events(claim: Iterable[Fragment]) -> tuple[EventId, ...]:
    return tuple(dict.fromkeys(event for each in claim for event in each.sources))


def _said_once(standing: Sequence[Fragment | Stated], ranks: Mapping[str, int]) -> list[Fragment | Stated]:
    """Statements without those that repeat the words of another about another key; their origins are not lost.

    Those that stand first come first.
    """
    order = [
        (ranks[each.source], -_shown(each), -each.at.timestamp(), each.key, each.source, number)
        for number, each in enumerate(standing)
    ]
    once: list[Fragment | Stated] = []
    places: dict[str, int] = {}  # in `once`, of what was said in these words
    for *_, number in sorted(order):
        each = standing[number]
        is_short = each.text.count(" ") < SENTENCE_BLANKS  # "ok" says something else of every key
        place = len(once) if is_short else places.setdefault(_folded(each.text), len(once))
        if place == len(once):
            once.append(each)
            continue
        first, again = _alone(once[place]), _alone(each)
        once[place] = msgspec.structs.replace(
            first,
            origins=tuple(sorted({*first.origins, *again.origins})),
            sources=tuple(dict.fromkeys([*first.sources, *again.sources])),
        )
    return once


def _chosen(in_order: Iterable[Fragment | Stated], limit: int) -> list[Fragment | Stated]:
    """The first of every source before the second of any: a source that says much hides no other."""
    turns: dict[str, int] = defaultdict(int)
    in_turn: dict[int, list[Fragment | Stated]] = defaultdict(list)
    for each in in_order:
        in_turn[turns[each.source]].append(each)
        turns[each.source] += 1
    return [each for turn in sorted(in_turn) for each in in_turn[turn]][:limit]

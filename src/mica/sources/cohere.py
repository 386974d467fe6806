"""Merges the statements that many sources make about a concept, and lists those that lost a conflict.

Words used here: A fragment is one statement of a source, about a key. Fragments with the same key and the same value
make the same claim. A fragment is valid if the present time is between its `valid_from` and its `valid_until`. The
weight of a fragment is its confidence, reduced according to the rank of its source (see `weight` in `protocol`).

For each key one claim wins, and the other claims are listed as conflicts. To find the winner, fragments are compared by
validity, then by the rank of the source, by confidence, and by age. If all of these are equal, a fixed order decides,
so every process finds the same winner. A key without a valid fragment is left out.

There is one exception: if every valid fragment of a key is a number that its source marks as an estimate, and the
numbers of several sources differ, the result is their weighted average, and none of them loses. Texts are never mixed.

Coherence says how far the sources agree, from 0 to 1. For one key it is the weight of the winning claim divided by the
weight of all valid claims, less if only one source has the key. For a concept it is the mean over all its keys.

All functions are pure.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from itertools import pairwise

import msgspec

from mica.model.event import EventId
from mica.model.text_cache import remember_texts
from mica.sources.protocol import PHI_INV, PHI_INV_3, Fragment, Value, weight

STATED_MAX = 5  # statements about one concept; a reader cannot keep more in mind
ALONE = 0.5  # how far agreement is pulled towards one half if a key has a single source
ALONE_AGREEMENT = ALONE + (1 - ALONE) / 2  # the agreement of a key with a single fragment

SENTENCE_BLANKS = 3  # a text with at least three blanks (four words) means the same under any key
_NUMBER = re.compile(r"[+-]?(0|[1-9]\d{0,30})(\.\d{1,30})?")
RECALLED = re.compile(r"<\s*memory\s+from=", re.IGNORECASE)  # the beginning of the fence around recalled text


class Origin(msgspec.Struct, frozen=True, order=True):
    """Where a statement comes from: the name of the source, and the row, file or event within it."""

    source: str
    locator: str = ""


class Stated(msgspec.Struct, frozen=True, kw_only=True):
    """The statement that is shown for a key, with the origins of all fragments that it stands for."""

    key: str
    text: str
    value: Value = None
    confidence: float  # as shown: at most PHI_INV if a single source outside of mica makes the statement
    at: datetime
    source: str  # the source that the text is from
    origins: tuple[Origin, ...]
    sources: tuple[EventId, ...] = ()
    blended: tuple[tuple[str, float], ...] = ()  # if numbers were averaged: each source with its number


class Conflict(msgspec.Struct, frozen=True, kw_only=True):
    """A statement that lost against another one about the same key. The result of a merge lists it."""

    key: str
    text: str
    value: Value = None
    confidence: float
    at: datetime
    source: str
    origins: tuple[Origin, ...]
    sources: tuple[EventId, ...] = ()
    against: str  # the source of the statement that won
    reason: str  # why this statement lost: expired, not valid yet, less trusted, less sure, older, a tie


class CohereCounts(msgspec.Struct, frozen=True, kw_only=True):
    """The number of fragments or statements that are not shown, for each reason."""

    duplicates: int = 0  # the same claim about the same key, or the same words again
    unsure: int = 0  # confidence below PHI_INV_3
    expired: int = 0  # not valid now, and no valid fragment has their key
    junk: int = 0  # empty or blank text
    loops: int = 0  # text that mica itself put into a brief, and that a source copied
    beyond: int = 0  # accepted statements beyond STATED_MAX


class Coherent(msgspec.Struct, frozen=True, kw_only=True):
    """The merged statements about a concept, ordered by time, with the conflicts and how far the sources agree."""

    fragments: tuple[Stated, ...] = ()
    conflicts: tuple[Conflict, ...] = ()
    coherence: float | None = None  # from 0 to 1; None without statements
    speaking: tuple[str, ...] = ()  # the sources with a usable fragment
    counts: CohereCounts = CohereCounts()


def cohere(
    fragments: Iterable[Fragment], *, ranks: Mapping[str, int], now: datetime, limit: int = STATED_MAX
) -> Coherent:
    """Return at most `limit` statements merged from fragments, with their conflicts.

    `ranks` maps the name of each source to its rank. The order of `fragments` does not change the result.
    """
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
    accepted: list[Fragment | Stated] = []
    conflicts: list[Conflict] = []
    agreements: list[float] = []
    expired = duplicates = 0
    for about in sorted(keys):
        order = keys[about]
        if len(order) == 1 and _validity(order[0], now) == 0:  # most keys have one fragment
            accepted.append(order[0])
            agreements.append(ALONE_AGREEMENT)
            continue
        order = _in_order(order, ranks, now)
        if _validity(order[0], now) > 0:
            expired += len(order)
            continue
        claims = _claims(order)
        duplicates += len(order) - len(claims)
        won, *others = claims.values()
        valid = {value: claim for value, claim in claims.items() if _validity(claim[0], now) == 0}
        agreements.append(_agreement(valid, ranks, now))
        if (blended := _blended(list(valid.values()), ranks, now)) is not None:
            accepted.append(blended)
            losing = [claim for value, claim in claims.items() if value not in valid]
        else:
            accepted.append(_stated(won, now))
            losing = others
        conflicts += [_conflict(claim, won[0], ranks, now) for claim in losing]
    unique = _merge_repeated(accepted, ranks)
    shown = [_single(each) for each in _choose_in_turns(unique, limit)]
    return Coherent(
        fragments=tuple(sorted(shown, key=lambda each: (each.at, each.key, each.source))),
        conflicts=tuple(conflicts),
        coherence=math.fsum(agreements) / len(agreements) if agreements else None,
        speaking=tuple(sorted(speaking)),
        counts=CohereCounts(
            duplicates=duplicates + len(accepted) - len(unique),
            unsure=unsure,
            expired=expired,
            junk=junk,
            loops=loops,
            beyond=len(unique) - len(shown),
        ),
    )


def canonical(value: Value) -> str:
    """Return a value in its normal form, as a text for comparisons. Letter case and extra blanks are ignored.

    `8080` and "8080" have the same normal form, and so have `True` and "true".
    """
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


_folded_key = remember_texts(2_000)(_folded)  # sources use the same keys again and again


def _claim_value(fragment: Fragment) -> str:
    return canonical(fragment.text if fragment.value is None else fragment.value)


def _validity(fragment: Fragment, now: datetime) -> int:
    """Return 0 if the fragment is valid now, 1 if it has expired, 2 if it is not valid yet."""
    if fragment.valid_until is not None and fragment.valid_until <= now:
        return 1
    return 2 if fragment.valid_from is not None and fragment.valid_from > now else 0


def _in_order(fragments: Iterable[Fragment], ranks: Mapping[str, int], now: datetime) -> list[Fragment]:
    """Return the fragments of one key with the winner first: sorted by validity, rank, confidence and age.

    Ties are put in a fixed order. `ranks` maps the name of each source to its rank.
    """
    places = sorted([(_place(each, ranks, now), number, each) for number, each in enumerate(fragments)])
    if any(one[0] == other[0] for one, other in pairwise(places)):  # ties are broken the same way everywhere
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
        _claim_value(fragment),
    )


def _claims(order: Sequence[Fragment]) -> dict[str, list[Fragment]]:
    """Return the fragments grouped by normalized value. `order` has the best fragment first, and so has each group."""
    found: dict[str, list[Fragment]] = {}
    for each in order:
        found.setdefault(_claim_value(each), []).append(each)
    return found


def _agreement(valid: Mapping[str, Sequence[Fragment]], ranks: Mapping[str, int], now: datetime) -> float:
    """Return the coherence of one key: the weight of the winning value divided by the weight of all valid values.

    `valid` maps each value to the fragments that state it; its first value is the winning one. If all fragments are
    from one source, a result above one half is moved towards one half.
    """
    won = next(iter(valid))
    weights = {
        (each.source, value): weight(ranks[each.source], each.confidence)
        for value, claim in valid.items()
        for each in reversed(claim)  # in a dict the last one counts: each source's most confident fragment
        if _validity(each, now) == 0
    }
    agreeing = math.fsum(each for (_, value), each in weights.items() if value == won)
    share = agreeing / math.fsum(weights.values())
    is_alone = len({source for source, _ in weights}) == 1
    return min(share, ALONE * share + (1 - ALONE) / 2) if is_alone else share


def _blended(valid: Sequence[Sequence[Fragment]], ranks: Mapping[str, int], now: datetime) -> Stated | None:
    """Return a statement with the weighted average of the numbers that several sources estimate for one key.

    `valid` has one group of fragments for each value. Return None in three cases: a value is not a number marked as an
    estimate, all numbers are equal, or only one source has numbers.
    """
    every = [each for claim in valid for each in claim if _validity(each, now) == 0]
    numbers: dict[str, tuple[float, Fragment]] = {}  # by source
    for each in every:
        if not each.is_estimate or isinstance(each.value, bool) or not isinstance(each.value, int | float):
            return None
        numbers.setdefault(each.source, (float(each.value), each))  # the first fragment of a source is its best
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
    """Return the confidence to show for a statement. A fragment from outside of mica gets at most PHI_INV."""
    return each.confidence if type(each) is Stated or each.sources else min(each.confidence, PHI_INV)


def _single(each: Fragment | Stated) -> Stated:
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
        return _single(first)
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
    reason = "a tie"
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


def _merge_repeated(accepted: Sequence[Fragment | Stated], ranks: Mapping[str, int]) -> list[Fragment | Stated]:
    """Return the statements, best first. Statements with the same text under different keys are merged into one.

    The merged statement has the origins of all of them. Short texts, such as "ok", are not merged.
    """
    order = [
        (ranks[each.source], -_shown(each), -each.at.timestamp(), each.key, each.source, number)
        for number, each in enumerate(accepted)
    ]
    unique: list[Fragment | Stated] = []
    places: dict[str, int] = {}  # index in `unique` of each text
    for *_, number in sorted(order):
        each = accepted[number]
        is_short = each.text.count(" ") < SENTENCE_BLANKS  # "ok" means something else for every key
        place = len(unique) if is_short else places.setdefault(_folded(each.text), len(unique))
        if place == len(unique):
            unique.append(each)
            continue
        first, again = _single(unique[place]), _single(each)
        unique[place] = msgspec.structs.replace(
            first,
            origins=tuple(sorted({*first.origins, *again.origins})),
            sources=tuple(dict.fromkeys([*first.sources, *again.sources])),
        )
    return unique


def _choose_in_turns(in_order: Iterable[Fragment | Stated], limit: int) -> list[Fragment | Stated]:
    """Return at most `limit` statements: first the best of each source, then the second of each source, and so on.

    A source with many statements can therefore not displace the other sources.
    """
    turns: dict[str, int] = defaultdict(int)
    in_turn: dict[int, list[Fragment | Stated]] = defaultdict(list)
    for each in in_order:
        in_turn[turns[each.source]].append(each)
        turns[each.source] += 1
    return [each for turn in sorted(in_turn) for each in in_turn[turn]][:limit]

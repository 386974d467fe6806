"""One brief of everything: crystals, marks, files, teachings and what other systems state, under one budget.

Of all that is offered the best comes first, whoever offers it; fragments take at most 1/φ of the budget; what two
sources say is said once; conflicts stand in one line, and what is missing is named.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from mica.brief.budget import fit
from mica.brief.compression import Coverage, compressed
from mica.brief.layout import DAY_TOKENS, cost_within, render, room, with_cost
from mica.brief.receipts import CONFLICTS
from mica.model.event import Brief, Passage
from mica.sources.account import LINE_TOKENS, one_line, shortened
from mica.sources.cohere import Coherent, Conflict, Stated
from mica.sources.fan_out import Collected
from mica.sources.protocol import PHI_INV, Concept

SOURCES_SHOWN = 3


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """What the sources know of one concept."""

    concept: Concept
    collected: Collected
    coherent: Coherent


def compose(
    query: str,
    passages: Sequence[Passage],
    accounts: Sequence[Account],
    *,
    missing: Mapping[str, str],
    budget_tokens: int,
    is_compressed: bool = False,
) -> Brief:
    """The brief: never over the budget, its conflicts and gaps told."""
    gaps = dict(missing)
    for account in accounts:
        gaps |= account.collected.missing
        gaps |= {each.source: f"stale, {each.reason}" for each in account.collected.degraded}
    lost = [_lost(each) for account in accounts for each in account.coherent.conflicts]
    conflicts = [each.text for each in lost]
    notes = [shortened(f"- {CONFLICTS}: {'; '.join(conflicts)}", LINE_TOKENS)] if conflicts else []
    offered = [
        *passages,
        *(passage(account.concept, each) for account in accounts for each in account.coherent.fragments),
    ]
    left_tokens, all_offered = room(budget_tokens, missing=gaps, notes=notes), len(offered)
    if is_compressed:
        offered = [with_cost(each, budget_tokens=budget_tokens) for each in offered]
        longest = Coverage(sentences=99_999, of=99_999).told()
        notes_room = room(budget_tokens, missing=gaps, notes=[*notes, f"- {longest}"])
        days = DAY_TOKENS * len({each.at.date() for each in offered})
        best = sorted(offered, key=lambda each: -each.score)
        smaller, coverage = compressed(
            best,
            query=query,
            budget_tokens=max(0, notes_room - days),
            cost=lambda each: with_cost(each, budget_tokens=budget_tokens),
        )
        if coverage is not None and smaller:  # where no sentence fits, what is offered is left out as it is
            offered, left_tokens = smaller, notes_room
            notes.append(f"- {coverage.told()}")
    chosen, left_out = fit(
        offered,
        budget_tokens=left_tokens,
        cost=cost_within,
        day_tokens=DAY_TOKENS,
        fragment_tokens=int(left_tokens * PHI_INV),
    )
    left_out += all_offered - len(offered)  # of which no sentence is left
    shares = [each.coherent.coherence for each in accounts if each.coherent.coherence is not None]
    brief = render(query, chosen, budget_tokens=budget_tokens, left_out=left_out, missing=gaps, notes=notes)
    return msgspec.structs.replace(
        brief,
        concepts=tuple(str(each.concept) for each in accounts),
        coherence=sum(shares) / len(shares) if shares else None,
        conflicts=tuple(conflicts),
        lost=tuple(lost),
        is_compressed=is_compressed,
    )


def passage(concept: Concept, stated: Stated) -> Passage:
    """A statement as a piece of a brief."""
    named = list(dict.fromkeys(origin.source for origin in stated.origins))
    more = f" +{len(named) - SOURCES_SHOWN}" if len(named) > SOURCES_SHOWN else ""
    key, text = one_line(stated.key), one_line(stated.text)
    about = "" if key.casefold() in text.casefold() else f"{shortened(key, LINE_TOKENS // 4)}: "
    return Passage(
        text=shortened(f"{about}{text}", LINE_TOKENS - 10) + f" ({stated.confidence:.0%})",
        sources=stated.sources,
        tokens=0,
        score=stated.confidence,
        at=stated.at,
        source=stated.source,
        kind=f"{shortened(one_line(str(concept)), LINE_TOKENS // 3)} [{', '.join(named[:SOURCES_SHOWN])}{more}]",
        origins=tuple((origin.source, origin.locator) for origin in stated.origins),
    )


def _lost(conflict: Conflict) -> Passage:
    """What lost, with what it comes from."""
    return Passage(
        text=told(conflict),
        sources=conflict.sources,
        tokens=0,
        score=conflict.confidence,
        at=conflict.at,
        source=conflict.source,
        kind=CONFLICTS,
        origins=tuple((origin.source, origin.locator) for origin in conflict.origins),
    )


def told(conflict: Conflict) -> str:
    """A conflict in a few words."""
    key = shortened(one_line(conflict.key), 8)
    text = shortened(one_line(conflict.text), 12)
    return f"{key}: [{conflict.source}] says {text}, loses to [{conflict.against}] ({conflict.reason})"

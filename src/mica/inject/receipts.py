"""What is kept of a brief: which passages an agent was shown, what they cost, and what was missing."""

from __future__ import annotations

from datetime import datetime

from mica.model import Brief, Passage
from mica.observe.redact import redact
from mica.tokens import ESTIMATOR

BRIEF = "brief"  # the event that is the receipt of a brief


def receipt(brief: Brief, *, latency_ms: float | None = None, as_of: datetime | None = None) -> dict[str, object]:
    """The data of the event that records a brief."""
    told: dict[str, object] = {
        "query": redact(brief.query),
        "passages": [_passage(passage) for passage in brief.passages],
        "tokens": brief.tokens,
        "budget_tokens": brief.budget_tokens,
        "estimator": ESTIMATOR,
        "left_out": brief.left_out,
        "missing": brief.missing,
    }
    if brief.concepts:
        told |= {"concepts": brief.concepts, "coherence": brief.coherence, "conflicts": len(brief.conflicts)}
    told |= {name: True for name in ("is_compressed", "is_off") if getattr(brief, name)}
    if latency_ms is not None:
        told["latency_ms"] = round(latency_ms, 3)
    if as_of is not None:
        told["as_of"] = as_of.isoformat()
    return told


def _passage(passage: Passage) -> dict[str, object]:
    told: dict[str, object] = {
        "source": passage.source,
        "sources": passage.sources,
        "tokens": passage.tokens,
        "score": passage.score,
    }
    if passage.origins:  # other systems forget what they stated; the log does not
        told |= {"text": redact(passage.text), "kind": passage.kind, "origins": passage.origins}
    return told

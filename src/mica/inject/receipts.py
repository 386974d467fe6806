"""What is kept of a brief: which passages an agent was shown, what they cost, and what was missing."""

from __future__ import annotations

from mica.model import Brief
from mica.observe.redact import redact
from mica.tokens import ESTIMATOR


def receipt(brief: Brief) -> dict[str, object]:
    """The data of the event that records a brief."""
    return {
        "query": redact(brief.query),
        "passages": [
            {"source": passage.source, "sources": passage.sources, "tokens": passage.tokens, "score": passage.score}
            for passage in brief.passages
        ],
        "tokens": brief.tokens,
        "budget_tokens": brief.budget_tokens,
        "estimator": ESTIMATOR,
        "left_out": brief.left_out,
        "missing": brief.missing,
    }

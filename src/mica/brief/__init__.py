"""The text an agent receives: sections, budget, layout, receipts, why, handoff, NOW.md."""

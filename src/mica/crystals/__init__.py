"""Crystals (summaries of marks, and of crystals of the level below) and teachings (crystals that were promoted)."""

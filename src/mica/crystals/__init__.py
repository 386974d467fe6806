"""Crystals: digests of marks, level upon level, and teachings."""

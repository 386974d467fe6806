"""Asks many sources about a concept at once, and merges their answers into one list of statements."""

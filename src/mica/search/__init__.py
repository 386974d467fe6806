"""Search: the ranker, the second query, dates and vectors."""

"""Search for marks and crystals by words, times and meaning: the ranker, the second query, dates and vectors."""

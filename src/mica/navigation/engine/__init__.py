"""The prediction engine. Hooks load a copy of it, so it imports `words`, `tokens` and the standard library only."""

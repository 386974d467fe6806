"""The engine that predicts files. Hooks load a copy, so it imports only `words`, `tokens` and the standard library."""

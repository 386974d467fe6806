"""The HTTP API under `/api`: each operation parses a request, calls memory, and answers."""

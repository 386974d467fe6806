"""The HTTP API under `/api`: each operation parses a request, calls one method of `Memory`, and answers."""

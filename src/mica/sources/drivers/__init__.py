"""Drivers of external sources: HTTP, JSON files, SQL databases, MCP servers, Python objects and functions."""

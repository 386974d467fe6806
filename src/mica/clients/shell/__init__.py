"""Analyzes shell commands that agents run: which files and lines they read or changed, and which commits they made."""

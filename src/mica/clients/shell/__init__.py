"""Analyzes the shell commands of agents: which files and lines they read or changed, and which commits they made."""

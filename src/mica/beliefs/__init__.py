"""Beliefs: the statements of users and agents that hold now, learned from the log."""

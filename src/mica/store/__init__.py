"""Stores: one protocol per role, and an engine for each kind of database."""

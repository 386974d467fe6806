"""Observing: what agents do, turned into events."""

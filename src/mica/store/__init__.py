"""Where events are kept: one protocol, and an implementation for each engine."""

"""Support for coding agents (clients): a package for each, and what all share (importer, hooks, installer)."""

"""Support for coding agents, called clients: one package per agent, and the importer, hooks and installer."""

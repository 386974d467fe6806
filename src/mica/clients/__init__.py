"""Coding agents: one package each, the shell parser, the spool of hooks, the importer and the installer."""

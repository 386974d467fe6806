"""Coding agents (clients): one package for each, and their shell parser, hook spool, importer and installer."""

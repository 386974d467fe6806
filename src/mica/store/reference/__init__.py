"""The reference store, in memory: simple and complete. Every other engine must answer as it does."""

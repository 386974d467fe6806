"""The event log: contexts, emitting, the journal and its segments, following, chains, import and export."""

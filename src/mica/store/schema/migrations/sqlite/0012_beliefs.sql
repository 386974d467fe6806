-- Beliefs, learned from the log. `mica upkeep rebuild` and the purge of an event delete them; they are learned again.
CREATE TABLE beliefs (
    id TEXT PRIMARY KEY,
    kind TEXT NOT NULL,
    state TEXT NOT NULL,
    session TEXT,                      -- of the first statement
    last_at INTEGER NOT NULL,          -- time of the latest evidence
    belief TEXT NOT NULL,              -- as JSON
    crc INTEGER NOT NULL
) STRICT;
CREATE INDEX beliefs_by_state ON beliefs (state, kind, last_at DESC, id);
CREATE INDEX beliefs_by_session ON beliefs (session, last_at DESC, id) WHERE session IS NOT NULL;
CREATE TABLE belief_keys (             -- of beliefs that are not ended
    belief TEXT NOT NULL,
    key TEXT NOT NULL,                 -- an identifier or a term of its subject
    last_at INTEGER NOT NULL,          -- of the belief
    PRIMARY KEY (belief, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX belief_keys_by_key ON belief_keys (key, last_at DESC, belief);
CREATE TABLE belief_evidence (
    belief TEXT NOT NULL,
    event TEXT NOT NULL,               -- the id of an event that supports it
    PRIMARY KEY (belief, event)
) STRICT, WITHOUT ROWID;
CREATE INDEX belief_evidence_by_event ON belief_evidence (event, belief);
CREATE TABLE belief_lessons (position INTEGER NOT NULL) STRICT;   -- up to which beliefs were learned; 0 or 1 rows

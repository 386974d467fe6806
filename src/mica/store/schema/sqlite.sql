-- The log and what is derived from it. Times are microseconds since 1970 in UTC.

CREATE TABLE space (
    id TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    last_position INTEGER NOT NULL DEFAULT 0      -- of the log; never taken back
) STRICT;

-- Interned words: an event names them by number.
CREATE TABLE writers (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE) STRICT;
CREATE TABLE names (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE) STRICT;
CREATE TABLE sessions (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE) STRICT;

CREATE TABLE contexts (
    id INTEGER PRIMARY KEY,
    digest BLOB NOT NULL UNIQUE,       -- of the content: equal contexts are one row
    session INTEGER REFERENCES sessions (id),
    agent TEXT,
    user TEXT,
    task TEXT,
    correlation TEXT,
    labels TEXT NOT NULL               -- JSON, pairs in order
) STRICT;
CREATE INDEX contexts_by_session ON contexts (session);
CREATE INDEX contexts_by_agent ON contexts (agent) WHERE agent IS NOT NULL;
CREATE INDEX contexts_by_user ON contexts (user) WHERE user IS NOT NULL;
CREATE INDEX contexts_by_correlation ON contexts (correlation) WHERE correlation IS NOT NULL;

CREATE TABLE payloads (
    id INTEGER PRIMARY KEY,
    digest BLOB NOT NULL UNIQUE,       -- of the JSON before compression
    size_bytes INTEGER NOT NULL,
    body BLOB NOT NULL                 -- the JSON as one zstd frame
) STRICT;

CREATE TABLE events (
    position INTEGER PRIMARY KEY,      -- commit order, without gaps; never used twice
    writer INTEGER NOT NULL REFERENCES writers (id),
    sequence INTEGER NOT NULL,
    name INTEGER NOT NULL REFERENCES names (id),
    at INTEGER NOT NULL,
    context INTEGER NOT NULL REFERENCES contexts (id),
    root_writer INTEGER NOT NULL,
    root_sequence INTEGER NOT NULL,
    parent_writer INTEGER,
    parent_sequence INTEGER,
    depth INTEGER NOT NULL,
    origin INTEGER NOT NULL,           -- index into the provenance classes
    error INTEGER NOT NULL,
    data TEXT,                         -- JSON; NULL when it is a payload
    payload INTEGER REFERENCES payloads (id),
    UNIQUE (writer, sequence),
    CHECK ((data IS NULL) <> (payload IS NULL)),
    CHECK ((parent_writer IS NULL) = (parent_sequence IS NULL)),
    CHECK (NOT (parent_writer = writer AND parent_sequence = sequence))
) STRICT;
CREATE INDEX events_by_time ON events (at, position);
CREATE INDEX events_by_context ON events (context, at, position);
CREATE INDEX events_by_name ON events (name, at, position);
CREATE INDEX events_by_root ON events (root_writer, root_sequence);
CREATE INDEX events_by_parent ON events (parent_writer, parent_sequence) WHERE parent_writer IS NOT NULL;

-- An event is never changed or removed.
CREATE TRIGGER events_are_immutable BEFORE UPDATE ON events
BEGIN
    SELECT RAISE (ABORT, 'events are never changed');
END;

CREATE TRIGGER events_are_kept BEFORE DELETE ON events
BEGIN
    SELECT RAISE (ABORT, 'events are never removed');
END;

-- Full text, derived from events by `mica rebuild`.
CREATE TABLE texts (
    position INTEGER PRIMARY KEY REFERENCES events (position),
    session INTEGER,
    at INTEGER NOT NULL,
    length INTEGER NOT NULL,           -- in words
    is_mark INTEGER NOT NULL
) STRICT;
CREATE INDEX texts_by_session ON texts (session, at, position) WHERE is_mark;
CREATE INDEX texts_by_length ON texts (length) WHERE is_mark;

CREATE TABLE terms (id INTEGER PRIMARY KEY, term TEXT NOT NULL UNIQUE) STRICT;
CREATE TABLE postings (
    term INTEGER NOT NULL,
    position INTEGER NOT NULL,
    count INTEGER NOT NULL,
    PRIMARY KEY (term, position)
) STRICT, WITHOUT ROWID;

-- Background work that several processes share: each piece is done by one of them at a time.
CREATE TABLE work (
    kind TEXT NOT NULL,
    about TEXT NOT NULL,
    due_at INTEGER NOT NULL,
    again_at INTEGER,                  -- planned once more while somebody held it
    claim TEXT,                        -- the name of the claim that holds it
    owner TEXT,
    held_until INTEGER,
    PRIMARY KEY (kind, about),
    CHECK ((claim IS NULL) = (owner IS NULL) AND (claim IS NULL) = (held_until IS NULL))
) STRICT, WITHOUT ROWID;
CREATE INDEX work_by_due ON work (due_at);

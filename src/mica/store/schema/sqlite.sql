-- The log and what is derived from it. Times are microseconds since 1970 in UTC.

-- The generation grows with every purge: then processes forget what they cache. The highest number is that of a word
-- which a purge removed; none is used twice.
CREATE TABLE space (
    id TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    last_position INTEGER NOT NULL DEFAULT 0      -- of the log; never taken back
, generation INTEGER NOT NULL DEFAULT 0, highest_number INTEGER NOT NULL DEFAULT 0) STRICT;

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
CREATE INDEX events_by_payload ON events (payload) WHERE payload IS NOT NULL;

-- An event is never changed, except that a purge leaves a tombstone in its place.
CREATE TRIGGER events_are_immutable BEFORE UPDATE ON events
WHEN NOT EXISTS (SELECT 1 FROM authority WHERE work = 'purge')
    OR (new.position, new.writer, new.sequence, new.at, new.root_writer, new.root_sequence, new.depth, new.origin)
        <> (old.position, old.writer, old.sequence, old.at, old.root_writer, old.root_sequence, old.depth, old.origin)
    OR (new.parent_writer, new.parent_sequence) IS NOT (old.parent_writer, old.parent_sequence)
    OR new.name IS NOT (SELECT id FROM names WHERE name = 'event.purged')
BEGIN
    SELECT RAISE (ABORT, 'events are never changed');
END;

CREATE TRIGGER events_are_kept BEFORE DELETE ON events
BEGIN
    SELECT RAISE (ABORT, 'events are never removed');
END;

-- Purges that are applied to whatever arrives later. They hold digests, never the text that was purged.
CREATE TABLE purges (
    id TEXT PRIMARY KEY,               -- of the event that records it
    purge TEXT NOT NULL                -- JSON
) STRICT;

-- The triggers let work pass that has its row here. It exists only inside the transaction that needs it.
CREATE TABLE authority (work TEXT PRIMARY KEY, at INTEGER NOT NULL) STRICT;

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

-- The log of a space, and the indexes and tables derived from it. Times are microseconds since 1970 in UTC.

-- One row. `generation` grows with every purge, so that processes empty their caches. `highest_number` is the highest
-- number of a purged word, so that numbers are never reused.
CREATE TABLE space (
    id TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    last_position INTEGER NOT NULL DEFAULT 0,     -- of the log; never decreases
    generation INTEGER NOT NULL DEFAULT 0,
    highest_number INTEGER NOT NULL DEFAULT 0,
    reshaped INTEGER NOT NULL DEFAULT 0,          -- grows when blocks change, so that processes empty their caches
    crc INTEGER                                   -- of id and created_at
) STRICT;

-- Interned words: each is stored once, and events refer to it by number.
CREATE TABLE writers (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE) STRICT;
CREATE TABLE names (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE) STRICT;
CREATE TABLE sessions (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE) STRICT;

CREATE TABLE contexts (
    id INTEGER PRIMARY KEY,
    digest BLOB NOT NULL UNIQUE,       -- of the content, so that equal contexts share a row
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
CREATE INDEX contexts_by_correlation ON contexts (substr(correlation, -8)) WHERE correlation IS NOT NULL;

-- The data of events that is too large for their rows, stored once by content.
CREATE TABLE payloads (
    id INTEGER PRIMARY KEY,
    digest BLOB NOT NULL UNIQUE,       -- of the JSON before compression
    size_bytes INTEGER NOT NULL,
    body BLOB NOT NULL                 -- the JSON as one zstd frame
) STRICT;

CREATE TABLE events (
    position INTEGER PRIMARY KEY,      -- in commit order, without gaps; never reused
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
    origin INTEGER NOT NULL,           -- index into `ORIGINS` of mica.model.event
    error INTEGER NOT NULL,
    data TEXT,                         -- JSON; NULL if the data is stored as a payload
    payload INTEGER REFERENCES payloads (id),
    crc INTEGER,                       -- of all other columns; NULL in rows of an earlier version
    UNIQUE (writer, sequence),
    CHECK ((data IS NULL) <> (payload IS NULL)),
    CHECK ((parent_writer IS NULL) = (parent_sequence IS NULL)),
    CHECK (NOT (parent_writer = writer AND parent_sequence = sequence))
) STRICT;
CREATE INDEX events_by_time ON events (at);  -- every index includes the primary key
CREATE INDEX events_by_context ON events (context, at);
CREATE INDEX events_by_name ON events (name, at);
CREATE INDEX events_by_root ON events (root_writer, root_sequence);
CREATE INDEX events_by_parent ON events (parent_writer, parent_sequence) WHERE parent_writer IS NOT NULL;
CREATE INDEX events_by_payload ON events (payload) WHERE payload IS NOT NULL;

-- Compressed blocks of older events. An event is either a row of `events` or in a block.
CREATE TABLE blocks (
    id INTEGER PRIMARY KEY AUTOINCREMENT,      -- never reused, because processes cache blocks
    events INTEGER NOT NULL,
    errors INTEGER NOT NULL,
    payloads INTEGER NOT NULL,                 -- number of large bodies in the block
    first_at INTEGER NOT NULL,
    last_at INTEGER NOT NULL,
    header BLOB NOT NULL,
    bodies BLOB NOT NULL
) STRICT;
CREATE INDEX blocks_by_time ON blocks (last_at, id);

-- Lookup tables, derived from the blocks; `mica upkeep rebuild` recreates them.
CREATE TABLE chapters (
    id INTEGER PRIMARY KEY,                    -- its positions divided by the number of positions in a chapter
    last_position INTEGER NOT NULL,            -- the last position in a block
    places BLOB NOT NULL                       -- the block number of every position, 0 for a row
) STRICT;
CREATE TABLE runs (                            -- events in blocks: consecutive ids that have consecutive positions
    writer INTEGER NOT NULL,
    first_sequence INTEGER NOT NULL,
    last_sequence INTEGER NOT NULL,
    first_position INTEGER NOT NULL,
    PRIMARY KEY (writer, first_sequence)
) STRICT, WITHOUT ROWID;
CREATE TABLE block_sessions (
    session INTEGER NOT NULL,                  -- 0: no session
    block INTEGER NOT NULL,
    last_at INTEGER NOT NULL,
    PRIMARY KEY (session, block)
) STRICT, WITHOUT ROWID;
CREATE TABLE block_contexts (
    context INTEGER NOT NULL,
    block INTEGER NOT NULL,
    PRIMARY KEY (context, block)
) STRICT, WITHOUT ROWID;
CREATE TABLE block_names (
    name INTEGER NOT NULL,
    block INTEGER NOT NULL,
    PRIMARY KEY (name, block)
) STRICT, WITHOUT ROWID;
CREATE TABLE block_roots (                     -- the roots of the events in a block that are not roots themselves
    writer INTEGER NOT NULL,
    sequence INTEGER NOT NULL,
    block INTEGER NOT NULL,
    PRIMARY KEY (writer, sequence, block)
) STRICT, WITHOUT ROWID;
CREATE TABLE block_payloads (
    payload INTEGER NOT NULL,
    block INTEGER NOT NULL,
    PRIMARY KEY (payload, block)
) STRICT, WITHOUT ROWID;

-- An event is never changed, except that a purge replaces it by a tombstone.
CREATE TRIGGER events_are_immutable BEFORE UPDATE ON events
WHEN NOT EXISTS (SELECT 1 FROM authority WHERE work = 'purge')
    OR (new.position, new.writer, new.sequence, new.at, new.root_writer, new.root_sequence, new.depth, new.origin)
        <> (old.position, old.writer, old.sequence, old.at, old.root_writer, old.root_sequence, old.depth, old.origin)
    OR (new.parent_writer, new.parent_sequence) IS NOT (old.parent_writer, old.parent_sequence)
    OR new.name IS NOT (SELECT id FROM names WHERE name = 'event.purged')
BEGIN
    SELECT RAISE (ABORT, 'events are never changed');
END;

-- Rows are deleted only when their events move into a block, and blocks only when their events become rows again.
CREATE TRIGGER events_are_kept BEFORE DELETE ON events
WHEN NOT EXISTS (SELECT 1 FROM authority WHERE work = 'age')
BEGIN
    SELECT RAISE (ABORT, 'events are never removed');
END;
CREATE TRIGGER blocks_are_immutable BEFORE UPDATE ON blocks
BEGIN
    SELECT RAISE (ABORT, 'blocks are never changed');
END;
CREATE TRIGGER blocks_are_kept BEFORE DELETE ON blocks
WHEN NOT EXISTS (SELECT 1 FROM authority WHERE work = 'age')
BEGIN
    SELECT RAISE (ABORT, 'blocks are never removed');
END;
CREATE TRIGGER chapters_are_kept BEFORE DELETE ON chapters
WHEN NOT EXISTS (SELECT 1 FROM authority WHERE work = 'age')
BEGIN
    SELECT RAISE (ABORT, 'what leads to blocks is never removed');
END;
CREATE TRIGGER chapters_follow_blocks BEFORE UPDATE ON chapters
WHEN NOT EXISTS (SELECT 1 FROM authority WHERE work = 'age')
BEGIN
    SELECT RAISE (ABORT, 'what leads to blocks is never changed');
END;
CREATE TRIGGER runs_are_kept BEFORE DELETE ON runs
WHEN NOT EXISTS (SELECT 1 FROM authority WHERE work = 'age')
BEGIN
    SELECT RAISE (ABORT, 'what leads to blocks is never removed');
END;

-- Purges that are applied to events that arrive later. They contain digests, never purged text.
CREATE TABLE purges (
    id TEXT PRIMARY KEY,               -- of the event that records it
    purge TEXT NOT NULL,               -- JSON
    crc INTEGER                        -- here and below: of all other columns; NULL in rows of an earlier version
) STRICT;

-- A row here allows a kind of work that triggers refuse otherwise. It exists only inside the transaction that needs it.
CREATE TABLE authority (work TEXT PRIMARY KEY, at INTEGER NOT NULL) STRICT;

-- The full-text index, derived from events; `mica upkeep rebuild` recreates it.
CREATE TABLE texts (
    position INTEGER PRIMARY KEY,      -- of the log
    session INTEGER,
    at INTEGER NOT NULL,
    length INTEGER NOT NULL,           -- in words
    is_mark INTEGER NOT NULL
) STRICT;
CREATE INDEX texts_by_session ON texts (session, at, position, length) WHERE is_mark;  -- a covering index
CREATE INDEX texts_by_length ON texts (length) WHERE is_mark;

CREATE TABLE terms (id INTEGER PRIMARY KEY, term TEXT NOT NULL UNIQUE) STRICT;
-- The inverted index, in volumes of consecutive texts. A place is the number of a text in its volume, from 0.
CREATE TABLE volumes (
    id INTEGER PRIMARY KEY AUTOINCREMENT,      -- never reused, because processes cache volumes
    first_position INTEGER NOT NULL,
    first_at INTEGER NOT NULL,
    last_at INTEGER NOT NULL,
    positions BLOB NOT NULL,                   -- of all texts, relative to the first, four bytes each
    marks BLOB NOT NULL,                       -- a bit for each text, 1 for a mark
    crc INTEGER
) STRICT;
CREATE UNIQUE INDEX volumes_by_position ON volumes (first_position);
CREATE TABLE postings (
    volume INTEGER NOT NULL,
    term INTEGER NOT NULL,
    count INTEGER NOT NULL,                    -- number of texts that contain the term
    places BLOB NOT NULL,                      -- of these texts, two bytes each, or a bit for every text of the volume
    more BLOB,                                 -- for texts with several occurrences: place and count, four bytes each
    PRIMARY KEY (volume, term)
) STRICT, WITHOUT ROWID;

-- The latest texts, which are not in a volume yet.
CREATE TABLE unfiled (
    position INTEGER PRIMARY KEY,
    terms TEXT NOT NULL                        -- term numbers as JSON, repeated for each occurrence
) STRICT;

-- Embedding vectors of marks, a cache: `mica upkeep rebuild` deletes them, and they are computed again.
CREATE TABLE vectors (
    position INTEGER PRIMARY KEY,      -- of the log
    model TEXT NOT NULL,               -- vectors of different models cannot be compared
    vector BLOB NOT NULL,
    crc INTEGER
) STRICT;
CREATE INDEX vectors_by_model ON vectors (model);

-- Background work that several processes share: each piece is held by one of them at a time.
CREATE TABLE work (
    kind TEXT NOT NULL,
    about TEXT NOT NULL,
    due_at INTEGER NOT NULL,
    again_at INTEGER,                  -- planned again while a process held it
    claim TEXT,                        -- the id of the claim that holds it
    owner TEXT,
    held_until INTEGER,
    PRIMARY KEY (kind, about),
    CHECK ((claim IS NULL) = (owner IS NULL) AND (claim IS NULL) = (held_until IS NULL))
) STRICT, WITHOUT ROWID;
CREATE INDEX work_by_due ON work (due_at);

-- Crystals, derived from the events that record them. A crystal's sources are written before its own row, which is
-- refused if they break a law.
CREATE TABLE crystals (
    position INTEGER PRIMARY KEY,              -- of the log
    level INTEGER NOT NULL,
    period TEXT NOT NULL,
    start_at INTEGER NOT NULL,
    end_at INTEGER NOT NULL,
    tokens INTEGER NOT NULL,
    superseded_by INTEGER,                     -- the position of the event that superseded or retracted it
    CHECK (level BETWEEN 0 AND 3),
    CHECK (start_at <= end_at)
) STRICT;
CREATE INDEX crystals_by_end ON crystals (end_at);
CREATE INDEX crystals_by_period ON crystals (period);

CREATE TABLE crystal_sources (
    crystal INTEGER NOT NULL,                  -- the position of the crystal
    source INTEGER NOT NULL,                   -- the position of the source
    tokens INTEGER NOT NULL,
    is_live INTEGER NOT NULL,                  -- its crystal is not superseded and is in the time hierarchy
    PRIMARY KEY (crystal, source),
    CHECK (source < crystal)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX crystal_sources_once ON crystal_sources (source) WHERE is_live;
CREATE INDEX crystal_sources_by_source ON crystal_sources (source);
CREATE INDEX texts_by_time ON texts (at, position) WHERE is_mark;  -- for the latest marks without a crystal

-- Retractions, also of events that have not arrived yet.
CREATE TABLE retractions (
    retracted TEXT PRIMARY KEY,                -- the id of a mark or crystal
    position INTEGER NOT NULL                  -- of the first retraction
) STRICT, WITHOUT ROWID;

CREATE TRIGGER crystals_keep_the_laws BEFORE INSERT ON crystals
BEGIN
    SELECT RAISE (ABORT, 'law of immutability: a crystal is not written twice')
    WHERE EXISTS (SELECT 1 FROM crystals WHERE position = new.position);
    SELECT RAISE (ABORT, 'law of provenance: a crystal has sources')
    WHERE NOT EXISTS (SELECT 1 FROM crystal_sources WHERE crystal = new.position);
    SELECT RAISE (ABORT, 'law of overlap: a crystal seals its sources, unless it covers a tree')
    FROM crystal_sources
    WHERE crystal = new.position AND is_live = (substr(new.period, 1, 5) = 'tree:');
    SELECT RAISE (ABORT, 'law of levels: a session has marks that are there as sources')
    FROM crystal_sources LEFT JOIN texts ON texts.position = source AND is_mark
    WHERE crystal = new.position AND new.level = 0 AND texts.position IS NULL;
    SELECT RAISE (ABORT, 'law of levels: sources are live crystals of the level below')
    FROM crystal_sources LEFT JOIN crystals AS below
        ON below.position = source AND below.level = new.level - 1 AND below.superseded_by IS NULL
    WHERE crystal = new.position AND new.level > 0 AND below.position IS NULL;
    SELECT RAISE (ABORT, 'law of time: the time of a crystal contains its sources')
    FROM crystal_sources LEFT JOIN texts ON new.level = 0 AND texts.position = source
        LEFT JOIN crystals AS below ON new.level > 0 AND below.position = source
    WHERE crystal = new.position
        AND (coalesce(texts.at, below.start_at) < new.start_at OR coalesce(texts.at, below.end_at) > new.end_at);
    SELECT RAISE (ABORT, 'law of compression: the tokens of a source are what they were')
    FROM crystal_sources JOIN crystals AS below ON below.position = source
    WHERE crystal = new.position AND new.level > 0 AND below.tokens <> crystal_sources.tokens;
    SELECT RAISE (ABORT, 'law of compression: a crystal has fewer tokens than its sources')
    WHERE new.tokens <= 0
        OR new.tokens >= (SELECT sum(tokens) FROM crystal_sources WHERE crystal = new.position);
END;
CREATE TRIGGER crystals_are_immutable BEFORE UPDATE ON crystals
WHEN old.superseded_by IS NOT NULL OR new.superseded_by IS NULL
    OR (new.position, new.level, new.period, new.start_at, new.end_at, new.tokens)
        <> (old.position, old.level, old.period, old.start_at, old.end_at, old.tokens)
BEGIN
    SELECT RAISE (ABORT, 'law of immutability: a crystal is superseded, never changed');
END;
CREATE TRIGGER crystals_are_kept BEFORE DELETE ON crystals
WHEN NOT EXISTS (SELECT 1 FROM authority WHERE work IN ('purge', 'rebuild'))
BEGIN
    SELECT RAISE (ABORT, 'law of immutability: a crystal is never removed');
END;
CREATE TRIGGER crystal_sources_come_first BEFORE INSERT ON crystal_sources
WHEN EXISTS (SELECT 1 FROM crystals WHERE position = new.crystal)
BEGIN
    SELECT RAISE (ABORT, 'law of immutability: a crystal gets no more sources');
END;
CREATE TRIGGER crystal_sources_are_immutable BEFORE UPDATE ON crystal_sources
WHEN new.is_live OR (new.crystal, new.source, new.tokens) <> (old.crystal, old.source, old.tokens)
    OR NOT EXISTS (SELECT 1 FROM crystals WHERE position = old.crystal AND superseded_by IS NOT NULL)
BEGIN
    SELECT RAISE (ABORT, 'law of immutability: the sources of a crystal never change');
END;
CREATE TRIGGER crystal_sources_are_kept BEFORE DELETE ON crystal_sources
WHEN NOT EXISTS (SELECT 1 FROM authority WHERE work IN ('purge', 'rebuild'))
BEGIN
    SELECT RAISE (ABORT, 'law of provenance: the sources of a crystal are never removed');
END;

-- Trails, learned from the log. `mica upkeep rebuild` and the purge of an event delete them; they are learned again.
CREATE TABLE trails (
    key TEXT PRIMARY KEY,              -- of its paths, in order
    slug TEXT NOT NULL,
    shape TEXT NOT NULL,               -- the kind of task
    runs INTEGER NOT NULL,
    last_at INTEGER NOT NULL,
    trail TEXT NOT NULL,               -- as JSON
    crc INTEGER
) STRICT;
CREATE INDEX trails_by_slug ON trails (slug);
CREATE INDEX trails_by_shape ON trails (shape);
CREATE INDEX trails_by_runs ON trails (runs DESC, last_at DESC, key);
CREATE INDEX trails_by_last_use ON trails (last_at DESC, runs DESC, key);
CREATE TABLE lessons (position INTEGER NOT NULL) STRICT;   -- the position up to which trails were learned; 0 or 1 rows

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

-- A cache of the replies of sources about a concept. Every purge and `mica upkeep rebuild` delete it.
CREATE TABLE replies (
    concept TEXT NOT NULL,
    source TEXT NOT NULL,
    at INTEGER NOT NULL,               -- time of the request
    position INTEGER NOT NULL,         -- of the log at that time: later events may make the reply stale
    declared TEXT NOT NULL,            -- the declaration of the source at that time
    reply TEXT NOT NULL,               -- as JSON
    crc INTEGER,
    PRIMARY KEY (concept, source)
) STRICT, WITHOUT ROWID;
CREATE INDEX replies_by_age ON replies (at);

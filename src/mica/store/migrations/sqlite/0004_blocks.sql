-- Ageing: older events leave their rows for compressed blocks. Readers see one log.

ALTER TABLE space ADD COLUMN reshaped INTEGER NOT NULL DEFAULT 0;         -- grows when blocks change: forget what is cached

-- The triggers let work pass that has its row here. It exists only inside the transaction that needs it.
CREATE TABLE IF NOT EXISTS authority (work TEXT PRIMARY KEY, at INTEGER NOT NULL) STRICT;

CREATE TABLE blocks (
    id INTEGER PRIMARY KEY AUTOINCREMENT,      -- never used twice: processes remember what is in a block
    events INTEGER NOT NULL,
    errors INTEGER NOT NULL,
    payloads INTEGER NOT NULL,                 -- large bodies that nothing else refers to
    first_at INTEGER NOT NULL,
    last_at INTEGER NOT NULL,
    header BLOB NOT NULL,
    bodies BLOB NOT NULL
) STRICT;
CREATE INDEX blocks_by_time ON blocks (last_at, id);

-- Where things are. All of it follows from the blocks: `mica rebuild` derives it again.
CREATE TABLE chapters (
    id INTEGER PRIMARY KEY,                    -- a position divided by the positions of a chapter
    last_position INTEGER NOT NULL,            -- of an event in a block
    places BLOB NOT NULL                       -- the block of every position
) STRICT;
CREATE TABLE runs (                            -- ids that follow each other at positions that do
    writer INTEGER NOT NULL,
    first_sequence INTEGER NOT NULL,
    last_sequence INTEGER NOT NULL,
    first_position INTEGER NOT NULL,
    PRIMARY KEY (writer, first_sequence)
) STRICT, WITHOUT ROWID;
CREATE TABLE block_sessions (
    session INTEGER NOT NULL,                  -- 0: of no session
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
CREATE TABLE block_roots (                     -- of events that are not roots themselves
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

CREATE INDEX IF NOT EXISTS events_by_payload ON events (payload) WHERE payload IS NOT NULL;

-- An event leaves its row only for a block, and a block only for rows.
DROP TRIGGER events_are_kept;
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

-- An index on a table with an integer key holds that key already.
DROP INDEX events_by_time;
DROP INDEX events_by_context;
DROP INDEX events_by_name;
CREATE INDEX events_by_time ON events (at);
CREATE INDEX events_by_context ON events (context, at);
CREATE INDEX events_by_name ON events (name, at);

-- The end of a correlation tells nearly all of them apart, in a quarter of the room.
DROP INDEX contexts_by_correlation;
CREATE INDEX contexts_by_correlation ON contexts (substr(correlation, -8)) WHERE correlation IS NOT NULL;

-- The event of a text may be in a block.
CREATE TABLE kept AS SELECT position, session, at, length, is_mark FROM texts;
DROP TABLE texts;
CREATE TABLE texts (
    position INTEGER PRIMARY KEY,      -- of the log
    session INTEGER,
    at INTEGER NOT NULL,
    length INTEGER NOT NULL,           -- in words
    is_mark INTEGER NOT NULL
) STRICT;
INSERT INTO texts (position, session, at, length, is_mark) SELECT position, session, at, length, is_mark FROM kept;
DROP TABLE kept;
CREATE INDEX texts_by_session ON texts (session, at, position) WHERE is_mark;
CREATE INDEX texts_by_length ON texts (length) WHERE is_mark;

-- Where terms are said is listed by volumes of texts instead of by a row for every word of every text.
ALTER TABLE postings RENAME TO said;
CREATE INDEX said_by_position ON said (position);

-- Volumes of texts that follow each other: what full text is asked.
CREATE TABLE volumes (
    id INTEGER PRIMARY KEY AUTOINCREMENT,      -- never used twice: processes remember what is in a volume
    first_position INTEGER NOT NULL,
    first_at INTEGER NOT NULL,
    last_at INTEGER NOT NULL,
    positions BLOB NOT NULL,                   -- after the first, four bytes each
    marks BLOB NOT NULL                        -- a bit for each that is a mark
) STRICT;
CREATE UNIQUE INDEX volumes_by_position ON volumes (first_position);
CREATE TABLE postings (
    volume INTEGER NOT NULL,
    term INTEGER NOT NULL,
    count INTEGER NOT NULL,                    -- texts that have it
    places BLOB NOT NULL,                      -- of these in the volume: two bytes each, or a bit for every text
    more BLOB,                                 -- of those that say it more than once: place and how often, four bytes each
    PRIMARY KEY (volume, term)
) STRICT, WITHOUT ROWID;

-- The latest texts, in no volume yet.
CREATE TABLE unfiled (
    position INTEGER PRIMARY KEY,
    terms TEXT NOT NULL                        -- their numbers as JSON, as often as they are said
) STRICT;

WITH RECURSIVE times (nth) AS (
    SELECT 1 UNION ALL SELECT nth + 1 FROM times WHERE nth < (SELECT max(count) FROM said)
)
INSERT INTO unfiled (position, terms)
SELECT texts.position, coalesce((
    SELECT json_group_array(term) FROM said JOIN times ON nth <= count WHERE said.position = texts.position
), '[]') FROM texts;
DROP TABLE said;

DROP INDEX texts_by_session;
CREATE INDEX texts_by_session ON texts (session, at, position, length) WHERE is_mark;  -- all that is read of a session

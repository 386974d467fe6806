-- Crystals, derived from the events that record them. A crystal's sources are written before its own row, which is
-- refused when they break a law.
CREATE TABLE crystals (
    position INTEGER PRIMARY KEY,              -- of the log
    level INTEGER NOT NULL,
    period TEXT NOT NULL,
    start_at INTEGER NOT NULL,
    end_at INTEGER NOT NULL,
    tokens INTEGER NOT NULL,
    superseded_by INTEGER,                     -- the position of what superseded or retracted it
    CHECK (level BETWEEN 0 AND 3),
    CHECK (start_at <= end_at)
) STRICT;
CREATE INDEX crystals_by_end ON crystals (end_at);
CREATE INDEX crystals_by_period ON crystals (period);

CREATE TABLE crystal_sources (
    crystal INTEGER NOT NULL,                  -- positions
    source INTEGER NOT NULL,
    tokens INTEGER NOT NULL,
    is_live INTEGER NOT NULL,                  -- of a crystal that is not superseded, and belongs to the hierarchy of time
    PRIMARY KEY (crystal, source),
    CHECK (source < crystal)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX crystal_sources_once ON crystal_sources (source) WHERE is_live;
CREATE INDEX crystal_sources_by_source ON crystal_sources (source);
CREATE INDEX texts_by_time ON texts (at, position) WHERE is_mark;  -- the latest that no crystal covers

-- What was retracted, also before it was here.
CREATE TABLE retractions (
    retracted TEXT PRIMARY KEY,                -- the id of a mark or crystal
    position INTEGER NOT NULL                  -- of what says so first
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

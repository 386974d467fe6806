-- Purge: content goes, a tombstone stays.

-- The generation grows with every purge: then processes forget what they cache. The highest number is that of a word
-- which a purge removed; none is used twice.
ALTER TABLE space ADD COLUMN generation INTEGER NOT NULL DEFAULT 0;
ALTER TABLE space ADD COLUMN highest_number INTEGER NOT NULL DEFAULT 0;

-- Purges that are applied to whatever arrives later. They hold digests, never the text that was purged.
CREATE TABLE purges (
    id TEXT PRIMARY KEY,               -- of the event that records it
    purge TEXT NOT NULL                -- JSON
) STRICT;

-- The triggers let work pass that has its row here. It exists only inside the transaction that needs it.
CREATE TABLE authority (work TEXT PRIMARY KEY, at INTEGER NOT NULL) STRICT;

CREATE INDEX events_by_payload ON events (payload) WHERE payload IS NOT NULL;

-- An event is never changed, except that a purge leaves a tombstone in its place.
DROP TRIGGER events_are_immutable;
CREATE TRIGGER events_are_immutable BEFORE UPDATE ON events
WHEN NOT EXISTS (SELECT 1 FROM authority WHERE work = 'purge')
    OR (new.position, new.writer, new.sequence, new.at, new.root_writer, new.root_sequence, new.depth, new.origin)
        <> (old.position, old.writer, old.sequence, old.at, old.root_writer, old.root_sequence, old.depth, old.origin)
    OR (new.parent_writer, new.parent_sequence) IS NOT (old.parent_writer, old.parent_sequence)
    OR new.name IS NOT (SELECT id FROM names WHERE name = 'event.purged')
BEGIN
    SELECT RAISE (ABORT, 'events are never changed');
END;

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

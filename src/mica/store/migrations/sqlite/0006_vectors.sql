-- What a model made of marks. Derived: `mica rebuild` forgets it, and it is made again.
CREATE TABLE vectors (
    position INTEGER PRIMARY KEY,      -- of the log
    model TEXT NOT NULL,               -- which made it: vectors of two models cannot be compared
    vector BLOB NOT NULL
) STRICT;
CREATE INDEX vectors_by_model ON vectors (model);

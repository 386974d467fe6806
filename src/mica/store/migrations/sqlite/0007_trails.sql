-- Trails, learned from the log. Derived: `mica rebuild` and every purge forget them, and they are learned again.
CREATE TABLE trails (
    key TEXT PRIMARY KEY,              -- of its paths, in order
    slug TEXT NOT NULL,
    shape TEXT NOT NULL,               -- the kind of task
    runs INTEGER NOT NULL,
    last_at INTEGER NOT NULL,
    trail TEXT NOT NULL                -- as JSON
) STRICT;
CREATE INDEX trails_by_slug ON trails (slug);
CREATE INDEX trails_by_shape ON trails (shape);
CREATE INDEX trails_by_runs ON trails (runs);
CREATE INDEX trails_by_last_use ON trails (last_at);
CREATE TABLE lessons (position INTEGER NOT NULL) STRICT;   -- of the log, up to which trails were learned; one row or none

-- SQLite takes an index for an order only when it has all of it.
DROP INDEX trails_by_runs;
DROP INDEX trails_by_last_use;
CREATE INDEX trails_by_runs ON trails (runs DESC, last_at DESC, key);
CREATE INDEX trails_by_last_use ON trails (last_at DESC, runs DESC, key);

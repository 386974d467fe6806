-- What sources replied when they were asked about a concept. A cache: every purge and `mica rebuild` forget it.
CREATE TABLE replies (
    concept TEXT NOT NULL,
    source TEXT NOT NULL,
    at INTEGER NOT NULL,               -- when it was asked
    position INTEGER NOT NULL,         -- of the log then: later events may say that the reply is old
    declared TEXT NOT NULL,            -- how the source was declared then
    reply TEXT NOT NULL,               -- as JSON
    PRIMARY KEY (concept, source)
) STRICT, WITHOUT ROWID;
CREATE INDEX replies_by_age ON replies (at);

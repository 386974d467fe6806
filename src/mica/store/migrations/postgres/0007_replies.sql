-- What sources replied when they were asked about a concept. A cache: every purge and `mica rebuild` forget it.
CREATE TABLE replies (
    space integer NOT NULL,
    concept bytea NOT NULL,
    source text COLLATE "C" NOT NULL,
    at bigint NOT NULL,                                  -- when it was asked
    position bigint NOT NULL,                            -- of the log then: later events may say that the reply is old
    declared text COLLATE "C" NOT NULL,                  -- how the source was declared then
    reply bytea NOT NULL,                                -- as JSON
    PRIMARY KEY (space, concept, source)
);
CREATE INDEX replies_by_age ON replies (space, at);
ALTER TABLE replies ENABLE ROW LEVEL SECURITY;
ALTER TABLE replies FORCE ROW LEVEL SECURITY;
CREATE POLICY wall ON replies
    USING (space = (SELECT number FROM spaces WHERE id = current_setting('mica.space', true)));
SELECT estimate('replies');

-- Admitting a role lets it keep replies, too.
ALTER FUNCTION admit(regrole) RENAME TO admit_to_trails;
CREATE FUNCTION admit(role regrole) RETURNS void LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM admit_to_trails(role);
    EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON replies TO %s', role);
END
$$;
REVOKE EXECUTE ON FUNCTION admit FROM PUBLIC;

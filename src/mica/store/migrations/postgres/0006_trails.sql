-- Trails, learned from the log. Derived: `mica rebuild` and every purge forget them, and they are learned again.
CREATE TABLE trails (
    space integer NOT NULL,
    key text COLLATE "C" NOT NULL,                       -- of its paths, in order
    slug text COLLATE "C" NOT NULL,
    shape bytea NOT NULL,                                -- the kind of task
    runs bigint NOT NULL,
    last_at bigint NOT NULL,
    trail bytea NOT NULL,                                -- as JSON
    PRIMARY KEY (space, key)
);
CREATE INDEX trails_by_slug ON trails (space, slug);
CREATE INDEX trails_by_shape ON trails (space, shape);
CREATE INDEX trails_by_runs ON trails (space, runs);
CREATE INDEX trails_by_last_use ON trails (space, last_at);

CREATE TABLE lessons (
    space integer PRIMARY KEY,
    position bigint NOT NULL                             -- of the log, up to which trails were learned
);

DO $$
DECLARE
    walled text;
BEGIN
    FOREACH walled IN ARRAY ARRAY['trails', 'lessons'] LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', walled);
        EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', walled);
        EXECUTE format(
            'CREATE POLICY wall ON %I
            USING (space = (SELECT number FROM spaces WHERE id = current_setting(''mica.space'', true)))', walled
        );
        PERFORM estimate(walled);
    END LOOP;
END
$$;

-- Admitting a role lets it learn, too.
ALTER FUNCTION admit(regrole) RENAME TO admit_to_vectors;
CREATE FUNCTION admit(role regrole) RETURNS void LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM admit_to_vectors(role);
    EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON trails, lessons TO %s', role);
END
$$;
REVOKE EXECUTE ON FUNCTION admit FROM PUBLIC;

-- Background work that several servers share: each piece is done by one of them at a time.
CREATE TABLE work (
    space integer NOT NULL,
    kind text COLLATE "C" NOT NULL,
    about text COLLATE "C" NOT NULL,
    due_at bigint NOT NULL,
    again_at bigint,                                     -- planned once more while somebody held it
    claim text COLLATE "C",                              -- the name of the claim that holds it
    owner text COLLATE "C",
    held_until bigint,                                   -- by the clock of this server
    PRIMARY KEY (space, kind, about),
    CHECK ((claim IS NULL) = (owner IS NULL) AND (claim IS NULL) = (held_until IS NULL))
);
CREATE INDEX work_by_due ON work (space, due_at);

ALTER TABLE work ENABLE ROW LEVEL SECURITY;
ALTER TABLE work FORCE ROW LEVEL SECURITY;
CREATE POLICY wall ON work
    USING (space = (SELECT number FROM spaces WHERE id = current_setting('mica.space', true)));

-- What a role needs that does not own the schema. The owner calls it: SELECT mica.admit('app').
CREATE OR REPLACE FUNCTION admit(role regrole) RETURNS void LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    EXECUTE format('GRANT USAGE ON SCHEMA %I TO %s', current_schema(), role);
    EXECUTE format('GRANT SELECT ON migrations TO %s', role);
    EXECUTE format(
        'GRANT SELECT, INSERT (id, name, created_at), UPDATE (last_position) ON spaces TO %s', role
    );
    EXECUTE format(
        'GRANT SELECT, INSERT ON writers, names, sessions, contexts, payloads, keys, events, terms TO %s', role
    );
    EXECUTE format('GRANT SELECT, INSERT, DELETE ON texts, postings TO %s', role);
    EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON work TO %s', role);
    EXECUTE format('GRANT EXECUTE ON FUNCTION make_month TO %s', role);
END
$$;

-- What the planner is to believe, however old or odd its statistics: that space and time tell nothing, and a position
-- leads to one row. Else it takes a space that has grown since for empty, and any index, or none, for as good as the one
-- that leads to the very row; a thousand lookups then read the whole space a thousand times.
CREATE FUNCTION estimate(walled text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    told text;
BEGIN
    FOR told IN SELECT attname FROM pg_attribute
        WHERE attrelid = walled::regclass AND attname IN ('space', 'at', 'position') AND NOT attisdropped
    LOOP
        EXECUTE format(
            'ALTER TABLE %1$I ALTER COLUMN %2$I SET (n_distinct = %3$s, n_distinct_inherited = %3$s)',
            walled, told, CASE told WHEN 'position' THEN -1 ELSE 1 END
        );
    END LOOP;
END
$$;
REVOKE EXECUTE ON FUNCTION estimate FROM PUBLIC;
DO $$
BEGIN
    PERFORM estimate(relname) FROM pg_class
    WHERE relnamespace = current_schema()::regnamespace AND relkind IN ('r', 'p')
        AND relname NOT IN ('migrations', 'spaces');
END
$$;
ALTER TABLE texts ALTER COLUMN is_mark SET STATISTICS 0;  -- there may be marks where there was none

CREATE OR REPLACE FUNCTION make_month(month date) RETURNS void LANGUAGE plpgsql SECURITY DEFINER
    SET search_path FROM CURRENT AS $$
DECLARE
    first timestamp := date_trunc('month', month::timestamp);
    partition text := to_char(month, '"events_"YYYY"_"MM');
BEGIN
    IF month < date '2020-01-01' OR month >= date '2050-01-01' THEN
        RETURN;
    END IF;
    PERFORM pg_advisory_xact_lock(hashtext(current_schema() || '.events'));
    IF to_regclass(partition) IS NOT NULL THEN
        RETURN;
    END IF;
    -- Attaching, unlike CREATE TABLE … PARTITION OF, lets others go on reading and appending.
    EXECUTE format('CREATE TABLE %I (LIKE events INCLUDING ALL)', partition);
    PERFORM estimate(partition);
    EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', partition);
    EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', partition);
    EXECUTE format(
        'ALTER TABLE events ATTACH PARTITION %I FOR VALUES FROM (%s) TO (%s)', partition,
        (extract(epoch FROM first) * 1000000)::bigint,
        (extract(epoch FROM first + interval '1 month') * 1000000)::bigint
    );
END
$$;

-- Beliefs, learned from the log. `mica upkeep rebuild` and the purge of an event delete them; they are learned again.
CREATE TABLE beliefs (
    space integer NOT NULL,
    id text COLLATE "C" NOT NULL,
    kind text COLLATE "C" NOT NULL,
    state text COLLATE "C" NOT NULL,
    session bytea,                                       -- digest of the session of the first statement
    last_at bigint NOT NULL,                             -- time of the latest evidence
    belief bytea NOT NULL,                               -- as JSON
    PRIMARY KEY (space, id)
);
CREATE INDEX beliefs_by_state ON beliefs (space, state, kind, last_at DESC, id);
CREATE INDEX beliefs_by_session ON beliefs (space, session, last_at DESC, id) WHERE session IS NOT NULL;

CREATE TABLE belief_keys (                               -- of beliefs that are not ended
    space integer NOT NULL,
    belief text COLLATE "C" NOT NULL,
    key bytea NOT NULL,                                  -- digest of an identifier or a term of its subject
    last_at bigint NOT NULL,                             -- of the belief
    PRIMARY KEY (space, belief, key)
);
CREATE INDEX belief_keys_by_key ON belief_keys (space, key, last_at DESC, belief);

CREATE TABLE belief_evidence (
    space integer NOT NULL,
    belief text COLLATE "C" NOT NULL,
    event text COLLATE "C" NOT NULL,                     -- the id of an event that supports it
    PRIMARY KEY (space, belief, event)
);
CREATE INDEX belief_evidence_by_event ON belief_evidence (space, event, belief);

CREATE TABLE belief_lessons (
    space integer PRIMARY KEY,
    position bigint NOT NULL                             -- the log position up to which beliefs were learned
);

DO $$
DECLARE
    each_table text;
BEGIN
    FOREACH each_table IN ARRAY ARRAY['beliefs', 'belief_keys', 'belief_evidence', 'belief_lessons'] LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', each_table);
        EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', each_table);
        EXECUTE format(
            'CREATE POLICY wall ON %I
            USING (space = (SELECT number FROM spaces WHERE id = current_setting(''mica.space'', true)))', each_table
        );
        PERFORM estimate(each_table);
    END LOOP;
END
$$;

-- Grants a role that does not own the schema the rights it needs. The owner calls it: SELECT mica.admit('app').
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
    EXECUTE format('GRANT UPDATE (generation) ON spaces TO %s', role);
    EXECUTE format('GRANT SELECT, INSERT ON purges TO %s', role);
    EXECUTE format('GRANT SELECT, INSERT, DELETE ON authority TO %s', role);
    EXECUTE format('GRANT UPDATE (name, context, data, payload, error) ON events TO %s', role);
    EXECUTE format('GRANT DELETE ON names, sessions, contexts, payloads, terms TO %s', role);
    EXECUTE format('GRANT SELECT, INSERT, DELETE ON crystals, crystal_sources, retractions TO %s', role);
    EXECUTE format('GRANT UPDATE (superseded_by) ON crystals TO %s', role);
    EXECUTE format('GRANT UPDATE (is_live) ON crystal_sources TO %s', role);
    EXECUTE format('GRANT UPDATE (is_mark) ON texts TO %s', role);
    EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON vectors TO %s', role);
    EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON trails, lessons TO %s', role);
    EXECUTE format(
        'GRANT SELECT, INSERT, UPDATE, DELETE ON beliefs, belief_keys, belief_evidence, belief_lessons TO %s', role
    );
    EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON replies TO %s', role);
END
$$;

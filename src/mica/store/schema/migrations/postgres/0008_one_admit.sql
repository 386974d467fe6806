-- One function grants all rights, in place of a chain of six.
DROP FUNCTION admit(regrole);
DROP FUNCTION admit_to_trails(regrole);
DROP FUNCTION admit_to_vectors(regrole);
DROP FUNCTION admit_to_crystals(regrole);
DROP FUNCTION admit_to_purge(regrole);
DROP FUNCTION admit_to_log(regrole);

-- Grants a role that does not own the schema the rights it needs. The owner calls it: SELECT mica.admit('app').
CREATE FUNCTION admit(role regrole) RETURNS void LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
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
    EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON replies TO %s', role);
END
$$;
REVOKE EXECUTE ON FUNCTION admit FROM PUBLIC;

DROP FUNCTION estimate(text);
CREATE FUNCTION estimate(of_table text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    of_column text;
BEGIN
    FOR of_column IN SELECT attname FROM pg_attribute
        WHERE attrelid = of_table::regclass AND attname IN ('space', 'at', 'position') AND NOT attisdropped
    LOOP
        EXECUTE format(
            'ALTER TABLE %1$I ALTER COLUMN %2$I SET (n_distinct = %3$s, n_distinct_inherited = %3$s)',
            of_table, of_column, CASE of_column WHEN 'position' THEN -1 ELSE 1 END
        );
    END LOOP;
END
$$;
REVOKE EXECUTE ON FUNCTION estimate FROM PUBLIC;

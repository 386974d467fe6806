-- Purge: content goes, a tombstone stays.

ALTER TABLE spaces ADD COLUMN generation bigint NOT NULL DEFAULT 0;      -- grows with every purge: forget what is cached

-- Purges that are applied to whatever arrives later. They hold digests, never the text that was purged.
CREATE TABLE purges (
    space integer NOT NULL,
    id text COLLATE "C" NOT NULL,                        -- of the event that records it
    purge bytea NOT NULL,                                -- JSON
    PRIMARY KEY (space, id)
);

-- The triggers let work pass that has its row here. It exists only inside the transaction that needs it.
CREATE TABLE authority (
    space integer NOT NULL,
    work text COLLATE "C" NOT NULL,
    at bigint NOT NULL,
    PRIMARY KEY (space, work)
);

CREATE INDEX events_by_payload ON events (space, payload) WHERE payload IS NOT NULL;

-- An event is never changed, except that a purge leaves a tombstone in its place.
CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND EXISTS (SELECT FROM authority WHERE space = OLD.space AND work = 'purge')
        AND (NEW.space, NEW.position, NEW.writer, NEW.sequence, NEW.at, NEW.root_writer, NEW.root_sequence,
            NEW.parent_writer, NEW.parent_sequence, NEW.depth, NEW.origin) IS NOT DISTINCT FROM
            (OLD.space, OLD.position, OLD.writer, OLD.sequence, OLD.at, OLD.root_writer, OLD.root_sequence,
            OLD.parent_writer, OLD.parent_sequence, OLD.depth, OLD.origin)
        AND NEW.name = (SELECT id FROM names WHERE space = OLD.space AND name = 'event.purged')
    THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION 'events are never %', TG_ARGV[0] USING ERRCODE = 'restrict_violation';
END
$$;

-- Nor is what events refer to, except by a purge.
CREATE FUNCTION refuse_unless_purged() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF EXISTS (SELECT FROM authority WHERE space = OLD.space AND work = 'purge') THEN
        RETURN OLD;
    END IF;
    RAISE EXCEPTION '% are never removed', TG_TABLE_NAME USING ERRCODE = 'restrict_violation';
END
$$;

DO $$
DECLARE
    walled text;
BEGIN
    FOREACH walled IN ARRAY ARRAY['purges', 'authority'] LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', walled);
        EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', walled);
        EXECUTE format(
            'CREATE POLICY wall ON %I
            USING (space = (SELECT number FROM spaces WHERE id = current_setting(''mica.space'', true)))', walled
        );
        PERFORM estimate(walled);
    END LOOP;
    FOREACH walled IN ARRAY ARRAY['names', 'sessions', 'contexts', 'payloads', 'terms'] LOOP
        EXECUTE format(
            'CREATE TRIGGER %I BEFORE DELETE ON %I FOR EACH ROW EXECUTE FUNCTION refuse_unless_purged()',
            walled || '_are_kept', walled
        );
    END LOOP;
END
$$;

-- Admitting a role lets it purge, too.
ALTER FUNCTION admit(regrole) RENAME TO admit_to_log;
CREATE FUNCTION admit(role regrole) RETURNS void LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM admit_to_log(role);
    EXECUTE format('GRANT UPDATE (generation) ON spaces TO %s', role);
    EXECUTE format('GRANT SELECT, INSERT ON purges TO %s', role);
    EXECUTE format('GRANT SELECT, INSERT, DELETE ON authority TO %s', role);
    EXECUTE format('GRANT UPDATE (name, context, data, payload, error) ON events TO %s', role);
    EXECUTE format('GRANT DELETE ON names, sessions, contexts, payloads, terms TO %s', role);
END
$$;
REVOKE EXECUTE ON FUNCTION admit FROM PUBLIC;

-- The logs of many spaces, and the indexes and tables derived from them. Times are microseconds since 1970 in UTC.
-- Words from users may contain NUL, which text cannot, so they are stored as UTF-8 in bytea, which sorts by code point.

CREATE TABLE migrations (
    version integer PRIMARY KEY,
    applied_at timestamptz NOT NULL DEFAULT now()
);

-- One row per space. An append locks it until the commit, so that positions become visible in order.
CREATE TABLE spaces (
    number integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id text COLLATE "C" NOT NULL UNIQUE,                 -- the value of `mica.space`; cannot be guessed
    name text COLLATE "C" NOT NULL UNIQUE,
    role regrole NOT NULL DEFAULT quote_ident(current_user)::regrole,   -- this role and its members may enter
    created_at bigint NOT NULL,
    last_position bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50);                                -- room for the new row version of every append

-- Interned words: each is stored once, and events refer to it by number.
CREATE TABLE writers (
    space integer NOT NULL,
    id integer GENERATED ALWAYS AS IDENTITY,
    name text COLLATE "C" NOT NULL,
    PRIMARY KEY (space, id),
    UNIQUE (space, name)
);
CREATE TABLE names (
    space integer NOT NULL,
    id integer GENERATED ALWAYS AS IDENTITY,
    name text COLLATE "C" NOT NULL,
    PRIMARY KEY (space, id),
    UNIQUE (space, name)
);
CREATE TABLE sessions (
    space integer NOT NULL,
    id integer GENERATED ALWAYS AS IDENTITY,
    name bytea NOT NULL,
    PRIMARY KEY (space, id),
    UNIQUE (space, name)
);

CREATE TABLE contexts (
    space integer NOT NULL,
    id integer GENERATED ALWAYS AS IDENTITY,
    digest bytea NOT NULL,                               -- of the content, so that equal contexts share a row
    session integer,
    agent bytea,
    "user" bytea,
    task bytea,
    correlation bytea,
    labels text NOT NULL,                                -- JSON, pairs in order
    PRIMARY KEY (space, id),
    UNIQUE (space, digest)
);
CREATE INDEX contexts_by_session ON contexts (space, session);
CREATE INDEX contexts_by_agent ON contexts (space, agent) WHERE agent IS NOT NULL;
CREATE INDEX contexts_by_user ON contexts (space, "user") WHERE "user" IS NOT NULL;
CREATE INDEX contexts_by_correlation ON contexts (space, correlation) WHERE correlation IS NOT NULL;

-- The data of events that is too large for their rows, stored once by content.
CREATE TABLE payloads (
    space integer NOT NULL,
    digest bytea NOT NULL,                               -- of the JSON before compression
    size_bytes bigint NOT NULL,
    body bytea NOT NULL,                                 -- the JSON as one zstd frame
    PRIMARY KEY (space, digest)
);
ALTER TABLE payloads ALTER COLUMN body SET STORAGE EXTERNAL;   -- compressed already

-- Position and time of each event, by its id. This is a table of its own because a unique key of a partitioned table
-- must contain the time, and an id does not contain it.
CREATE TABLE keys (
    space integer NOT NULL,
    writer integer NOT NULL,
    sequence bigint NOT NULL,
    position bigint NOT NULL,
    at bigint NOT NULL,
    PRIMARY KEY (space, writer, sequence),
    UNIQUE (space, position)
);

-- No foreign keys: they would double the time of an append, and triggers prevent deletion of referenced rows anyway.
CREATE TABLE events (
    space integer NOT NULL,
    position bigint NOT NULL,                            -- in commit order, without gaps
    writer integer NOT NULL,
    sequence bigint NOT NULL,
    name integer NOT NULL,
    at bigint NOT NULL,
    context integer NOT NULL,
    root_writer integer NOT NULL,
    root_sequence bigint NOT NULL,
    parent_writer integer,
    parent_sequence bigint,
    depth bigint NOT NULL,
    origin smallint NOT NULL,                            -- index into `ORIGINS` of mica.model.event
    error boolean NOT NULL,
    data bytea,                                          -- JSON; NULL if the data is stored as a payload
    payload bytea,                                       -- the digest of that payload
    PRIMARY KEY (space, at, position),
    CHECK ((data IS NULL) <> (payload IS NULL)),
    CHECK ((parent_writer IS NULL) = (parent_sequence IS NULL)),
    CHECK (NOT (parent_writer = writer AND parent_sequence = sequence))
) PARTITION BY RANGE (at);
CREATE INDEX events_by_context ON events (space, context, at);
CREATE INDEX events_by_name ON events (space, name, at);
CREATE INDEX events_by_root ON events (space, root_writer, root_sequence);
CREATE INDEX events_by_parent ON events (space, parent_writer, parent_sequence) WHERE parent_writer IS NOT NULL;

-- The row type in which an append sends events.
CREATE TYPE event_row AS (
    position bigint,
    writer integer,
    sequence bigint,
    name integer,
    at bigint,
    context integer,
    root_writer integer,
    root_sequence bigint,
    parent_writer integer,
    parent_sequence bigint,
    depth bigint,
    origin smallint,
    error boolean,
    data bytea,
    payload bytea
);

-- One partition per month from 2020 to 2049, and one each for earlier and later times. The limits prevent thousands of
-- partitions from wrong clocks. A DEFAULT partition would be locked and scanned whenever a month is created.
CREATE TABLE events_earlier PARTITION OF events FOR VALUES FROM (MINVALUE) TO (1577836800000000);   -- 2020-01-01
CREATE TABLE events_later PARTITION OF events FOR VALUES FROM (2524608000000000) TO (MAXVALUE);     -- 2050-01-01

-- Sets fixed planner estimates for a table, independent of the statistics: space and time are not selective, and a
-- position selects one row. Otherwise the planner assumes that a space that has grown since the last ANALYZE is empty,
-- and may choose any index or none; a thousand lookups then read the whole space a thousand times.
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

-- Creates the partition of events for a month, unless it exists.
CREATE FUNCTION make_month(month date) RETURNS void LANGUAGE plpgsql SECURITY DEFINER
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

-- Events are never changed or removed; see below for the exception of purges.
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'events are never %', TG_ARGV[0] USING ERRCODE = 'restrict_violation';
END
$$;
CREATE TRIGGER events_are_immutable BEFORE UPDATE ON events FOR EACH ROW EXECUTE FUNCTION refuse('changed');
CREATE TRIGGER events_are_kept BEFORE DELETE ON events FOR EACH ROW EXECUTE FUNCTION refuse('removed');

-- The full-text index, derived from events; `mica upkeep rebuild` recreates it.
CREATE TABLE texts (
    space integer NOT NULL,
    position bigint NOT NULL,
    session integer,
    at bigint NOT NULL,
    length integer NOT NULL,                             -- in words
    is_mark boolean NOT NULL,
    PRIMARY KEY (space, position)
);
CREATE INDEX texts_by_session ON texts (space, session, at, position) WHERE is_mark;
CREATE INDEX texts_by_length ON texts (space, length) WHERE is_mark;

CREATE TABLE terms (
    space integer NOT NULL,
    id integer GENERATED ALWAYS AS IDENTITY,
    name text COLLATE "C" NOT NULL,
    PRIMARY KEY (space, id),
    UNIQUE (space, name)
);
CREATE TABLE postings (
    space integer NOT NULL,
    term integer NOT NULL,
    position bigint NOT NULL,
    count integer NOT NULL,
    PRIMARY KEY (space, term, position)
);

-- Background work that several processes share: each piece is held by one of them at a time.
CREATE TABLE work (
    space integer NOT NULL,
    kind text COLLATE "C" NOT NULL,
    about text COLLATE "C" NOT NULL,
    due_at bigint NOT NULL,
    again_at bigint,                                     -- planned again while a process held it
    claim text COLLATE "C",                              -- the id of the claim that holds it
    owner text COLLATE "C",
    held_until bigint,                                   -- by the clock of this server
    PRIMARY KEY (space, kind, about),
    CHECK ((claim IS NULL) = (owner IS NULL) AND (claim IS NULL) = (held_until IS NULL))
);
CREATE INDEX work_by_due ON work (space, due_at);


-- Row-level security: a statement sees only the rows of the space that its transaction has set in `mica.space`, if the
-- role may enter it; otherwise no rows. Partitions have no policy, because they are accessed only through their table.
ALTER TABLE spaces ENABLE ROW LEVEL SECURITY;            -- not forced, so that the owner can transfer spaces
CREATE POLICY visible ON spaces FOR SELECT USING (pg_has_role(role, 'USAGE'));
CREATE POLICY made ON spaces FOR INSERT WITH CHECK (pg_has_role(role, 'USAGE'));
CREATE POLICY entered ON spaces FOR UPDATE
    USING (id = current_setting('mica.space', true) AND pg_has_role(role, 'USAGE'));

DO $$
DECLARE
    each_table text;
BEGIN
    FOREACH each_table IN ARRAY ARRAY[
        'writers', 'names', 'sessions', 'contexts', 'payloads', 'keys', 'events', 'texts', 'terms', 'postings', 'work'
    ] LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', each_table);
        EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', each_table);
        EXECUTE format(
            'CREATE POLICY wall ON %I
            USING (space = (SELECT number FROM spaces WHERE id = current_setting(''mica.space'', true)))', each_table
        );
    END LOOP;
    FOREACH each_table IN ARRAY ARRAY['events_earlier', 'events_later'] LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', each_table);
        EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', each_table);
    END LOOP;
END
$$;

-- Sets the space that a transaction works in. It fails if the space is missing or belongs to another role, so that an
-- empty result always means that the space has no such rows.
CREATE FUNCTION enter(wanted text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('mica.space', wanted, true);
    IF NOT EXISTS (SELECT FROM spaces WHERE id = wanted) THEN
        RAISE EXCEPTION 'no space % for role %', wanted, current_user USING ERRCODE = 'no_data_found';
    END IF;
END
$$;

REVOKE EXECUTE ON FUNCTION make_month FROM PUBLIC;
REVOKE EXECUTE ON FUNCTION estimate FROM PUBLIC;

DO $$
BEGIN
    PERFORM estimate(relname) FROM pg_class
    WHERE relnamespace = current_schema()::regnamespace AND relkind IN ('r', 'p')
        AND relname NOT IN ('migrations', 'spaces');
END
$$;
ALTER TABLE texts ALTER COLUMN is_mark SET STATISTICS 0;  -- the planner must not assume that there are no marks

-- Purges remove the content of events and leave a tombstone.

ALTER TABLE spaces ADD COLUMN generation bigint NOT NULL DEFAULT 0;   -- grows with every purge, to empty caches

-- Purges that are applied to events that arrive later. They contain digests, never purged text.
CREATE TABLE purges (
    space integer NOT NULL,
    id text COLLATE "C" NOT NULL,                        -- of the event that records it
    purge bytea NOT NULL,                                -- JSON
    PRIMARY KEY (space, id)
);

-- A row here allows a kind of work that triggers refuse otherwise. It exists only inside the transaction that needs it.
CREATE TABLE authority (
    space integer NOT NULL,
    work text COLLATE "C" NOT NULL,
    at bigint NOT NULL,
    PRIMARY KEY (space, work)
);

CREATE INDEX events_by_payload ON events (space, payload) WHERE payload IS NOT NULL;

-- An event is never changed, except that a purge replaces it by a tombstone.
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

-- Rows that events refer to are removed only by a purge.
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
    each_table text;
BEGIN
    FOREACH each_table IN ARRAY ARRAY['purges', 'authority'] LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', each_table);
        EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', each_table);
        EXECUTE format(
            'CREATE POLICY wall ON %I
            USING (space = (SELECT number FROM spaces WHERE id = current_setting(''mica.space'', true)))', each_table
        );
        PERFORM estimate(each_table);
    END LOOP;
    FOREACH each_table IN ARRAY ARRAY['names', 'sessions', 'contexts', 'payloads', 'terms'] LOOP
        EXECUTE format(
            'CREATE TRIGGER %I BEFORE DELETE ON %I FOR EACH ROW EXECUTE FUNCTION refuse_unless_purged()',
            each_table || '_are_kept', each_table
        );
    END LOOP;
END
$$;


-- Crystals, derived from the events that record them. A crystal's sources are written before its own row, which is
-- refused if they break a law.
CREATE TABLE crystals (
    space integer NOT NULL,
    position bigint NOT NULL,                            -- of the log
    level smallint NOT NULL,
    period bytea NOT NULL,
    start_at bigint NOT NULL,
    end_at bigint NOT NULL,
    tokens bigint NOT NULL,
    superseded_by bigint,                                -- the position of the event that superseded or retracted it
    PRIMARY KEY (space, position),
    CHECK (level BETWEEN 0 AND 3),
    CHECK (start_at <= end_at)
);
CREATE INDEX crystals_by_end ON crystals (space, end_at);
CREATE INDEX crystals_by_period ON crystals (space, period);

CREATE TABLE crystal_sources (
    space integer NOT NULL,
    crystal bigint NOT NULL,                             -- the position of the crystal
    source bigint NOT NULL,                              -- the position of the source
    tokens bigint NOT NULL,
    is_live boolean NOT NULL,                            -- its crystal is not superseded and is in the time hierarchy
    PRIMARY KEY (space, crystal, source),
    CHECK (source < crystal)
);
CREATE UNIQUE INDEX crystal_sources_once ON crystal_sources (space, source) WHERE is_live;
CREATE INDEX crystal_sources_by_source ON crystal_sources (space, source);
CREATE INDEX texts_by_time ON texts (space, at, position) WHERE is_mark;   -- for the latest marks without a crystal

-- Retractions, also of events that have not arrived yet.
CREATE TABLE retractions (
    space integer NOT NULL,
    retracted text COLLATE "C" NOT NULL,                 -- the id of a mark or crystal
    position bigint NOT NULL,                            -- of the first retraction
    PRIMARY KEY (space, retracted)
);

-- Refuses a crystal that breaks a law, after its sources were inserted.
CREATE FUNCTION keep_the_laws() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    is_tree boolean := substring(NEW.period FROM 1 FOR 5) = 'tree:'::bytea;
    broken text;
BEGIN
    SELECT CASE
        WHEN count(*) = 0 THEN 'law of provenance: a crystal has sources'
        WHEN bool_or(own.is_live = is_tree)
            THEN 'law of overlap: a crystal seals its sources, unless it covers a tree'
        WHEN NEW.level = 0 AND bool_or(texts.position IS NULL)
            THEN 'law of levels: a session has marks that are there as sources'
        WHEN NEW.level > 0 AND bool_or(below.position IS NULL)
            THEN 'law of levels: sources are live crystals of the level below'
        WHEN min(coalesce(texts.at, below.start_at)) < NEW.start_at OR max(coalesce(texts.at, below.end_at)) > NEW.end_at
            THEN 'law of time: the time of a crystal contains its sources'
        WHEN bool_or(below.tokens <> own.tokens)
            THEN 'law of compression: the tokens of a source are what they were'
        WHEN NEW.tokens <= 0 OR NEW.tokens >= sum(own.tokens)
            THEN 'law of compression: a crystal has fewer tokens than its sources'
    END INTO broken
    FROM crystal_sources AS own
    LEFT JOIN texts ON NEW.level = 0 AND texts.space = own.space AND texts.position = own.source AND texts.is_mark
    LEFT JOIN crystals AS below ON NEW.level > 0 AND below.space = own.space AND below.position = own.source
        AND below.level = NEW.level - 1 AND below.superseded_by IS NULL
    WHERE own.space = NEW.space AND own.crystal = NEW.position;
    IF broken IS NOT NULL THEN
        RAISE EXCEPTION '%', broken USING ERRCODE = 'check_violation';
    END IF;
    RETURN NEW;
END
$$;
CREATE TRIGGER crystals_keep_the_laws BEFORE INSERT ON crystals FOR EACH ROW EXECUTE FUNCTION keep_the_laws();

-- A crystal can be superseded once; its other columns never change.
CREATE FUNCTION refuse_crystal() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND OLD.superseded_by IS NULL AND NEW.superseded_by IS NOT NULL
        AND (NEW.space, NEW.position, NEW.level, NEW.period, NEW.start_at, NEW.end_at, NEW.tokens)
            = (OLD.space, OLD.position, OLD.level, OLD.period, OLD.start_at, OLD.end_at, OLD.tokens)
    THEN
        RETURN NEW;
    END IF;
    IF TG_OP = 'DELETE' AND EXISTS (
        SELECT FROM authority WHERE space = OLD.space AND work IN ('purge', 'rebuild')
    ) THEN
        RETURN OLD;
    END IF;
    RAISE EXCEPTION 'law of immutability: a crystal is %', TG_ARGV[0] USING ERRCODE = 'restrict_violation';
END
$$;
CREATE TRIGGER crystals_are_immutable BEFORE UPDATE ON crystals
    FOR EACH ROW EXECUTE FUNCTION refuse_crystal('superseded, never changed');
CREATE TRIGGER crystals_are_kept BEFORE DELETE ON crystals
    FOR EACH ROW EXECUTE FUNCTION refuse_crystal('never removed');

-- Sources are inserted before their crystal. They never change, except that a superseded crystal has no live sources.
CREATE FUNCTION refuse_source() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF TG_OP = 'INSERT' AND NOT EXISTS (SELECT FROM crystals WHERE space = NEW.space AND position = NEW.crystal) THEN
        RETURN NEW;
    END IF;
    IF TG_OP = 'UPDATE' AND NOT NEW.is_live
        AND (NEW.space, NEW.crystal, NEW.source, NEW.tokens) = (OLD.space, OLD.crystal, OLD.source, OLD.tokens)
        AND EXISTS (
            SELECT FROM crystals WHERE space = OLD.space AND position = OLD.crystal AND superseded_by IS NOT NULL
        )
    THEN
        RETURN NEW;
    END IF;
    IF TG_OP = 'DELETE' AND EXISTS (
        SELECT FROM authority WHERE space = OLD.space AND work IN ('purge', 'rebuild')
    ) THEN
        RETURN OLD;
    END IF;
    RAISE EXCEPTION '%', TG_ARGV[0] USING ERRCODE = 'restrict_violation';
END
$$;
CREATE TRIGGER crystal_sources_come_first BEFORE INSERT ON crystal_sources
    FOR EACH ROW EXECUTE FUNCTION refuse_source('law of immutability: a crystal gets no more sources');
CREATE TRIGGER crystal_sources_are_immutable BEFORE UPDATE ON crystal_sources
    FOR EACH ROW EXECUTE FUNCTION refuse_source('law of immutability: the sources of a crystal never change');
CREATE TRIGGER crystal_sources_are_kept BEFORE DELETE ON crystal_sources
    FOR EACH ROW EXECUTE FUNCTION refuse_source('law of provenance: the sources of a crystal are never removed');

DO $$
DECLARE
    each_table text;
BEGIN
    FOREACH each_table IN ARRAY ARRAY['crystals', 'crystal_sources', 'retractions'] LOOP
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


-- Embedding vectors of marks, a cache: `mica upkeep rebuild` deletes them, and they are computed again.
CREATE TABLE vectors (
    space integer NOT NULL,
    position bigint NOT NULL,
    model text COLLATE "C" NOT NULL,                     -- vectors of different models cannot be compared
    vector bytea NOT NULL,
    PRIMARY KEY (space, position)
);
ALTER TABLE vectors ALTER COLUMN vector SET STORAGE EXTERNAL;   -- vectors do not compress
CREATE INDEX vectors_by_model ON vectors (space, model);
ALTER TABLE vectors ENABLE ROW LEVEL SECURITY;
ALTER TABLE vectors FORCE ROW LEVEL SECURITY;
CREATE POLICY wall ON vectors
    USING (space = (SELECT number FROM spaces WHERE id = current_setting('mica.space', true)));
SELECT estimate('vectors');


-- Trails, learned from the log. `mica upkeep rebuild` and the purge of an event delete them; they are learned again.
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
    position bigint NOT NULL                             -- the log position up to which trails were learned
);

DO $$
DECLARE
    each_table text;
BEGIN
    FOREACH each_table IN ARRAY ARRAY['trails', 'lessons'] LOOP
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


-- A cache of the replies of sources about a concept. Every purge and `mica upkeep rebuild` delete it.
CREATE TABLE replies (
    space integer NOT NULL,
    concept bytea NOT NULL,
    source text COLLATE "C" NOT NULL,
    at bigint NOT NULL,                                  -- time of the request
    position bigint NOT NULL,                            -- of the log at that time; later events may make it stale
    declared text COLLATE "C" NOT NULL,                  -- the declaration of the source at that time
    reply bytea NOT NULL,                                -- as JSON
    PRIMARY KEY (space, concept, source)
);
CREATE INDEX replies_by_age ON replies (space, at);
ALTER TABLE replies ENABLE ROW LEVEL SECURITY;
ALTER TABLE replies FORCE ROW LEVEL SECURITY;
CREATE POLICY wall ON replies
    USING (space = (SELECT number FROM spaces WHERE id = current_setting('mica.space', true)));
SELECT estimate('replies');

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
    EXECUTE format(
        'GRANT SELECT, INSERT, UPDATE, DELETE ON beliefs, belief_keys, belief_evidence, belief_lessons TO %s', role
    );
    EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON replies TO %s', role);
END
$$;
REVOKE EXECUTE ON FUNCTION admit FROM PUBLIC;

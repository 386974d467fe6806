-- Crystals, derived from the events that record them. A crystal's sources are written before its own row, which is
-- refused when they break a law.
CREATE TABLE crystals (
    space integer NOT NULL,
    position bigint NOT NULL,                            -- of the log
    level smallint NOT NULL,
    period bytea NOT NULL,
    start_at bigint NOT NULL,
    end_at bigint NOT NULL,
    tokens bigint NOT NULL,
    superseded_by bigint,                                -- the position of what superseded or retracted it
    PRIMARY KEY (space, position),
    CHECK (level BETWEEN 0 AND 3),
    CHECK (start_at <= end_at)
);
CREATE INDEX crystals_by_end ON crystals (space, end_at);
CREATE INDEX crystals_by_period ON crystals (space, period);

CREATE TABLE crystal_sources (
    space integer NOT NULL,
    crystal bigint NOT NULL,                             -- positions
    source bigint NOT NULL,
    tokens bigint NOT NULL,
    is_live boolean NOT NULL,                            -- of a crystal that is not superseded, and belongs to the hierarchy of time
    PRIMARY KEY (space, crystal, source),
    CHECK (source < crystal)
);
CREATE UNIQUE INDEX crystal_sources_once ON crystal_sources (space, source) WHERE is_live;
CREATE INDEX crystal_sources_by_source ON crystal_sources (space, source);
CREATE INDEX texts_by_time ON texts (space, at, position) WHERE is_mark;   -- the latest that no crystal covers

-- What was retracted, also before it was here.
CREATE TABLE retractions (
    space integer NOT NULL,
    retracted text COLLATE "C" NOT NULL,                 -- the id of a mark or crystal
    position bigint NOT NULL,                            -- of what says so first
    PRIMARY KEY (space, retracted)
);

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

-- A crystal is superseded, once; nothing else of it changes.
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

-- Nor do its sources: they come before it, and seal nothing any more when it is superseded.
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
    walled text;
BEGIN
    FOREACH walled IN ARRAY ARRAY['crystals', 'crystal_sources', 'retractions'] LOOP
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

-- Admitting a role lets it crystallize, too.
ALTER FUNCTION admit(regrole) RENAME TO admit_to_purge;
CREATE FUNCTION admit(role regrole) RETURNS void LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM admit_to_purge(role);
    EXECUTE format('GRANT SELECT, INSERT, DELETE ON crystals, crystal_sources, retractions TO %s', role);
    EXECUTE format('GRANT UPDATE (superseded_by) ON crystals TO %s', role);
    EXECUTE format('GRANT UPDATE (is_live) ON crystal_sources TO %s', role);
    EXECUTE format('GRANT UPDATE (is_mark) ON texts TO %s', role);
END
$$;
REVOKE EXECUTE ON FUNCTION admit FROM PUBLIC;

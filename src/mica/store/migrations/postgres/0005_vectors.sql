-- What a model made of marks. Derived: `mica rebuild` forgets it, and it is made again.
CREATE TABLE vectors (
    space integer NOT NULL,
    position bigint NOT NULL,
    model text COLLATE "C" NOT NULL,                     -- which made it: vectors of two models cannot be compared
    vector bytea NOT NULL,
    PRIMARY KEY (space, position)
);
ALTER TABLE vectors ALTER COLUMN vector SET STORAGE EXTERNAL;   -- noise: compressing it is in vain
CREATE INDEX vectors_by_model ON vectors (space, model);
ALTER TABLE vectors ENABLE ROW LEVEL SECURITY;
ALTER TABLE vectors FORCE ROW LEVEL SECURITY;
CREATE POLICY wall ON vectors
    USING (space = (SELECT number FROM spaces WHERE id = current_setting('mica.space', true)));
SELECT estimate('vectors');

-- Admitting a role lets it keep vectors, too.
ALTER FUNCTION admit(regrole) RENAME TO admit_to_crystals;
CREATE FUNCTION admit(role regrole) RETURNS void LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM admit_to_crystals(role);
    EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON vectors TO %s', role);
END
$$;
REVOKE EXECUTE ON FUNCTION admit FROM PUBLIC;

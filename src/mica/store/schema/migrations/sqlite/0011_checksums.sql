-- Checksums of rows. A row that an earlier version wrote has none; ageing moves such events into blocks, which have.
ALTER TABLE space ADD COLUMN crc INTEGER;
ALTER TABLE events ADD COLUMN crc INTEGER;
ALTER TABLE purges ADD COLUMN crc INTEGER;
ALTER TABLE volumes ADD COLUMN crc INTEGER;
ALTER TABLE vectors ADD COLUMN crc INTEGER;
ALTER TABLE trails ADD COLUMN crc INTEGER;
ALTER TABLE replies ADD COLUMN crc INTEGER;

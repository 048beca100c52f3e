-- What tells this database from others, whatever it is called: whose contents of files there are.
CREATE TABLE database_id (id TEXT NOT NULL);
INSERT INTO database_id VALUES (replace(gen_random_uuid()::text, '-', ''));

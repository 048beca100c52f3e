-- What tells this database from others, wherever its file is: whose contents of files there are.
CREATE TABLE database_id (id TEXT NOT NULL);
INSERT INTO database_id VALUES (lower(hex(randomblob(16))));

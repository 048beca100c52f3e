-- Which process has a task, and how often one took it up; see mail.db.claims.
ALTER TABLE tasks ADD COLUMN node TEXT NOT NULL DEFAULT '';
ALTER TABLE tasks ADD COLUMN epoch INTEGER NOT NULL DEFAULT 0;

-- Which process has a task, and how often one took it up; see mail.db.claims.
ALTER TABLE tasks ADD COLUMN node TEXT NOT NULL DEFAULT '';
ALTER TABLE tasks ADD COLUMN epoch BIGINT NOT NULL DEFAULT 0;
-- The processes that are at work on the database; see mail.db.postgres.nodes.
CREATE TABLE nodes (
    id TEXT PRIMARY KEY,
    host TEXT NOT NULL,
    pid BIGINT NOT NULL,
    version TEXT NOT NULL,
    started_at TIMESTAMP WITH TIME ZONE NOT NULL DEFAULT now(),
    beat_at TIMESTAMP WITH TIME ZONE NOT NULL DEFAULT now()
);

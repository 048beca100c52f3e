-- Which process has a task, and how often one took it up; see mail.db.claims.
ALTER TABLE tasks ADD COLUMN node TEXT NOT NULL DEFAULT '';
ALTER TABLE tasks ADD COLUMN epoch BIGINT NOT NULL DEFAULT 0;
CREATE INDEX tasks_queued ON tasks (swarm_name, caller_role, caller_id, key)
    WHERE is_running AND node = '' AND epoch = 1;
-- The processes that are at work on the database; see mail.db.postgres.nodes.
CREATE TABLE nodes (
    id TEXT PRIMARY KEY,
    host TEXT NOT NULL,
    pid BIGINT NOT NULL,
    version TEXT NOT NULL,
    swarm TEXT NOT NULL,
    started_at TIMESTAMP WITH TIME ZONE NOT NULL DEFAULT now(),
    beat_at TIMESTAMP WITH TIME ZONE NOT NULL DEFAULT now()
);
-- What processes ask of those that have a task; see mail.db.relay.
CREATE TABLE relayed (
    number BIGSERIAL PRIMARY KEY,
    task BIGINT NOT NULL,
    kind TEXT NOT NULL,
    arguments TEXT NOT NULL,
    node TEXT NOT NULL DEFAULT '',
    answer TEXT,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL DEFAULT now()
);
-- What one process does for all, and which; see mail.db.claims.
CREATE TABLE duties (
    name TEXT PRIMARY KEY,
    node TEXT NOT NULL
);
-- What administrators have told one server for all; see mail.db.announcements.
CREATE TABLE announcements (
    swarm TEXT NOT NULL,
    name TEXT NOT NULL,
    value TEXT NOT NULL,
    number BIGSERIAL,
    PRIMARY KEY (swarm, name)
);

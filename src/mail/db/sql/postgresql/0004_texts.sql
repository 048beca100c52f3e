-- Large texts, once per task: what refers to one has @text{mode:hash} in its place, and a space in
-- front of the record. docs/database.md says how to read them.
CREATE TABLE task_texts (
    task BIGINT NOT NULL REFERENCES tasks (key),
    hash TEXT NOT NULL,
    text TEXT NOT NULL,
    PRIMARY KEY (task, hash)
);

-- About how many bytes all records of the task take; commits add to it.
ALTER TABLE tasks ADD COLUMN bytes BIGINT NOT NULL DEFAULT 0;

UPDATE tasks SET bytes =
    (SELECT coalesce(sum(octet_length(payload)), 0) FROM messages WHERE task = tasks.key)
    + (SELECT coalesce(sum(octet_length(event_data) + coalesce(octet_length(description), 0)), 0)
        FROM task_events WHERE task = tasks.key)
    + (SELECT coalesce(sum(octet_length(entries)), 0) * 2 FROM history_entries
        WHERE task = tasks.key);

-- The bytes of event_data and description with the texts put back; NULL in rows made before, which
-- hold them as they are.
ALTER TABLE task_events ADD COLUMN size BIGINT;

ALTER TABLE memories ADD COLUMN size BIGINT NOT NULL DEFAULT 0;

UPDATE memories SET size = octet_length(value);

-- Finds the keys of a task that is deleted.
CREATE INDEX idempotency_by_task ON idempotency (task_id, caller_id) WHERE task_id <> '';

-- How far each kind of deletion by age has come in time; see mail.server.retention.
CREATE TABLE sweeps (
    name TEXT PRIMARY KEY,
    moment TEXT NOT NULL
);

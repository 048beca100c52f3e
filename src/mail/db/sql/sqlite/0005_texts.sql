-- Large texts, once per task: what refers to one has @text{mode:hash} in its place, and a space in
-- front of the record. docs/database.md says how to read them.
CREATE TABLE task_texts (
    id INTEGER PRIMARY KEY,
    task INTEGER NOT NULL REFERENCES tasks (id),
    hash TEXT NOT NULL,
    text TEXT NOT NULL,
    UNIQUE (task, hash)
);

-- About how many bytes all records of the task take; commits add to it.
ALTER TABLE tasks ADD COLUMN bytes INTEGER NOT NULL DEFAULT 0;

UPDATE tasks SET bytes =
    (SELECT coalesce(sum(length(payload)), 0) FROM messages WHERE task = tasks.id)
    + (SELECT coalesce(sum(length(event_data) + length(description)), 0)
        FROM task_events WHERE task = tasks.id)
    + (SELECT coalesce(sum(length(entries)), 0) * 2 FROM history_entries WHERE task = tasks.id);

-- The bytes of event_data and description with the texts put back; NULL in rows made before, which
-- hold them as they are.
ALTER TABLE task_events ADD COLUMN size INTEGER;

ALTER TABLE memories ADD COLUMN size INTEGER NOT NULL DEFAULT 0;

UPDATE memories SET size = length(value);

-- Finds the keys of a task that is deleted.
CREATE INDEX idempotency_by_task ON idempotency (task_id, caller_id) WHERE task_id <> '';

-- How far each kind of deletion by age has come in time; see mail.server.retention.
CREATE TABLE sweeps (
    name TEXT PRIMARY KEY,
    moment TEXT NOT NULL
) WITHOUT ROWID;

-- The open questions of a task, and what it knows of other swarms; see mail.core.runtime.ledger.
-- A task of an earlier version has `ledger` 0 until it is changed: its mail tells of its questions.
CREATE TABLE questions (
    task INTEGER NOT NULL REFERENCES tasks (key),
    number INTEGER NOT NULL,
    kind TEXT NOT NULL,
    asker TEXT NOT NULL,
    asked TEXT NOT NULL,
    ref TEXT NOT NULL,
    record TEXT NOT NULL,
    PRIMARY KEY (task, number)
) WITHOUT ROWID;
ALTER TABLE tasks ADD COLUMN ledger INTEGER NOT NULL DEFAULT 1;
ALTER TABLE tasks ADD COLUMN peering TEXT;
UPDATE tasks SET ledger = 0;

-- The open questions of a task, and what it knows of other swarms; see mail.core.runtime.ledger.
-- A task of an earlier version has `ledger` 0 until it is changed: its mail tells of its questions.
CREATE TABLE questions (
    task BIGINT NOT NULL REFERENCES tasks (key),
    number BIGINT NOT NULL,
    kind TEXT NOT NULL,
    asker TEXT NOT NULL,
    asked TEXT NOT NULL,
    ref TEXT NOT NULL,
    record TEXT NOT NULL,
    PRIMARY KEY (task, number)
);
ALTER TABLE tasks ADD COLUMN ledger SMALLINT NOT NULL DEFAULT 1;
ALTER TABLE tasks ADD COLUMN peering TEXT;
UPDATE tasks SET ledger = 0;

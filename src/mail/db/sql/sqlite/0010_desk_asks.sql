-- Letters of tasks whose senders wait for an answer of a recipient; see mail.db.desk.AskRow.
CREATE TABLE desk_asks (
    swarm_name TEXT NOT NULL,
    letter_id TEXT NOT NULL,
    asked TEXT NOT NULL,
    asker TEXT NOT NULL,
    task_owner TEXT NOT NULL,
    task_id TEXT NOT NULL,
    thread_id TEXT NOT NULL,
    created_at TEXT NOT NULL,
    PRIMARY KEY (swarm_name, letter_id, asked)
) WITHOUT ROWID;

CREATE INDEX desk_asks_by_task ON desk_asks (swarm_name, task_owner, task_id);
CREATE INDEX desk_asks_by_age ON desk_asks (swarm_name, created_at);

CREATE INDEX desk_letters_by_answered ON desk_letters (swarm_name, reply_to) WHERE reply_to <> '';

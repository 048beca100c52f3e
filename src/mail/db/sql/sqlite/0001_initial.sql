-- The first schema. tasks, task_events, task_responses and agent_histories carry the documented
-- names and columns; what stands below the blank line in each is ours.
-- Wide, append-only rows are rowid tables with a slim index on the integer task key: a commit then
-- dirties the tail page of each, whatever number of tasks is active. States carry no CHECK: a list
-- of more than two costs a fifth of a commit's work, and only enumerations get in.

CREATE TABLE tasks (
    id INTEGER PRIMARY KEY,
    task_id TEXT NOT NULL,
    swarm_name TEXT NOT NULL,
    caller_role TEXT NOT NULL,
    caller_id TEXT NOT NULL,
    task_owner TEXT NOT NULL,
    task_contributors TEXT NOT NULL DEFAULT '[]',
    remote_swarms TEXT NOT NULL DEFAULT '[]',
    is_running INTEGER NOT NULL DEFAULT 0,
    completed INTEGER NOT NULL DEFAULT 0,
    start_time TEXT NOT NULL,
    created_at TEXT NOT NULL,
    updated_at TEXT NOT NULL,

    state TEXT NOT NULL,
    entrypoint TEXT NOT NULL,
    steps INTEGER NOT NULL,
    max_steps INTEGER,
    awaited INTEGER NOT NULL,
    finish_asked INTEGER NOT NULL,
    title TEXT,
    next_event INTEGER NOT NULL,
    UNIQUE (swarm_name, caller_role, caller_id, task_id)
);

-- Ends in the rowid, so it lists an owner's tasks newest first without sorting.
CREATE INDEX tasks_by_owner ON tasks (swarm_name, caller_role, caller_id);

-- Small whatever the number of finished tasks: recovery reads it at every start.
CREATE INDEX tasks_running ON tasks (swarm_name, caller_role, caller_id) WHERE is_running = 1;

-- A delivery goes from 'ready' to 'acked' (equally long: the update rewrites no overflow page),
-- 'dead' (reason kept) or 'cancelled'. AUTOINCREMENT: a number is never given out twice.
CREATE TABLE messages (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    task INTEGER NOT NULL REFERENCES tasks (id),
    recipient TEXT NOT NULL,
    tier INTEGER NOT NULL,
    interrupt INTEGER NOT NULL,
    state TEXT NOT NULL,
    attempts INTEGER NOT NULL DEFAULT 0,
    reason TEXT,
    control TEXT,
    payload TEXT NOT NULL
);

CREATE INDEX messages_by_task ON messages (task);

CREATE INDEX messages_ready ON messages (task, tier) WHERE state = 'ready';

-- What is known about the turn under way on a delivery; gone when the turn is done.
CREATE TABLE journal (
    id INTEGER PRIMARY KEY,
    message INTEGER NOT NULL REFERENCES messages (seq),
    key TEXT NOT NULL,
    state TEXT NOT NULL,
    payload TEXT NOT NULL,
    UNIQUE (message, key)
);

-- event_data holds the fields of the kind (JSON), event_id is seq as text, created_at the
-- event's own time.
CREATE TABLE task_events (
    id INTEGER PRIMARY KEY,
    task_id TEXT NOT NULL,
    swarm_name TEXT NOT NULL,
    caller_role TEXT NOT NULL,
    caller_id TEXT NOT NULL,
    event_type TEXT,
    event_data TEXT,
    event_id TEXT,
    created_at TEXT NOT NULL,

    task INTEGER NOT NULL REFERENCES tasks (id),
    seq INTEGER NOT NULL,
    description TEXT NOT NULL
);

CREATE UNIQUE INDEX task_events_by_task ON task_events (task, seq);

CREATE TABLE task_responses (
    id INTEGER PRIMARY KEY,
    task_id TEXT NOT NULL,
    swarm_name TEXT NOT NULL,
    caller_role TEXT NOT NULL,
    caller_id TEXT NOT NULL,
    response TEXT NOT NULL,
    created_at TEXT NOT NULL,

    task INTEGER NOT NULL UNIQUE REFERENCES tasks (id)
);

-- The truth about histories: what each commit added (a JSON list).
CREATE TABLE history_entries (
    id INTEGER PRIMARY KEY,
    task INTEGER NOT NULL REFERENCES tasks (id),
    agent TEXT NOT NULL,
    entries TEXT NOT NULL
);

CREATE INDEX history_entries_by_agent ON history_entries (task, agent);

-- The documented whole history of an agent as it was at the task's last pause or end.
-- through is the last history_entries row in it.
CREATE TABLE agent_histories (
    id INTEGER PRIMARY KEY,
    swarm_name TEXT NOT NULL,
    caller_role TEXT NOT NULL,
    caller_id TEXT NOT NULL,
    tool_format TEXT NOT NULL CHECK (tool_format IN ('completions', 'responses')),
    task_id TEXT NOT NULL,
    agent_name TEXT NOT NULL,
    history TEXT NOT NULL,
    created_at TEXT NOT NULL,
    updated_at TEXT NOT NULL,

    task INTEGER NOT NULL REFERENCES tasks (id),
    through INTEGER NOT NULL,
    UNIQUE (task, agent_name)
);

CREATE TABLE calls (
    id INTEGER PRIMARY KEY,
    task INTEGER NOT NULL REFERENCES tasks (id),
    agent TEXT NOT NULL,
    call_id TEXT NOT NULL,
    call TEXT NOT NULL,
    shown TEXT NOT NULL,
    answer TEXT,
    UNIQUE (task, agent, call_id)
);

-- namespace is a JSON list, so a namespace's descendants are one range of the key.
CREATE TABLE memories (
    swarm_name TEXT NOT NULL,
    caller_role TEXT NOT NULL,
    caller_id TEXT NOT NULL,
    namespace TEXT NOT NULL,
    key TEXT NOT NULL,
    value TEXT NOT NULL,
    created_at TEXT NOT NULL,
    updated_at TEXT NOT NULL,
    PRIMARY KEY (swarm_name, caller_role, caller_id, namespace, key)
) WITHOUT ROWID;

CREATE TABLE tokens (
    id INTEGER PRIMARY KEY,
    token_hash TEXT NOT NULL UNIQUE,
    role TEXT NOT NULL,
    caller_id TEXT NOT NULL,
    label TEXT NOT NULL,
    created_at TEXT NOT NULL,
    expires_at TEXT,
    revoked_at TEXT
);

-- Versions of named memories, and the feedback that teaches them; see mail.db.preferences.
CREATE TABLE memory_versions (
    swarm_name TEXT NOT NULL,
    caller_role TEXT NOT NULL,
    caller_id TEXT NOT NULL,
    name TEXT NOT NULL,
    version INTEGER NOT NULL,
    value TEXT NOT NULL,
    created_at TEXT NOT NULL,
    source TEXT NOT NULL,
    approval_id TEXT NOT NULL,
    task_id TEXT NOT NULL,
    PRIMARY KEY (swarm_name, caller_role, caller_id, name, version)
) WITHOUT ROWID;

CREATE TABLE memory_feedback (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    swarm_name TEXT NOT NULL,
    caller_role TEXT NOT NULL,
    caller_id TEXT NOT NULL,
    approval_id TEXT NOT NULL,
    memory TEXT NOT NULL,
    task_id TEXT NOT NULL,
    type TEXT NOT NULL,
    action TEXT NOT NULL,
    args TEXT NOT NULL,
    change TEXT NOT NULL,
    task_text TEXT NOT NULL,
    created_at TEXT NOT NULL,
    state TEXT NOT NULL,
    attempts INTEGER NOT NULL,
    next_at TEXT NOT NULL,
    reason TEXT NOT NULL,
    rejections TEXT NOT NULL,
    updated_at TEXT NOT NULL
);

CREATE UNIQUE INDEX memory_feedback_by_memory
    ON memory_feedback (swarm_name, caller_role, caller_id, memory, approval_id);
CREATE INDEX memory_feedback_by_task
    ON memory_feedback (swarm_name, caller_role, caller_id, task_id);
CREATE INDEX memory_feedback_waiting
    ON memory_feedback (swarm_name, caller_role, caller_id, memory, id) WHERE state = 'waiting';

-- Idempotency keys that callers have used. A run is known by its task and its first event; answer is
-- what else a repeat of the request needs (JSON). Rows go when they are old: see created_at.
CREATE TABLE idempotency (
    id INTEGER PRIMARY KEY,
    swarm_name TEXT NOT NULL,
    caller_role TEXT NOT NULL,
    caller_id TEXT NOT NULL,
    key TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    created_at TEXT NOT NULL,
    task_id TEXT NOT NULL,
    first_event INTEGER NOT NULL,
    message_id TEXT NOT NULL,
    answer TEXT,
    UNIQUE (swarm_name, caller_role, caller_id, key)
);

CREATE INDEX idempotency_by_age ON idempotency (created_at);

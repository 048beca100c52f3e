-- Messages to the webhook; see mail.db.webhooks.WebhookRow.
CREATE TABLE webhooks (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    swarm_name TEXT NOT NULL,
    message_id TEXT NOT NULL,
    event TEXT NOT NULL,
    task_id TEXT NOT NULL,
    owner TEXT NOT NULL,
    body TEXT NOT NULL,
    created_at TEXT NOT NULL,
    state TEXT NOT NULL,
    attempts INTEGER NOT NULL,
    next_at TEXT NOT NULL,
    last_error TEXT NOT NULL
);

CREATE INDEX webhooks_by_swarm ON webhooks (swarm_name, id);
CREATE INDEX webhooks_waiting ON webhooks (swarm_name, next_at) WHERE state = 'waiting';

-- Messages to the webhook; see mail.db.webhooks.WebhookRow.
CREATE TABLE webhooks (
    id BIGINT PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    swarm_name TEXT NOT NULL,
    message_id TEXT NOT NULL,
    event TEXT NOT NULL,
    task_id TEXT NOT NULL,
    owner TEXT NOT NULL,
    body TEXT NOT NULL,
    created_at TEXT COLLATE "C" NOT NULL,
    state TEXT NOT NULL,
    attempts BIGINT NOT NULL,
    next_at TEXT COLLATE "C" NOT NULL,
    last_error TEXT NOT NULL
);

CREATE INDEX webhooks_by_swarm ON webhooks (swarm_name, id);
CREATE INDEX webhooks_waiting ON webhooks (swarm_name, next_at) WHERE state = 'waiting';

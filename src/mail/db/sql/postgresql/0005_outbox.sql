-- Mail for other swarms, until nothing more is expected of it: 'waiting', 'delivered' (a request
-- whose answer is awaited) or 'dead'.
CREATE TABLE outbox (
    id BIGINT PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    task BIGINT NOT NULL REFERENCES tasks (key),
    peer TEXT NOT NULL,
    message_id TEXT NOT NULL,
    sender TEXT NOT NULL,
    kind TEXT NOT NULL,
    ref TEXT NOT NULL,
    wrapper TEXT NOT NULL,
    created_at TEXT COLLATE "C" NOT NULL,
    state TEXT NOT NULL,
    attempts BIGINT NOT NULL,
    next_at TEXT COLLATE "C" NOT NULL,
    last_error TEXT NOT NULL,
    told BOOLEAN NOT NULL
);

CREATE INDEX outbox_by_task ON outbox (task, id);

-- Tells the first of each task and peer.
CREATE INDEX outbox_waiting ON outbox (task, peer, id) WHERE state = 'waiting';

-- Mail of other swarms that was taken, and what they were answered. Rows go when they are old.
CREATE TABLE inbox (
    id BIGINT PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    swarm_name TEXT NOT NULL,
    peer TEXT NOT NULL,
    message_id TEXT NOT NULL,
    receipt TEXT NOT NULL,
    created_at TEXT COLLATE "C" NOT NULL,
    UNIQUE (swarm_name, peer, message_id)
);

CREATE INDEX inbox_by_age ON inbox (created_at);

-- Mail for other swarms, until nothing more is expected of it: 'waiting', 'delivered' (a request
-- whose answer is awaited) or 'dead'. AUTOINCREMENT: a number is never given out twice.
CREATE TABLE outbox (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    task INTEGER NOT NULL REFERENCES tasks (id),
    peer TEXT NOT NULL,
    message_id TEXT NOT NULL,
    sender TEXT NOT NULL,
    kind TEXT NOT NULL,
    ref TEXT NOT NULL,
    wrapper TEXT NOT NULL,
    created_at TEXT NOT NULL,
    state TEXT NOT NULL,
    attempts INTEGER NOT NULL,
    next_at TEXT NOT NULL,
    last_error TEXT NOT NULL,
    told INTEGER NOT NULL
);

CREATE INDEX outbox_by_task ON outbox (task);

-- Ends in the rowid: it tells the first of each task and peer, without a look at long rows because
-- it has the state, too.
CREATE INDEX outbox_waiting ON outbox (task, peer, state) WHERE state = 'waiting';

-- Mail of other swarms that was taken, and what they were answered. Rows go when they are old.
CREATE TABLE inbox (
    id INTEGER PRIMARY KEY,
    swarm_name TEXT NOT NULL,
    peer TEXT NOT NULL,
    message_id TEXT NOT NULL,
    receipt TEXT NOT NULL,
    created_at TEXT NOT NULL,
    UNIQUE (swarm_name, peer, message_id)
);

CREATE INDEX inbox_by_age ON inbox (created_at);

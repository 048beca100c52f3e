-- Calls that wait for a person; see mail.db.approvals.ApprovalRow.
CREATE TABLE approvals (
    id BIGINT PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    task BIGINT NOT NULL REFERENCES tasks (key),
    approval_id TEXT NOT NULL,
    agent TEXT NOT NULL,
    call_id TEXT NOT NULL,
    kind TEXT NOT NULL,
    status TEXT NOT NULL,
    created_at TEXT COLLATE "C" NOT NULL,
    request TEXT NOT NULL,
    config TEXT NOT NULL,
    approvers TEXT NOT NULL,
    description TEXT NOT NULL,
    expires_at TEXT COLLATE "C" NOT NULL,
    answer TEXT,
    answered_by TEXT NOT NULL,
    answered_at TEXT NOT NULL,
    change BIGINT NOT NULL,
    UNIQUE (task, approval_id)
);

CREATE INDEX approvals_by_id ON approvals (approval_id);
CREATE INDEX approvals_open ON approvals (id) WHERE status = 'open';
CREATE INDEX approvals_due ON approvals (expires_at) WHERE status = 'open' AND expires_at <> '';
CREATE INDEX approvals_by_change ON approvals (change);

-- The number of the latest change of an approval: it only grows.
CREATE TABLE approval_counter (
    value BIGINT NOT NULL
);

INSERT INTO approval_counter (value) VALUES (0);

-- A call and what people are asked about it are one row; see mail.db.calls.CallRow.
ALTER TABLE calls
    ADD COLUMN kind TEXT NOT NULL DEFAULT 'breakpoint',
    ADD COLUMN status TEXT NOT NULL DEFAULT 'open',
    ADD COLUMN approval_id TEXT NOT NULL DEFAULT '',
    ADD COLUMN created_at TEXT COLLATE "C" NOT NULL DEFAULT '',
    ADD COLUMN config TEXT NOT NULL DEFAULT '{}',
    ADD COLUMN approvers TEXT NOT NULL DEFAULT '',
    ADD COLUMN description TEXT NOT NULL DEFAULT '',
    ADD COLUMN expires_at TEXT COLLATE "C" NOT NULL DEFAULT '',
    ADD COLUMN decision TEXT,
    ADD COLUMN decided_by TEXT NOT NULL DEFAULT '',
    ADD COLUMN decided_at TEXT NOT NULL DEFAULT '',
    ADD COLUMN size BIGINT NOT NULL DEFAULT 0,
    ADD COLUMN change BIGINT NOT NULL DEFAULT 0;

UPDATE calls SET
    kind = a.kind, status = a.status, approval_id = a.approval_id, created_at = a.created_at,
    config = a.config, approvers = a.approvers, description = a.description,
    expires_at = a.expires_at, decision = a.answer, decided_by = a.answered_by,
    decided_at = a.answered_at, change = a.change,
    size = octet_length(a.request) + octet_length(a.description)
        + coalesce(octet_length(a.answer), 0)
FROM approvals AS a
WHERE a.task = calls.task AND a.agent = calls.agent AND a.call_id = calls.call_id;

UPDATE calls SET kind = 'wait' WHERE shown = '';
UPDATE calls SET status = 'responded' WHERE approval_id = '' AND answer IS NOT NULL;

DROP TABLE approvals;

CREATE INDEX calls_by_approval ON calls (approval_id) WHERE approval_id <> '';
CREATE INDEX calls_open ON calls (id) WHERE status = 'open' AND approval_id <> '';
CREATE INDEX calls_due ON calls (expires_at, id) WHERE status = 'open' AND expires_at <> '';
CREATE INDEX calls_by_change ON calls (change) WHERE change > 0;

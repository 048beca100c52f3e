-- A call and what people are asked about it are one row; see mail.db.calls.CallRow.
ALTER TABLE calls ADD COLUMN kind TEXT NOT NULL DEFAULT 'breakpoint';
ALTER TABLE calls ADD COLUMN status TEXT NOT NULL DEFAULT 'open';
ALTER TABLE calls ADD COLUMN approval_id TEXT NOT NULL DEFAULT '';
ALTER TABLE calls ADD COLUMN created_at TEXT NOT NULL DEFAULT '';
ALTER TABLE calls ADD COLUMN config TEXT NOT NULL DEFAULT '{}';
ALTER TABLE calls ADD COLUMN approvers TEXT NOT NULL DEFAULT '';
ALTER TABLE calls ADD COLUMN description TEXT NOT NULL DEFAULT '';
ALTER TABLE calls ADD COLUMN expires_at TEXT NOT NULL DEFAULT '';
ALTER TABLE calls ADD COLUMN decision TEXT;
ALTER TABLE calls ADD COLUMN decided_by TEXT NOT NULL DEFAULT '';
ALTER TABLE calls ADD COLUMN decided_at TEXT NOT NULL DEFAULT '';
ALTER TABLE calls ADD COLUMN size INTEGER NOT NULL DEFAULT 0;
ALTER TABLE calls ADD COLUMN change INTEGER NOT NULL DEFAULT 0;

UPDATE calls SET (
    kind, status, approval_id, created_at, config, approvers, description, expires_at,
    decision, decided_by, decided_at, change, size
) = (
    SELECT
        a.kind, a.status, a.approval_id, a.created_at, a.config, a.approvers, a.description,
        a.expires_at, a.answer, a.answered_by, a.answered_at, a.change,
        length(CAST(a.request AS BLOB)) + length(CAST(a.description AS BLOB))
            + coalesce(length(CAST(a.answer AS BLOB)), 0)
    FROM approvals AS a
    WHERE a.task = calls.task AND a.agent = calls.agent AND a.call_id = calls.call_id
    ORDER BY a.id DESC LIMIT 1
)
WHERE EXISTS (
    SELECT 1 FROM approvals AS a
    WHERE a.task = calls.task AND a.agent = calls.agent AND a.call_id = calls.call_id
);

UPDATE calls SET kind = 'wait' WHERE shown = '';
UPDATE calls SET status = 'responded' WHERE approval_id = '' AND answer IS NOT NULL;

DROP TABLE approvals;

CREATE INDEX calls_by_approval ON calls (approval_id) WHERE approval_id <> '';
CREATE INDEX calls_open ON calls (id) WHERE status = 'open' AND approval_id <> '';
CREATE INDEX calls_due ON calls (expires_at, id) WHERE status = 'open' AND expires_at <> '';
CREATE INDEX calls_by_change ON calls (change) WHERE change > 0;

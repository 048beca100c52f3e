-- When a member's thread was last written in, or the member joined; see mail.db.desk.ThreadRow.
ALTER TABLE desk_members ADD COLUMN active_at TEXT COLLATE "C" NOT NULL DEFAULT '';
UPDATE desk_members SET active_at = coalesce((
    SELECT max(l.created_at) FROM desk_letters AS l WHERE l.swarm_name = desk_members.swarm_name
        AND l.thread_id = desk_members.thread_id AND l.thread_id <> ''), joined_at);
DROP INDEX desk_members_by_name;
CREATE INDEX desk_members_by_activity ON desk_members (swarm_name, name, active_at, thread_id);

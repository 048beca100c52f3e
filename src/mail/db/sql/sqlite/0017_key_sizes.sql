-- About how many bytes a key takes. Keys that are there count for nothing until they are dropped.
ALTER TABLE idempotency ADD COLUMN size INTEGER NOT NULL DEFAULT 0;

-- What an owner's keys take together, without a look at their answers.
CREATE INDEX idempotency_sizes ON idempotency (swarm_name, caller_role, caller_id, size);

-- The same names as in PostgreSQL, so that a verb of the store is written once.
ALTER TABLE tasks RENAME COLUMN id TO key;

-- Small whatever the number of finished tasks: recovery reads it at every start.
DROP INDEX tasks_running;
CREATE INDEX tasks_running ON tasks (swarm_name, caller_role, caller_id) WHERE is_running;

-- The documented name.
ALTER TABLE tasks ADD COLUMN id INTEGER GENERATED ALWAYS AS (key) VIRTUAL;

-- Counts the paused tasks for GET /metrics, whatever the number of finished ones.
CREATE INDEX tasks_paused ON tasks (swarm_name) WHERE state = 'paused';

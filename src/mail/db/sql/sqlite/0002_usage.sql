-- What a task's model calls have used so far: a JSON object from agent to counts.
ALTER TABLE tasks ADD COLUMN usage TEXT NOT NULL DEFAULT '{}';

-- What an agent wrote in a task.
CREATE INDEX desk_letters_by_task ON desk_letters (swarm_name, task_owner, task_id, sender)
    WHERE task_id <> '';

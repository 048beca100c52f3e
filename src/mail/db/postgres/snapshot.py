"""The documented ``agent_histories`` rows: whole histories as of a pause or an end (ruling 42)."""

from typing import Final

from mail.db.base import Owner
from mail.db.histories import join_lists, tool_format
from mail.db.postgres.values import Connection, jsonb_text

__all__ = ["update_snapshots"]

_ADDED: Final = """
SELECT agent, entries, e.id FROM history_entries AS e
LEFT JOIN agent_histories AS h ON h.task = e.task AND h.agent_name = e.agent
WHERE e.task = $1 AND e.id > coalesce(h.through, 0) ORDER BY agent, e.id
"""

_PUT: Final = """
INSERT INTO agent_histories (swarm_name, caller_role, caller_id, tool_format, task_id, agent_name,
    history, task, through)
VALUES ($1, $2, $3, coalesce($4, 'completions'), $5, $6, $7, $8, $9)
ON CONFLICT (task, agent_name)
DO UPDATE SET tool_format = coalesce($4, agent_histories.tool_format),
    history = agent_histories.history || excluded.history, updated_at = now(), through = $9
"""


async def update_snapshots(connection: Connection, owner: Owner, task_id: str, task: int) -> None:
    """Bring the rows of those agents up to date whose history has grown."""
    grown: dict[str, list[str]] = {}
    newest: dict[str, int] = {}
    for agent, entries, number in await connection.fetch(_ADDED, task):
        grown.setdefault(agent, []).append(entries)
        newest[agent] = number
    rows = [
        (
            *owner,
            tool_format(added),
            task_id,
            agent,
            jsonb_text(join_lists(added)),
            task,
            newest[agent],
        )
        for agent, added in grown.items()
    ]
    await connection.executemany(_PUT, rows)

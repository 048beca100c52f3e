"""The documented ``agent_histories`` rows: whole histories as of a pause or an end (ruling 42)."""

import sqlite3
from typing import Final

from mail.db.base import Owner
from mail.db.histories import join_lists, tool_format

__all__ = ["update_snapshots"]

_NEWEST: Final = "SELECT agent, max(id) FROM history_entries WHERE task = ? GROUP BY agent"

_THROUGH: Final = "SELECT agent_name, through FROM agent_histories WHERE task = ?"

_SNAPSHOT: Final = """
SELECT tool_format, history FROM agent_histories WHERE task = ? AND agent_name = ?
"""

_ADDED: Final = """
SELECT entries FROM history_entries WHERE task = ? AND agent = ? AND id > ? ORDER BY id
"""

_PUT: Final = """
INSERT INTO agent_histories (swarm_name, caller_role, caller_id, tool_format, task_id, agent_name,
    history, created_at, updated_at, task, through)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?8, ?9, ?10)
ON CONFLICT (task, agent_name)
DO UPDATE SET tool_format = ?4, history = ?7, updated_at = ?8, through = ?10
"""


def update_snapshots(
    cursor: sqlite3.Cursor, owner: Owner, task_id: str, task: int, now: str
) -> None:
    """Bring the rows of those agents up to date whose history has grown."""
    through = dict(cursor.execute(_THROUGH, (task,)).fetchall())
    for agent, newest in cursor.execute(_NEWEST, (task,)).fetchall():
        seen = through.get(agent, 0)
        if newest <= seen:
            continue
        old = cursor.execute(_SNAPSHOT, (task, agent)).fetchone()
        added = [row[0] for row in cursor.execute(_ADDED, (task, agent, seen)).fetchall()]
        shape = tool_format(added) or (old[0] if old else "completions")
        history = join_lists([old[1], *added] if old else added)
        cursor.execute(_PUT, (*owner, shape, task_id, agent, history, now, task, newest))

"""The statements for idempotency keys. Those that write run inside a transaction."""

import sqlite3
from typing import Final

from mail.db.base import IdempotencyRow, Owner
from mail.errors import KeyTaken

__all__ = ["drop_keys", "find_key", "put_key"]

_COLUMNS: Final = "key, fingerprint, created_at, task_id, first_event, message_id, answer"

_FIND: Final = f"""
SELECT {_COLUMNS} FROM idempotency
WHERE swarm_name = ? AND caller_role = ? AND caller_id = ? AND key = ?
"""

_PUT: Final = f"""
INSERT INTO idempotency (swarm_name, caller_role, caller_id, {_COLUMNS})
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING
"""

_DROP: Final = """
DELETE FROM idempotency WHERE id IN (
    SELECT id FROM idempotency WHERE created_at < ? ORDER BY created_at LIMIT ?)
"""


def find_key(connection: sqlite3.Connection, owner: Owner, key: str) -> IdempotencyRow | None:
    """See `mail.db.base.Store.find_key`."""
    row = connection.execute(_FIND, (*owner, key)).fetchone()
    return None if row is None else IdempotencyRow(*row)


def put_key(cursor: sqlite3.Cursor, owner: Owner, row: IdempotencyRow) -> None:
    """See `mail.db.base.Store.put_key`."""
    if cursor.execute(_PUT, (*owner, *row)).rowcount != 1:
        raise KeyTaken


def drop_keys(cursor: sqlite3.Cursor, before: str, limit: int) -> int:
    """See `mail.db.base.Store.drop_keys`."""
    return cursor.execute(_DROP, (before, limit)).rowcount

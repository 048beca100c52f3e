"""The statements for idempotency keys. Those that write run inside a transaction."""

from typing import Final

from mail.db.base import IdempotencyRow, Owner
from mail.db.postgres.values import Connection
from mail.errors import KeyTaken

__all__ = ["drop_keys", "find_key", "put_key"]

_COLUMNS: Final = "key, fingerprint, created_at, task_id, first_event, message_id, answer"

_FIND: Final = f"""
SELECT {_COLUMNS} FROM idempotency
WHERE swarm_name = $1 AND caller_role = $2 AND caller_id = $3 AND key = $4
"""

_PUT: Final = f"""
INSERT INTO idempotency (swarm_name, caller_role, caller_id, {_COLUMNS})
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) ON CONFLICT DO NOTHING RETURNING 1
"""

_DROP: Final = """
WITH dropped AS (
    DELETE FROM idempotency WHERE id = ANY(ARRAY(
        SELECT id FROM idempotency WHERE created_at < $1 ORDER BY created_at LIMIT $2))
    RETURNING 1
)
SELECT count(*) FROM dropped
"""


async def find_key(connection: Connection, owner: Owner, key: str) -> IdempotencyRow | None:
    """See `mail.db.base.Store.find_key`."""
    row = await connection.fetchrow(_FIND, *owner, key)
    return None if row is None else IdempotencyRow(*row)


async def put_key(connection: Connection, owner: Owner, row: IdempotencyRow) -> None:
    """See `mail.db.base.Store.put_key`."""
    if await connection.fetchval(_PUT, *owner, *row) is None:
        raise KeyTaken


async def drop_keys(connection: Connection, before: str, limit: int) -> int:
    """See `mail.db.base.Store.drop_keys`."""
    return int(await connection.fetchval(_DROP, before, limit))

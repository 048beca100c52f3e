"""The idempotency keys that owners have used; a `mail.db.post.Post` may bring one."""

from typing import Final

from mail.db.driver import Change, Query, Verb, Verbs, read, write
from mail.db.records import IdempotencyRow, Owner
from mail.db.rows import OWNED, OWNER_COLUMNS, key_size
from mail.errors import KeyTaken

_COLUMNS: Final = ", ".join(IdempotencyRow._fields)

_PUT: Final = f"""
INSERT INTO idempotency ({OWNER_COLUMNS}, {_COLUMNS}, size)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) ON CONFLICT DO NOTHING
"""

_DROP: Final = """
DELETE FROM idempotency WHERE id IN (
    SELECT id FROM idempotency WHERE created_at < $1 ORDER BY created_at LIMIT $2)
"""


def put_key(owner: Owner, row: IdempotencyRow) -> Verb[None]:
    """Store a key.

    Raises:
        KeyTaken: the owner has used it before.
    """
    if not (yield Change(_PUT, (*owner, *row, key_size(row)))):
        raise KeyTaken


class KeyVerbs(Verbs):
    """Idempotency keys, by owner."""

    @read
    def find_key(self, owner: Owner, key: str) -> Verb[IdempotencyRow | None]:
        """Return what is known of an idempotency key, or None."""
        text = f"SELECT {_COLUMNS} FROM idempotency WHERE {OWNED} AND key = $4"
        rows = yield Query(text, (*owner, key))
        return IdempotencyRow(*rows[0]) if rows else None

    @write
    def put_key(self, owner: Owner, row: IdempotencyRow) -> Verb[None]:
        """Store a key without a commit of a task.

        Raises:
            KeyTaken: the owner has used it before.
        """
        yield from put_key(owner, row)

    @write
    def drop_keys(self, before: str, limit: int) -> Verb[int]:
        """Remove keys, of any owner, that were made before a time; return how many.

        Args:
            before: RFC 3339 text in UTC.
            limit: At most so many, the oldest first.
        """
        return int((yield Change(_DROP, (before, limit))))

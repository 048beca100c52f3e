"""Records found by a key: idempotency keys, access tokens, registries of other swarms.

A `Commit` of a task may bring an idempotency key. Tokens belong to no owner. A registry is in a
store that several servers may share; elsewhere it is a file, see `mail.net.registry_file`: an
SQLite database has no such table.
"""

from typing import Final

from mail.db.driver import Change, Query, Verb, Verbs, read, write
from mail.db.records import IdempotencyRow, Owner, RegistryRow, TokenRow
from mail.db.rows import OWNED, OWNER_COLUMNS, columns, insert
from mail.db.texts import text_size
from mail.errors import KeyTaken, StoreConflict

_KEY: Final = columns(IdempotencyRow)

_PUT_KEY: Final = f"""
{insert("idempotency", OWNER_COLUMNS, _KEY, "size")} ON CONFLICT DO NOTHING
"""


_KEY_BYTES: Final = 300
"""Of an idempotency key's row: its fingerprint, its time, its owner, and these in indexes."""


def key_size(row: IdempotencyRow) -> int:
    """Return about how many bytes an idempotency key takes, which is in an index, too."""
    return _KEY_BYTES + 2 * text_size(row.key) + text_size(row.answer or "")


def put_key(owner: Owner, row: IdempotencyRow) -> Verb[None]:
    """Store a key.

    Raises:
        KeyTaken: the owner has used it before.
    """
    if not (yield Change(_PUT_KEY, (*owner, *row, key_size(row)))):
        raise KeyTaken


class KeyVerbs(Verbs):
    """Idempotency keys, by owner."""

    @read
    def find_key(self, owner: Owner, key: str) -> Verb[IdempotencyRow | None]:
        """Return what is known of an idempotency key, or None."""
        text = f"SELECT {_KEY} FROM idempotency WHERE {OWNED} AND key = $4"
        rows = yield Query(text, (*owner, key))
        return IdempotencyRow(*rows[0]) if rows else None

    @write
    def put_key(self, owner: Owner, row: IdempotencyRow) -> Verb[None]:
        """Store a key without a commit of a task.

        Raises:
            KeyTaken: the owner has used it before.
        """
        yield from put_key(owner, row)


_ACCESS: Final = "token_hash, role, caller_id, created_at, label, expires_at, revoked_at"

_PUT_TOKEN: Final = f"""
{insert("tokens", _ACCESS)}
ON CONFLICT (token_hash) DO UPDATE SET role = excluded.role, caller_id = excluded.caller_id,
    created_at = excluded.created_at, label = excluded.label, expires_at = excluded.expires_at,
    revoked_at = excluded.revoked_at
"""


class TokenVerbs(Verbs):
    """Tokens, by their hashes."""

    @write
    def put_token(self, token: TokenRow) -> Verb[None]:
        """Insert or replace a token by its hash."""
        yield Change(_PUT_TOKEN, token)

    @read
    def find_token(self, token_hash: str) -> Verb[TokenRow | None]:
        """Return a token by its hash, revoked or not, or None."""
        rows = yield Query(f"SELECT {_ACCESS} FROM tokens WHERE token_hash = $1", (token_hash,))
        return TokenRow(*rows[0]) if rows else None

    @read
    def list_tokens(self) -> Verb[list[TokenRow]]:
        """Return all tokens, oldest first."""
        rows = yield Query(f"SELECT {_ACCESS} FROM tokens ORDER BY created_at, id")
        return [TokenRow(*row) for row in rows]


_NEW_REGISTRY: Final = """
INSERT INTO swarm_registry (swarm_name, version, content) VALUES ($1, 1, $2)
ON CONFLICT DO NOTHING RETURNING version
"""

_CHANGE_REGISTRY: Final = """
UPDATE swarm_registry SET version = version + 1, content = $2, updated_at = now()
WHERE swarm_name = $1 AND version = $3 RETURNING version
"""


class RegistryVerbs(Verbs):
    """Registries of other swarms, by local swarm."""

    @read
    def load_registry(self, swarm: str, known: int = 0) -> Verb[RegistryRow | None]:
        """Return a swarm's registry; None without one, or when its version is still ``known``."""
        text = "SELECT version, content FROM swarm_registry WHERE swarm_name = $1 AND version <> $2"
        rows = yield Query(text, (swarm, known))
        return RegistryRow(*rows[0]) if rows else None

    @write
    def save_registry(self, swarm: str, content: str, version: int) -> Verb[int]:
        """Replace a swarm's registry, and return its new version.

        Args:
            swarm: The local swarm.
            content: Its JSON.
            version: That of the registry that is replaced, 0 if there is none.

        Raises:
            StoreConflict: it has another version by now.
        """
        new = Query(_NEW_REGISTRY, (swarm, content))
        rows = yield (Query(_CHANGE_REGISTRY, (swarm, content, version)) if version else new)
        if not rows:
            raise StoreConflict(f"the registry of '{swarm}' was changed by another process")
        return int(rows[0][0])

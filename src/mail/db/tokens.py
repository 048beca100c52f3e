"""The access tokens of the built-in authority. They belong to no owner."""

from typing import Final

from mail.db.driver import Change, Query, Verb, Verbs, read, write
from mail.db.records import TokenRow

_COLUMNS: Final = "token_hash, role, caller_id, created_at, label, expires_at, revoked_at"

_PUT: Final = f"""
INSERT INTO tokens ({_COLUMNS}) VALUES ($1, $2, $3, $4, $5, $6, $7)
ON CONFLICT (token_hash) DO UPDATE SET role = excluded.role, caller_id = excluded.caller_id,
    created_at = excluded.created_at, label = excluded.label, expires_at = excluded.expires_at,
    revoked_at = excluded.revoked_at
"""


class TokenVerbs(Verbs):
    """Tokens, by their hashes."""

    @write
    def put_token(self, token: TokenRow) -> Verb[None]:
        """Insert or replace a token by its hash."""
        yield Change(_PUT, token)

    @read
    def find_token(self, token_hash: str) -> Verb[TokenRow | None]:
        """Return a token by its hash, revoked or not, or None."""
        rows = yield Query(f"SELECT {_COLUMNS} FROM tokens WHERE token_hash = $1", (token_hash,))
        return TokenRow(*rows[0]) if rows else None

    @read
    def list_tokens(self) -> Verb[list[TokenRow]]:
        """Return all tokens, oldest first."""
        rows = yield Query(f"SELECT {_COLUMNS} FROM tokens ORDER BY created_at, id")
        return [TokenRow(*row) for row in rows]

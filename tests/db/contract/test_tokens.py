"""What every store must do with tokens: `mail.db.keys.TokenVerbs`."""

from typing import Any

from mail.db.records import TokenRow
from mail.db.store import Store

Rows = Any


class TestTokens:
    async def test_they_are_found_by_hash_and_replaced(self, store: Store, rows: Rows) -> None:
        token = TokenRow(
            token_hash="ab" * 32,
            role="user",
            id="alice",
            created_at=rows.now,
            label="laptop",
            expires_at="2027-01-01T00:00:00+00:00",
        )
        await store.put_token(token)
        assert await store.find_token(token.token_hash) == token
        assert await store.find_token("cd" * 32) is None
        revoked = TokenRow(
            token_hash=token.token_hash,
            role="user",
            id="alice",
            created_at=rows.now,
            revoked_at=rows.now,
        )
        await store.put_token(revoked)
        assert await store.find_token(token.token_hash) == revoked
        assert await store.list_tokens() == [revoked]

    async def test_they_are_listed_oldest_first(self, store: Store, rows: Rows) -> None:
        for day in (3, 1, 2):
            at = f"2026-01-0{day}T00:00:00+00:00"
            await store.put_token(
                TokenRow(token_hash=f"h{day}", role="user", id="alice", created_at=at)
            )
        assert [token.token_hash for token in await store.list_tokens()] == ["h1", "h2", "h3"]

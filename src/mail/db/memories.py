"""The memories of owners, in namespaces; commits may write some too."""

import json
from collections.abc import Iterable, Sequence
from typing import Any, Final

from mail.db.driver import Batch, Change, Query, Verb, Verbs, read, write
from mail.db.records import MemoryRow, Owner
from mail.db.rows import OWNED, columns, namespace_text, reader

_COLUMNS: Final = columns(MemoryRow)
_as_memory: Final = reader(MemoryRow)
_AROUND_WORDS: Final = ".,;:!?…\"'()[]{}«»“”"


class MemoryVerbs(Verbs):
    """Memories, by owner, namespace and key."""

    @write
    def put_memories(self, owner: Owner, rows: Sequence[MemoryRow]) -> Verb[None]:
        """Insert or replace memories by (namespace, key)."""
        values = [self.sql.memory_values(owner, row) for row in rows]
        yield Batch(self.sql.put_memory, values)

    @write
    def delete_memory(self, owner: Owner, namespace: tuple[str, ...], key: str) -> Verb[None]:
        """Remove a memory if it is there."""
        text = f"DELETE FROM memories WHERE {OWNED} AND {self.sql.this_memory}"
        yield Change(text, (*owner, *self.sql.memory_id(namespace, key)))

    @read
    def get_memory(
        self, owner: Owner, namespace: tuple[str, ...], key: str
    ) -> Verb[MemoryRow | None]:
        """Return a memory, or None."""
        text = f"SELECT {_COLUMNS} FROM memories WHERE {OWNED} AND {self.sql.this_memory}"
        rows = yield Query(text, (*owner, *self.sql.memory_id(namespace, key)))
        return _as_memory(rows[0]) if rows else None

    @read
    def search_memories(
        self,
        owner: Owner,
        prefix: tuple[str, ...],
        query: str = "",
        *,
        limit: int = 10,
        offset: int = 0,
    ) -> Verb[list[MemoryRow]]:
        """Return memories whose namespace begins with ``prefix``.

        With a query, only those whose value contains one of its words (case ignored), ordered by
        how many different words they contain; otherwise, and among equals, newest first.
        """
        text = f"""
            SELECT {_COLUMNS} FROM memories
            WHERE {OWNED} AND namespace >= $4 AND namespace < $5
            ORDER BY updated_at DESC, namespace, key"""
        # In a namespace with the prefix "," or "]" (or the first quote) comes behind it: all of
        # them sort before "^".
        start = namespace_text(prefix)[:-1]
        values = (*owner, start, start + "^")
        words = {word.strip(_AROUND_WORDS) or word for word in query.casefold().split()}
        if not words:
            rows = yield Query(f"{text} LIMIT $6 OFFSET $7", (*values, limit, offset))
        else:
            # SQLite ignores the case of ASCII letters only, and PostgreSQL as the database's
            # locale tells it, so Python compares.
            rows = _best_matches((yield Query(text, values)), words)[offset : offset + limit]
        return [_as_memory(row) for row in rows]

    @read
    def memory_namespaces(self, owner: Owner) -> Verb[list[tuple[str, ...]]]:
        """Return the owner's namespaces in order."""
        rows = yield Query(f"SELECT DISTINCT namespace FROM memories WHERE {OWNED}", owner)
        return sorted(tuple(json.loads(text)) for (text,) in rows)


def _best_matches(rows: Iterable[Any], words: set[str]) -> list[Any]:
    """Return the rows whose value has any of the words, those with most first."""
    scored = []
    for row in rows:
        text = row[2].casefold()
        if score := sum(word in text for word in words):
            scored.append((score, row))
    return [row for _, row in sorted(scored, key=lambda pair: pair[0], reverse=True)]

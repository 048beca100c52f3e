"""What every store must do with memories: `mail.db.memories.MemoryVerbs`."""

from typing import Any

from mail.db.store import Store

Rows = Any


class TestMemories:
    async def search(self, store: Store, rows: Rows, *args: Any, **kwargs: Any) -> list[str]:
        return [row.key for row in await store.search_memories(rows.alice, *args, **kwargs)]

    async def test_they_are_replaced_by_namespace_and_key(self, store: Store, rows: Rows) -> None:
        old, new = rows.memory("k", '"old"', age=2), rows.memory("k", '"new"', age=1)
        other = rows.memory("k", '"other"', namespace=("notes", "deep"))
        await store.put_memories(rows.alice, [old, other])
        await store.put_memories(rows.alice, [new])
        assert await store.get_memory(rows.alice, ("notes",), "k") == new
        assert await store.get_memory(rows.alice, ("notes", "deep"), "k") == other
        assert await store.get_memory(rows.alice, ("notes",), "missing") is None
        assert await store.get_memory(rows.bob, ("notes",), "k") is None

    async def test_deleting_is_quiet_about_what_is_not_there(
        self, store: Store, rows: Rows
    ) -> None:
        await store.put_memories(rows.alice, [rows.memory("k")])
        await store.delete_memory(rows.bob, ("notes",), "k")
        assert await store.get_memory(rows.alice, ("notes",), "k") is not None
        await store.delete_memory(rows.alice, ("notes",), "k")
        await store.delete_memory(rows.alice, ("notes",), "k")
        assert await store.get_memory(rows.alice, ("notes",), "k") is None

    async def test_commits_write_them_too(self, store: Store, rows: Rows) -> None:
        seq = await rows.begin(store, memories=(rows.memory("posted"),))
        await store.commit(rows.turn(seq, memories=(rows.memory("turned", age=1),)))
        assert await self.search(store, rows, ("notes",)) == ["posted", "turned"]

    async def test_a_prefix_matches_whole_parts_only(self, store: Store, rows: Rows) -> None:
        spaces = [("a",), ("a", "b"), ("ab",), ('a"', "b"), ("a,b",), ("a]",), ("ä", "b"), ("a^",)]
        await store.put_memories(
            rows.alice, [rows.memory(repr(space), namespace=space) for space in spaces]
        )
        assert sorted(await self.search(store, rows, ("a",))) == ["('a', 'b')", "('a',)"]
        assert await self.search(store, rows, ("ä",)) == ["('ä', 'b')"]
        assert len(await self.search(store, rows, (), limit=100)) == len(spaces)
        assert await store.memory_namespaces(rows.alice) == sorted(spaces)
        assert await store.memory_namespaces(rows.bob) == []

    async def test_without_a_query_the_newest_come_first_in_pages(
        self, store: Store, rows: Rows
    ) -> None:
        await store.put_memories(rows.alice, [rows.memory(f"k{n}", age=n) for n in (3, 0, 2, 1)])
        assert await self.search(store, rows, ("notes",)) == ["k0", "k1", "k2", "k3"]
        assert await self.search(store, rows, ("notes",), limit=2, offset=1) == ["k1", "k2"]
        assert await self.search(store, rows, ("notes",), "  ") == ["k0", "k1", "k2", "k3"]

    async def test_a_query_ranks_by_different_words_then_age(
        self, store: Store, rows: Rows
    ) -> None:
        values = {
            "none": '"cloud"',
            "one-new": '"rain rain rain"',
            "one-old": '"wind"',
            "two": '"Rain and WIND"',
        }
        await store.put_memories(
            rows.alice, [rows.memory(k, v, age=n) for n, (k, v) in enumerate(values.items())]
        )
        ranked = ["two", "one-new", "one-old"]
        assert await self.search(store, rows, ("notes",), "rain wind RAIN") == ranked
        assert await self.search(store, rows, ("notes",), "wind rain", limit=1, offset=1) == [
            "one-new"
        ]

    async def test_case_is_ignored_beyond_ascii(self, store: Store, rows: Rows) -> None:
        await store.put_memories(
            rows.alice, [rows.memory("de", '"Äpfel STRASSE"'), rows.memory("ru", '"ПОГОДА"')]
        )
        assert await self.search(store, rows, ("notes",), "äPFEL") == ["de"]
        assert await self.search(store, rows, ("notes",), "straße") == ["de"]
        assert await self.search(store, rows, ("notes",), "(Straße)?!") == ["de"]
        assert await self.search(store, rows, ("notes",), "погода") == ["ru"]

    async def test_wildcards_are_ordinary_characters(self, store: Store, rows: Rows) -> None:
        await store.put_memories(
            rows.alice,
            [rows.memory("percent", '"100% sure"'), rows.memory("plain", '"100 a_b"', age=1)],
        )
        assert await self.search(store, rows, ("notes",), "0%") == ["percent"]
        assert await self.search(store, rows, ("notes",), "a_b") == ["plain"]
        assert await self.search(store, rows, ("notes",), "_00") == []
        assert await self.search(store, rows, ("notes",), "*") == []

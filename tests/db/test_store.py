"""The LangGraph store over our memories, driven by LangMem's own tools."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from mail.db import open_store
from mail.db.memory import MemoryStore
from mail.db.records import MemoryRow, Owner
from mail.db.store import Store
from mail.utils.store import get_langmem_store

if TYPE_CHECKING:
    from mail.db.langgraph import MailStore

ALICE = Owner("example", "user", "alice")
BOB = Owner("example", "user", "bob")
NAMESPACE = ("weather_memory",)


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    opened: Store = MemoryStore()
    if request.param == "sqlite":
        opened = open_store(f"sqlite:///{tmp_path / 'mail.db'}")
    await opened.open()
    yield opened
    await opened.close()


@pytest.fixture
async def memories(store: Store) -> "AsyncIterator[MailStore]":
    async with get_langmem_store(store, ALICE) as langgraph_store:
        yield langgraph_store


async def texts(tool: Any, query: str, **more: object) -> list[str]:
    found = json.loads(await tool.ainvoke({"query": query, **more}))
    return [item["value"]["content"] for item in found]


async def test_langmem_tools_create_find_update_and_delete(memories: "MailStore") -> None:
    from langmem import create_manage_memory_tool, create_search_memory_tool

    manage = create_manage_memory_tool(NAMESPACE, store=memories)
    search = create_search_memory_tool(NAMESPACE, store=memories)
    created = await manage.ainvoke({"content": "Alice prefers Celsius."})
    await manage.ainvoke({"content": "Alice lives in Oslo."})
    assert await texts(search, "celsius") == ["Alice prefers Celsius."]
    memory_id = created.rsplit(" ", 1)[1]
    changed = {"content": "Alice prefers Kelvin.", "action": "update", "id": memory_id}
    await manage.ainvoke(changed)
    assert await texts(search, "celsius") == []
    assert await texts(search, "alice", limit=1) == ["Alice prefers Kelvin."]
    await manage.ainvoke({"action": "delete", "id": memory_id})
    assert await texts(search, "alice") == ["Alice lives in Oslo."]


async def test_the_synchronous_tools_work_from_another_thread(memories: "MailStore") -> None:
    from langmem import create_manage_memory_tool, create_search_memory_tool

    manage = create_manage_memory_tool(NAMESPACE, store=memories)
    search = create_search_memory_tool(NAMESPACE, store=memories)
    await asyncio.to_thread(manage.invoke, {"content": "from a thread"})
    found = await asyncio.to_thread(search.invoke, {"query": "thread"})
    assert [item["value"]["content"] for item in json.loads(found)] == ["from a thread"]


async def test_a_synchronous_call_in_the_loop_is_refused(memories: "MailStore") -> None:
    with pytest.raises(asyncio.InvalidStateError, match="asynchronous methods"):
        memories.get(NAMESPACE, "k")


async def test_acknowledged_broadcasts_are_found(store: Store, memories: "MailStore") -> None:
    from langmem import create_search_memory_tool

    value = {
        "messages": [
            {"role": "user", "content": "<incoming_message>roadmap</incoming_message>"},
            {"role": "assistant", "content": "<acknowledged broadcast/>\nsaved"},
        ],
        "text": "roadmap saved",
    }
    now = "2026-01-01T10:00:00+00:00"
    row = MemoryRow(
        namespace=NAMESPACE, key="b1", value=json.dumps(value), created_at=now, updated_at=now
    )
    await store.put_memories(ALICE, [row])
    search = create_search_memory_tool(NAMESPACE, store=memories)
    (found,) = json.loads(await search.ainvoke({"query": "Roadmap"}))
    assert found["value"] == value
    item = await memories.aget(NAMESPACE, "b1")
    assert item is not None
    assert (item.namespace, item.created_at.isoformat()) == (NAMESPACE, now)


async def test_owners_do_not_see_each_other(store: Store, memories: "MailStore") -> None:
    await memories.aput(NAMESPACE, "k", {"content": "secret"})
    async with get_langmem_store(store, BOB) as other:
        assert await other.aget(NAMESPACE, "k") is None
        assert await other.asearch(()) == []
        assert await other.alist_namespaces() == []
        await other.adelete(NAMESPACE, "k")
    assert await memories.aget(NAMESPACE, "k") is not None


async def test_filters_limits_and_offsets(memories: "MailStore") -> None:
    for number in range(5):
        await memories.aput(("n", str(number % 2)), f"k{number}", {"number": number, "a": {"b": 1}})

    async def numbers(**query: Any) -> list[int]:
        return [item.value["number"] for item in await memories.asearch(("n",), **query)]

    assert await numbers() == [4, 3, 2, 1, 0]
    assert await numbers(limit=2, offset=1) == [3, 2]
    assert await numbers(filter={"number": {"$gte": 1, "$lt": 3}}) == [2, 1]
    assert await numbers(filter={"number": {"$ne": 4}}, limit=2, offset=1) == [2, 1]
    assert await numbers(filter={"number": 3, "a": {"b": 1}}) == [3]
    assert await numbers(filter={"missing": {"$gt": 1}}) == []
    assert len(await memories.asearch(("n", "1"))) == 2
    with pytest.raises(ValueError, match=r"unsupported filter operator: \$in"):
        await numbers(filter={"number": {"$in": [1]}})


async def test_namespaces_are_listed_by_prefix_suffix_and_depth(memories: "MailStore") -> None:
    for namespace in (("a", "x", "1"), ("a", "y", "1"), ("b", "x", "2")):
        await memories.aput(namespace, "k", {"v": 1})
    assert await memories.alist_namespaces(prefix=("a",)) == [("a", "x", "1"), ("a", "y", "1")]
    assert await memories.alist_namespaces(suffix=("*", "1")) == [("a", "x", "1"), ("a", "y", "1")]
    assert await memories.alist_namespaces(prefix=("*", "x"), max_depth=2) == [
        ("a", "x"),
        ("b", "x"),
    ]
    assert await memories.alist_namespaces(limit=1, offset=2) == [("b", "x", "2")]


async def test_a_batch_reads_before_it_writes_and_keeps_the_last_write(
    memories: "MailStore",
) -> None:
    from langgraph.store.base import GetOp, PutOp

    await memories.aput(("a",), "k", {"v": 1})
    first = await memories.aget(("a",), "k")
    results = await memories.abatch(
        [PutOp(("a",), "k", {"v": 2}), GetOp(("a",), "k"), PutOp(("a",), "k", {"v": 3})]
    )
    assert results[0] is None
    assert results[1].value == {"v": 1}  # type: ignore[union-attr]
    last = await memories.aget(("a",), "k")
    assert first is not None
    assert last is not None
    assert (last.value, last.created_at) == ({"v": 3}, first.created_at)
    assert last.updated_at >= first.updated_at


async def test_without_arguments_the_configured_store_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mail.toml").write_text("[server]\n")
    monkeypatch.chdir(tmp_path)
    async with get_langmem_store() as in_memory:
        await in_memory.aput(("a",), "k", {"v": 1})
    async with get_langmem_store() as in_memory:
        assert await in_memory.aget(("a",), "k") is None
    monkeypatch.setenv("DATABASE_URL", f"sqlite:///{tmp_path / 'mail.db'}")
    async with get_langmem_store() as durable:
        await durable.aput(("a",), "k", {"v": 1})
    async with get_langmem_store() as durable:
        assert (await durable.aget(("a",), "k")) is not None

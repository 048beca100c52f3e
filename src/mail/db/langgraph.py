"""`MailStore`: LangGraph's ``BaseStore`` over the memories of one owner. Imports LangGraph."""

import asyncio
import json
import operator
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Final

from langgraph.store.base import (
    BaseStore,
    GetOp,
    Item,
    ListNamespacesOp,
    MatchCondition,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
)

from mail.db.memories import MemoryVerbs
from mail.db.records import MemoryRow, Owner

_PAGE: Final = 100


class MailStore(BaseStore):
    """Memories of one owner as LangGraph and LangMem expect them.

    Searches are by the words of the query; no embeddings are needed. Within a batch, reads see
    what was there before it, and of several writes to one key the last one stays.

    Args:
        store: An open store.
        owner: The owner of the memories.

    It belongs to the event loop in which it is made. The synchronous methods work from any other
    thread.
    """

    __slots__ = ("_loop", "_owner", "_store")

    def __init__(self, store: MemoryVerbs, owner: Owner) -> None:
        self._store = store
        self._owner = owner
        self._loop = asyncio.get_running_loop()

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Do what `abatch` does, from a thread that is not the event loop's.

        Raises:
            InvalidStateError: called in the event loop's own thread, where it would wait for
                itself.
        """
        try:
            running: asyncio.AbstractEventLoop | None = asyncio.get_running_loop()
        except RuntimeError:
            running = None
        if running is self._loop:
            raise asyncio.InvalidStateError(
                "synchronous calls of this store would block its own event loop; "
                "use the asynchronous methods (aget, asearch, aput, ...) here"
            )
        return asyncio.run_coroutine_threadsafe(self.abatch(list(ops)), self._loop).result()

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Run operations together; see `BaseStore.abatch`.

        Raises:
            StoreError: the store could not do its work.
        """
        listed = list(ops)
        results: list[Result] = [await self._read(op) for op in listed]
        writes = {(op.namespace, op.key): op for op in listed if isinstance(op, PutOp)}
        await self._write(list(writes.values()))
        return results

    async def _read(self, op: Op) -> Result:
        if isinstance(op, GetOp):
            row = await self._store.get_memory(self._owner, op.namespace, op.key)
            return None if row is None else Item(**_fields(row))
        if isinstance(op, SearchOp):
            return await self._search(op)
        if isinstance(op, ListNamespacesOp):
            known = await self._store.memory_namespaces(self._owner)
            conditions = op.match_conditions or ()
            matching = (each for each in known if all(_matches(each, one) for one in conditions))
            listed = sorted({namespace[: op.max_depth] for namespace in matching})
            return listed[op.offset : op.offset + op.limit]
        return None

    async def _search(self, op: SearchOp) -> list[SearchItem]:
        wanted = op.offset + op.limit
        found: list[SearchItem] = []
        page = _PAGE if op.filter else wanted
        start = 0
        while len(found) < wanted:
            rows = await self._store.search_memories(
                self._owner, op.namespace_prefix, op.query or "", limit=page, offset=start
            )
            items = (SearchItem(**_fields(row)) for row in rows)
            found.extend(item for item in items if _fits(item.value, op.filter or {}))
            if len(rows) < page:
                break
            start += page
        return found[op.offset : wanted]

    async def _write(self, writes: list[PutOp]) -> None:
        now = datetime.now(UTC).isoformat()
        rows: list[MemoryRow] = []
        for op in writes:
            if op.value is None:
                await self._store.delete_memory(self._owner, op.namespace, op.key)
                continue
            known = await self._store.get_memory(self._owner, op.namespace, op.key)
            rows.append(
                MemoryRow(
                    namespace=op.namespace,
                    key=op.key,
                    value=json.dumps(op.value, ensure_ascii=False),
                    created_at=known.created_at if known else now,
                    updated_at=now,
                )
            )
        if rows:
            await self._store.put_memories(self._owner, rows)


def _fields(row: MemoryRow) -> dict[str, Any]:
    return {
        "namespace": row.namespace,
        "key": row.key,
        "value": json.loads(row.value),
        "created_at": datetime.fromisoformat(row.created_at),
        "updated_at": datetime.fromisoformat(row.updated_at),
    }


def _matches(namespace: tuple[str, ...], condition: MatchCondition) -> bool:
    path = condition.path
    if len(namespace) < len(path):
        return False
    at = 0 if condition.match_type == "prefix" else len(namespace) - len(path)
    return all(want in ("*", have) for want, have in zip(path, namespace[at:], strict=False))


def _fits(value: Mapping[str, Any], conditions: Mapping[str, Any]) -> bool:
    return all(_holds(value.get(name), want) for name, want in conditions.items())


def _holds(have: Any, want: Any) -> bool:
    if not isinstance(want, Mapping):
        return bool(have == want)
    if any(str(key).startswith("$") for key in want):
        return all(_compare(have, name, other) for name, other in want.items())
    return isinstance(have, Mapping) and _fits(have, want)


_EQUALITY: Final = MappingProxyType({"$eq": operator.eq, "$ne": operator.ne})
_ORDER: Final = MappingProxyType(
    {"$gt": operator.gt, "$gte": operator.ge, "$lt": operator.lt, "$lte": operator.le}
)


def _compare(have: Any, name: str, want: Any) -> bool:
    if name in _EQUALITY:
        return bool(_EQUALITY[name](have, want))
    if name not in _ORDER:
        raise ValueError(f"unsupported filter operator: {name}")
    try:
        return bool(_ORDER[name](float(have), float(want)))
    except (TypeError, ValueError):
        return False  # what is no number is neither above nor below one

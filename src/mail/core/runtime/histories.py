"""What each agent has seen and said in each task: append-only, flat in cost (ruling 42)."""

from collections.abc import Iterable
from typing import Any, SupportsIndex, overload

from pydantic_core import from_json, to_json

from mail.core.runtime.mailbox import LaneKey
from mail.db.base import Owner, Store

__all__ = ["Entry", "Histories", "HistoryView"]

Entry = dict[str, Any]


class HistoryView(list[Entry]):
    """A turn's own list of history entries.

    Entries are shared with the runtime until somebody looks at one; then all are copied, so that
    nothing an agent function does to its list or to an entry ever persists.
    """

    _own = False

    def _unshare(self) -> None:
        if not self._own:
            self._own = True
            super().__setitem__(slice(None), from_json(to_json(list(super().__iter__()))))

    @overload
    def __getitem__(self, index: SupportsIndex) -> Entry: ...
    @overload
    def __getitem__(self, index: slice) -> list[Entry]: ...
    def __getitem__(self, index: SupportsIndex | slice) -> Entry | list[Entry]:
        self._unshare()
        return super().__getitem__(index)

    def __iter__(self) -> Any:
        self._unshare()
        return super().__iter__()

    def __reversed__(self) -> Any:
        self._unshare()
        return super().__reversed__()

    def __add__(self, other: Any) -> list[Any]:
        self._unshare()
        return super().__add__(other)

    def __radd__(self, other: list[Any]) -> list[Any]:
        return [*other, *self]

    def __rmul__(self, times: SupportsIndex) -> list[Entry]:
        return self * times

    def __mul__(self, times: SupportsIndex) -> list[Entry]:
        self._unshare()
        return super().__mul__(times)

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[Any, ...]:
        return list, (list(self),)

    def copy(self) -> list[Entry]:
        """Return the entries as a plain list."""
        return list(self)

    def pop(self, index: SupportsIndex = -1) -> Entry:
        """Remove and return an entry of this view."""
        self._unshare()
        return super().pop(index)

    def sort(self, *, key: Any = None, reverse: bool = False) -> None:
        """Sort this view."""
        self._unshare()
        super().sort(key=key, reverse=reverse)


class Histories:
    """The histories of live tasks, loaded from the store on first use."""

    def __init__(self, store: Store, owner: Owner) -> None:
        self._store = store
        self._owner = owner
        self._entries: dict[LaneKey, list[Entry]] = {}

    async def view(self, key: LaneKey, more: Iterable[Entry], *, fresh: bool) -> HistoryView:
        """Return an agent's history followed by ``more``, as the turn's own list.

        Args:
            fresh: The task began in this process, so the store holds nothing that is not here.
        """
        entries = self._entries.get(key)
        if entries is None:
            entries = [] if fresh else await self._load(key)
            self._entries[key] = entries
        view = HistoryView(entries)
        view.extend(more)
        return view

    def append(self, key: LaneKey, entries: Iterable[Entry]) -> None:
        """Add committed entries."""
        known = self._entries.get(key)
        if known is not None:
            known.extend(entries)

    def forget(self, task_id: str, agents: Iterable[str]) -> None:
        """Let go of a finished task's histories."""
        for agent in agents:
            self._entries.pop(LaneKey(task_id, agent), None)

    def lanes(self) -> list[LaneKey]:
        """Return the histories that are in memory."""
        return list(self._entries)

    def known(self, key: LaneKey) -> list[Entry]:
        """Return a copy of a history that is in memory."""
        return HistoryView(self._entries.get(key, ())).copy()

    async def _load(self, key: LaneKey) -> list[Entry]:
        rows = await self._store.history(self._owner, key.task_id, key.agent)
        return [entry for row in rows for entry in from_json(row)]

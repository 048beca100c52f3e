"""Memories for LangMem: a LangGraph store over this server's own."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from mail.core.call_context import current_call
from mail.db.records import Owner
from mail.db.store import Store

if TYPE_CHECKING:
    from mail.db.langgraph import MailStore

__all__ = ["DEFAULT_OWNER", "MailStore", "get_langmem_store"]

DEFAULT_OWNER: Final = Owner("default", "user", "default")
"""The owner of memories in a store without an owner, outside of an agent's turn."""


def __getattr__(name: str) -> Any:
    if name != "MailStore":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from mail.db.langgraph import MailStore

    return MailStore


@asynccontextmanager
async def get_langmem_store(
    store: Store | None = None, owner: Owner | None = None
) -> AsyncIterator["MailStore"]:
    """Yield a LangGraph ``BaseStore`` of one owner's memories, for LangMem's tools.

    Args:
        store: An open store, which stays open. Without it: in an agent's turn that of the swarm;
            elsewhere the configured one (``DATABASE_URL``, else ``[server.store] url`` of
            ``mail.toml``, else memory) is opened, and closed at the end.
        owner: The owner of the memories; nobody else's can be seen through the store. Without it:
            in an agent's turn those of its caller, elsewhere `DEFAULT_OWNER`'s.

    Raises:
        ConfigError: the configuration is wrong.
        StoreError: the store cannot be opened.
    """
    from mail.db.langgraph import MailStore

    call = current_call()
    here: Store | None = call.store if store is None else store
    whose = owner or (Owner(*call.owner) if call.owner else DEFAULT_OWNER)
    if here is not None:
        yield MailStore(here, whose)
        return
    opened = _configured_store()
    await opened.open()
    try:
        yield MailStore(opened, whose)
    finally:
        await opened.close()


def _configured_store() -> Store:
    from mail.config.server import MEMORY_URL, ServerConfig, resolve_store_url
    from mail.db.urls import open_store

    # A server that owns the file may be running; memories are short writes beside it.
    config = ServerConfig()
    url = resolve_store_url(config, default=MEMORY_URL)
    return open_store(url, durability=config.store.durability, exclusive=False)

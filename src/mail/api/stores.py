"""Which store a swarm in a program uses (ruling 35)."""

from mail.config.env import DATABASE_URL, setting
from mail.db.base import Store

__all__ = ["library_store"]


def library_store(store: Store | str | None, enable_db_agent_histories: bool) -> Store | None:
    """Return the store for a swarm, not yet opened; None stands for memory.

    Args:
        store: A store to share, or the URL of one, which is then this swarm's own.
        enable_db_agent_histories: Without a store, use the one that ``DATABASE_URL`` names.

    Raises:
        ConfigError: a URL that names no store.
    """
    if store is None and enable_db_agent_histories:
        store = setting(DATABASE_URL)
        if store is not None and store.lower() == "none":
            return None
    if not isinstance(store, str):
        return store
    from mail.db.urls import open_store

    return open_store(store)

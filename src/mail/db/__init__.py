"""Stores: one seam, several implementations; names resolve on first use."""

from mail.lazy import lazy_exports

__all__ = ["MemoryStore", "PostgresStore", "SQLiteStore", "Store", "open_store"]

__getattr__ = lazy_exports(
    __name__,
    {
        "MemoryStore": "mail.db.memory",
        "PostgresStore": "mail.db.postgres.driver",
        "SQLiteStore": "mail.db.sqlite.driver",
        "Store": "mail.db.store",
        "open_store": "mail.db.urls",
    },
)

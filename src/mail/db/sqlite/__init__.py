"""The embedded durable store; `SQLiteStore` resolves on first use."""

from mail.lazy import lazy_exports

__all__ = ["SQLiteStore"]

__getattr__ = lazy_exports(__name__, {"SQLiteStore": "mail.db.sqlite.driver"})

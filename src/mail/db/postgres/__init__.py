"""The PostgreSQL store; `PostgresStore` resolves on first use."""

from mail.lazy import lazy_exports

__all__ = ["PostgresStore"]

__getattr__ = lazy_exports(__name__, {"PostgresStore": "mail.db.postgres.driver"})

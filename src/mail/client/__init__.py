"""The asynchronous client for MAIL servers. `MAILClient` is imported on first use."""

from mail.lazy import lazy_exports

__all__ = ["ClientConfig", "MAILClient"]

__getattr__ = lazy_exports(
    __name__, {"ClientConfig": "mail.config.client", "MAILClient": "mail.client.client"}
)

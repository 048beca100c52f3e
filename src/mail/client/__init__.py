"""The asynchronous client for MAIL servers. `MAILClient` is imported on first use."""

from mail.lazy import lazy_exports

__all__ = ["MAILClient"]

__getattr__ = lazy_exports(__name__, {"MAILClient": "mail.client.client"})

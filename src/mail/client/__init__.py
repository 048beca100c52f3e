"""The asynchronous client of MAIL servers; the name resolves on first use."""

from mail.lazy import lazy_exports

__all__ = ["MAILClient"]

__getattr__ = lazy_exports(__name__, {"MAILClient": "mail.client.client"})

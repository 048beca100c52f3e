"""Other swarms (``registry``), and what travels between MAIL processes (``types``, ``sse``)."""

from mail.lazy import lazy_exports

__all__ = ["SwarmRegistry"]

__getattr__ = lazy_exports(__name__, {"SwarmRegistry": "mail.net.registry"})

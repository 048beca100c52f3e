"""Other swarms (``registry``, ``router``, ``outbox``), and what travels between MAIL processes."""

from mail.lazy import lazy_exports

__all__ = ["InterswarmRouter", "SwarmRegistry"]

__getattr__ = lazy_exports(
    __name__,
    {"InterswarmRouter": "mail.net.router", "SwarmRegistry": "mail.net.registry"},
)

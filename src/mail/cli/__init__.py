"""The ``mail`` command. ``main`` is the console script; commands import what they use on demand."""

from mail.lazy import lazy_exports

__all__ = ["main"]

__getattr__ = lazy_exports(__name__, {"main": "mail.cli.commands"})

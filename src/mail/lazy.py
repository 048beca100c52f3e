"""Lazy public names for packages (PEP 562): importing one leaf does not import the world."""

import importlib
from collections.abc import Callable, Mapping
from typing import Any


def lazy_exports(package: str, exports: Mapping[str, str]) -> Callable[[str], Any]:
    """Build a module ``__getattr__`` that imports each public name on first use.

    Args:
        package: The package's ``__name__``.
        exports: Public name to the absolute module that defines it.

    Returns:
        A function to bind as ``__getattr__`` in the package's ``__init__``.
    """

    def __getattr__(name: str) -> Any:
        module = exports.get(name)
        if module is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(module), name)

    return __getattr__

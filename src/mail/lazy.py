"""Lazy public names for packages (PEP 562): importing one leaf does not import the world."""

import gc
import importlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
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


@contextmanager
def importing_much() -> Iterator[None]:
    """Let the garbage collector rest while large packages are imported.

    What they make stays, and looking through it again and again takes a sixth of the time.
    """
    paused = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if paused:
            gc.enable()

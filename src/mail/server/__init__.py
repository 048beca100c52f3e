"""The HTTP server. ``mail.server:app`` is built from ``mail.toml`` when it is first asked for."""

import sys
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING, Any

from mail.lazy import lazy_exports

if TYPE_CHECKING:
    from fastapi import FastAPI

__all__ = ["app", "create_app", "run_server"]

__getattr__ = lazy_exports(
    __name__, {"create_app": "mail.server.app", "run_server": "mail.server.run"}
)


@cache
def _default_app() -> "FastAPI":
    from mail.server.app import create_app

    return create_app()


class _ServerPackage(ModuleType):
    """Keeps ``mail.server.app`` the application, although a submodule has that name, too."""

    @property
    def app(self) -> "FastAPI":
        return _default_app()

    @app.setter
    def app(self, submodule: Any) -> None:
        """Take note of the import of the submodule: nothing to do."""


sys.modules[__name__].__class__ = _ServerPackage

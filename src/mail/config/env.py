"""The one reader and writer of the process environment for settings."""

import os
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from pathlib import Path

from mail.errors import ConfigError

CONFIG_PATH = "MAIL_CONFIG_PATH"
DATABASE_URL = "DATABASE_URL"
LOG_FORMAT = "MAIL_LOG_FORMAT"
LOG_LEVEL = "MAIL_LOG_LEVEL"


def current() -> MutableMapping[str, str]:
    """Return the environment of this process."""
    return os.environ


def setting(name: str, environ: Mapping[str, str] | None = None) -> str | None:
    """Return a variable without surrounding blanks; None when it is unset or empty."""
    value = (current() if environ is None else environ).get(name, "").strip()
    return value or None


def expanded(path: str, name: str) -> Path:
    """Return a path with its tilde expanded.

    Raises:
        ConfigError: the user behind the tilde has no home folder; it calls the path ``name``.
    """
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise ConfigError(
            f"{name}: '~' in '{path}' cannot be resolved to a home folder; use an absolute path"
        ) from None


def base_folder(variable: str, default: str) -> Path:
    """Return a folder of the XDG standard, by which relative values are ignored.

    Args:
        variable: Such as ``XDG_CONFIG_HOME``.
        default: Below the home folder.
    """
    named = setting(variable)
    return Path(named) if named and Path(named).is_absolute() else Path.home() / default


@contextmanager
def overridden(name: str, value: str | None) -> Iterator[None]:
    """Set a variable of this process for a while; None leaves it as it is."""
    environ = current()
    before = environ.get(name)
    if value is not None:
        environ[name] = value
    try:
        yield
    finally:
        if value is not None:
            environ.pop(name, None)
            if before is not None:
                environ[name] = before

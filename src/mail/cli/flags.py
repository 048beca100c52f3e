"""Flags that stand for settings: how values are read, and how an error names a flag."""

import argparse
import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from mail.config.env import expanded

__all__ = ["config_path", "in_flags", "positive"]

_FLAG_OF: Final[Mapping[str, str]] = MappingProxyType(
    {
        "ServerConfig: 'port'": "--port",
        "ServerConfig: 'host'": "--host",
        "SwarmConfig: 'name'": "--swarm-name",
        "SwarmConfig: 'source'": "--swarm-source",
        "StoreConfig: 'url'": "--store",
    }
)
"""The name of an argument in a model's error, and its name on the command line."""


def config_path(given: str | None) -> str | None:
    """Return a ``--config`` argument as an absolute path, or None.

    Raises:
        ConfigError: the user named after a tilde does not exist.
    """
    return None if given is None else str(expanded(given, "--config").resolve())


def in_flags(text: str) -> str:
    """Replace an argument's name in a model's error with the name of its flag."""
    for argument, flag in _FLAG_OF.items():
        text = text.replace(argument, flag)
    return text


def positive(text: str) -> float:
    """Read an argument that is a finite number above 0.

    Raises:
        argparse.ArgumentTypeError: it is none.
    """
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError("must be a number above 0")
    return value

"""Resolution of Python references in definitions, with errors that say whose reference it is."""

import json
from typing import Any

from mail.errors import ConfigError
from mail.utils.parsing import read_python_string, resolve_prefixed_string_references

__all__ = ["load_object", "load_params", "parse_object"]


def load_object(reference: str, what: str) -> Any:
    """Import what a reference names.

    Args:
        reference: ``module:object``, with or without ``python::``.
        what: Whose reference it is, for the error text.

    Raises:
        ConfigError: it cannot be imported.
    """
    try:
        return read_python_string(reference)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"{what} cannot be loaded from '{reference}': {error}") from error


def load_params(params: dict[str, Any], what: str) -> dict[str, Any]:
    """Return parameters with their ``python::`` and ``url::`` strings resolved.

    Raises:
        ConfigError: a reference cannot be imported.
    """
    try:
        resolved: dict[str, Any] = resolve_prefixed_string_references(params)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"{what}: {error}") from error
    return resolved


def parse_object(text: str, what: str) -> Any:
    """Read one JSON value.

    Raises:
        ConfigError: the text is not JSON.
    """
    try:
        return json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise ConfigError(f"{what} is not valid JSON: {error}") from None

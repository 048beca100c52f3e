"""References in configuration: ``python::module:object`` and ``url::https://…``."""

import importlib
import json
import logging
from typing import Any, Final
from urllib.parse import urlsplit

from mail.core.addresses import parse_agent_address

__all__ = [
    "read_python_string",
    "read_url_string",
    "resolve_prefixed_string_references",
    "target_address_is_interswarm",
]

logger = logging.getLogger(__name__)

PYTHON_PREFIX: Final = "python::"
URL_PREFIX: Final = "url::"
_MAX_BYTES = 4 * 1024 * 1024
_TIMEOUT = 10.0


def read_python_string(string: str) -> Any:
    """Import what ``module:object`` names; the ``python::`` prefix is optional.

    Args:
        string: For example ``python::mail.examples.math_dummy.prompts:SYSPROMPT``; the part after
            the colon may be dotted.

    Raises:
        ValueError: the text is not of that form.
        ImportError: there is no such module.
        AttributeError: the module has no such object.
    """
    module, colon, path = string.removeprefix(PYTHON_PREFIX).partition(":")
    if not (module and colon and path) or path.startswith(":"):
        raise ValueError(f"Invalid python reference '{string}'. Expected 'module:object' format.")
    found: Any = importlib.import_module(module)
    for name in path.split("."):
        found = getattr(found, name)
    return found


def read_url_string(string: str, raise_on_error: bool = False) -> str:
    """Fetch a JSON document and return it as JSON text.

    Args:
        string: The address, with or without ``url::``. It may take 10 seconds and 4 MiB.
        raise_on_error: Raise instead of returning the address itself when that fails.

    Raises:
        RuntimeError: the document could not be fetched or is not JSON, and errors are asked for.
    """
    url = string.removeprefix(URL_PREFIX)
    try:
        return json.dumps(json.loads(_fetch(url)))
    except ValueError as error:
        # The address itself stays out of both texts: it may carry credentials.
        if raise_on_error:
            raise RuntimeError(f"error reading URL string: '{error}'") from None
        logger.warning("a url:: reference to %s is used as it stands: %s", _host(url), error)
        return url


def resolve_prefixed_string_references(value: Any) -> Any:
    """Replace prefixed strings inside dictionaries and lists, however deep.

    ``python::`` strings become the object they name, ``url::`` strings the JSON text found there;
    everything else is returned as it is. The given structure is not changed.

    Raises:
        ValueError, ImportError, AttributeError: as `read_python_string`.
    """
    if isinstance(value, dict):
        return {key: resolve_prefixed_string_references(item) for key, item in value.items()}
    if isinstance(value, list):
        return [resolve_prefixed_string_references(item) for item in value]
    if isinstance(value, str) and value.startswith(PYTHON_PREFIX):
        return read_python_string(value)
    if isinstance(value, str) and value.startswith(URL_PREFIX):
        return read_url_string(value)
    return value


def target_address_is_interswarm(address: str) -> bool:
    """Tell whether an address names an agent of another swarm: ``agent@swarm``."""
    return parse_agent_address(address)[1] is not None


def _fetch(url: str) -> bytes:
    """Return a document's bytes; every way to fail is a ValueError without the address in it."""
    import httpx

    received = bytearray()
    try:
        with httpx.stream("GET", url, timeout=_TIMEOUT) as response:
            if not response.is_success:
                raise ValueError(f"status {response.status_code}")
            for piece in response.iter_bytes():
                received += piece
                if len(received) > _MAX_BYTES:
                    raise ValueError("the document is larger than 4 MiB")
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise ValueError(type(error).__name__) from None
    return bytes(received)


def _host(url: str) -> str:
    try:
        return urlsplit(url).hostname or "an unnamed host"
    except ValueError:
        return "an unreadable host"

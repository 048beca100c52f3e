"""The documented import path of reference resolution (``python::`` and ``url::``)."""

from mail.swarms_json.references import (
    PYTHON_PREFIX,
    TRUSTED,
    URL_PREFIX,
    ReferencePolicy,
    read_python_string,
    read_url_string,
    resolve_prefixed_string_references,
    target_address_is_interswarm,
)

__all__ = [
    "PYTHON_PREFIX",
    "TRUSTED",
    "URL_PREFIX",
    "ReferencePolicy",
    "read_python_string",
    "read_url_string",
    "resolve_prefixed_string_references",
    "target_address_is_interswarm",
]

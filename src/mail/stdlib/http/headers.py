"""Which headers an agent may set."""

import re
from typing import Any, Final

from mail.errors import ToolError

__all__ = ["check_headers"]

_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE: Final = re.compile(r"[\t\x20-\x7e]*")
_MAX_CHARACTERS: Final = 16 * 1024
# Where a request goes, where it ends and how its connection is used is not the agent's to say.
_OURS: Final = frozenset(
    {
        "accept-encoding",
        "connection",
        "content-encoding",
        "content-length",
        "expect",
        "host",
        "http2-settings",
        "keep-alive",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)


def check_headers(headers: dict[str, Any]) -> dict[str, str]:
    """Return headers that may go into a request, without blanks around their values.

    Raises:
        ToolError: one is malformed, or not the agent's to set.
    """
    checked: dict[str, str] = {}
    for name, value in headers.items():
        if not isinstance(value, str):
            raise ToolError(f"the header {name!r} must have a string as its value")
        if not _NAME.fullmatch(name) or not _VALUE.fullmatch(value):
            raise ToolError(f"the header {name!r} has characters that headers cannot have")
        if name.lower() in _OURS or name.lower().startswith("proxy-"):
            raise ToolError(f"the header {name!r} cannot be set; it follows from the request")
        if name.lower() in {known.lower() for known in checked}:
            raise ToolError(f"the header {name!r} is given twice")
        checked[name] = value.strip()
    if sum(len(name) + len(value) for name, value in checked.items()) > _MAX_CHARACTERS:
        raise ToolError(f"the headers are longer than {_MAX_CHARACTERS} characters")
    return checked

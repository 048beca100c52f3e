"""``swarm://connect?server=…&token=…``: links with a server and a token."""

from dataclasses import dataclass
from typing import Final
from urllib.parse import SplitResult, parse_qs, urlsplit

from mail.errors import ConfigError

__all__ = ["URL_VARIABLE", "SwarmURL", "parse_swarm_url", "server_url"]

URL_VARIABLE: Final = "MAIL_URL"

_ACTIONS = ("connect", "invite")


@dataclass(frozen=True, slots=True)
class SwarmURL:
    """A parsed link; both actions currently mean the same."""

    action: str
    server: str | None = None
    token: str | None = None


def parse_swarm_url(url: str) -> SwarmURL | None:
    """Return the parts of a ``swarm://`` link, or None for anything else.

    Raises:
        ConfigError: the link is not a valid URL.
    """
    if not url.startswith("swarm://"):
        return None
    parts = _parts(url)
    if parts.netloc not in _ACTIONS:
        return None
    query = parse_qs(parts.query)
    return SwarmURL(parts.netloc, query.get("server", [None])[0], query.get("token", [None])[0])


def server_url(url: str) -> str:
    """Return the HTTP base URL of a URL or ``swarm://`` link, without a trailing slash.

    Raises:
        ConfigError: the link has no ``server``, or the URL is invalid or not http or https.
    """
    link = parse_swarm_url(url)
    if link is not None:
        if not link.server:
            raise ConfigError("swarm:// URL must include a 'server' parameter")
        url = f"https://{link.server}"
    if not url.startswith(("http://", "https://")):
        raise ConfigError("the URL must begin with http://, https:// or swarm://")
    _parts(url)
    return url.rstrip("/")


def _parts(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        _ = parts.port  # the port is only validated on access
    except ValueError as error:
        raise ConfigError(f"invalid URL: {error}") from error
    return parts

"""``mail ping``: check a server's health. Uses only the standard library, to start fast."""

import http.client
import json
import urllib.error
import urllib.request
from typing import Any, Final

from mail.cli.common import cleaned, one_line
from mail.cli.credentials import server_url, warn_of_exposure
from mail.cli.table import Namespace, argument, command, option, positive
from mail.errors import ConfigError, MAILError
from mail.version import get_version

_MOST_BYTES: Final = 1024 * 1024


@command(
    argument("url", "the server: http://, https:// or swarm:// URL"),
    option(
        *("-t", "--timeout"),
        type=positive,
        default=5.0,
        metavar="SECONDS",
        told="seconds to wait (default 5)",
    ),
)
def run(arguments: Namespace) -> int:
    """Print the server's health on one line; return 1 if the server cannot be reached."""
    try:
        url = server_url(arguments.url)
        warn_of_exposure(None, arguments.url)
    except ConfigError as error:
        print(cleaned(f"Error: {error}"))
        return 1
    try:
        health = _get_health(url, arguments.timeout)
    except urllib.error.HTTPError as error:
        error.close()
        print(f"✗ Server returned {error.code}")
    except (OSError, http.client.HTTPException):
        print(f"✗ Cannot connect to {_shown(url)}")
    except MAILError as error:
        print(cleaned(f"✗ Error: {error}"))
    else:
        name = _shown(health.get("swarm_name")) or "MAIL server"
        print(f"✓ {name} is {_shown(health.get('status')) or 'up'}")
        return 0
    return 1


def _get_health(url: str, timeout: float) -> dict[str, Any]:
    request = urllib.request.Request(  # noqa: S310 - server_url lets only http and https pass
        f"{url}/health",
        headers={"Accept": "application/json", "User-Agent": f"mail-ping/{get_version()}"},
    )
    with urllib.request.build_opener(_NoRedirects).open(request, timeout=timeout) as response:
        body = response.read(_MOST_BYTES)
    try:
        health = json.loads(body)
    except ValueError as error:
        raise MAILError("the response is not JSON; is this a MAIL server?") from error
    if not isinstance(health, dict):
        raise MAILError("the response is not a JSON object; is this a MAIL server?")
    return health


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Treats a redirect as a response: the health of another server says nothing about this one."""

    def redirect_request(self, *_: object) -> None:
        """Do not follow the redirect."""


def _shown(value: object) -> str:
    return "" if value is None else one_line(str(value))

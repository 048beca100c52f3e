"""``mail ping``, ``mail ui`` and ``mail nodes``: a server's health, console and processes."""

import http.client
import json
import urllib.error
import urllib.request
import webbrowser
from typing import Any, Final

from mail.cli.common import DONE, FAILED, one_line, tell
from mail.cli.credentials import URL_VARIABLE, at_server, server_url, warn_of_exposure
from mail.cli.repl.session import Session, at_shell
from mail.cli.repl.view import how_long
from mail.cli.stores import SWARM
from mail.cli.table import JSON, Namespace, argument, command, flag, option, positive
from mail.config.env import setting
from mail.errors import ConfigError, MAILError
from mail.version import get_version

_MOST_BYTES: Final = 1024 * 1024
_CONSOLE_SECONDS: Final = 5.0
_LOCAL: Final = "http://localhost:8000"
_NOT_FOUND: Final = 404
_NODE_COLUMNS: Final = ("NODE", "PROCESS", "VERSION", "SWARM", "TASKS", "UP", "SEEN")


@command(
    argument("url", "the server: http://, https:// or swarm:// URL"),
    option(
        *("-t", "--timeout"),
        type=positive,
        default=5.0,
        metavar="SECONDS",
        told="seconds to wait (default 5)",
    ),
    JSON,
)
def ping(arguments: Namespace) -> int:
    """Print the server's health on one line; return 1 if the server cannot be reached."""
    url, problem, health = "", "", dict[str, Any]()
    try:
        url = server_url(arguments.url)
        warn_of_exposure(None, arguments.url)
        health = _get_health(url, arguments.timeout)
    except ConfigError as error:
        problem = f"Error: {error}"
    except urllib.error.HTTPError as error:
        error.close()
        problem = f"✗ Server returned {error.code}"
    except (OSError, http.client.HTTPException):
        problem = f"✗ Cannot connect to {one_line(url)}"
    except MAILError as error:
        problem = f"✗ Error: {error}"
    if problem:
        return (
            tell(arguments, {"ok": False, "error": problem.removeprefix("✗ ")}, problem) or FAILED
        )
    name, status = health.get("swarm_name") or "MAIL server", health.get("status") or "up"
    line = f"✓ {one_line(str(name))} is {one_line(str(status))}"
    return tell(arguments, {"ok": True, "health": health}, line)


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


@command(
    argument("url", f"the server (default: {URL_VARIABLE}, else {_LOCAL})", required=False),
    flag("--no-browser", told="only print the address"),
    JSON,
)
def ui(arguments: Namespace) -> int:
    """Print the address of the console, and open it if there is a browser."""
    warn_of_exposure(None, arguments.url or "")
    url = server_url(arguments.url or setting(URL_VARIABLE) or _LOCAL)
    address = f"{url}/console"
    request = urllib.request.Request(address, method="HEAD")  # noqa: S310 - only http and https
    try:
        urllib.request.urlopen(request, timeout=_CONSOLE_SECONDS).close()  # noqa: S310 - the same
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == _NOT_FOUND:
            raise MAILError(f"{url} has no console; [server] console switches it on") from error
        raise MAILError(f"{address} answered with {error.code}") from error
    except (OSError, http.client.HTTPException) as error:
        raise MAILError(f"cannot connect to {url}") from error
    tell(arguments, {"url": address}, address)
    if not arguments.no_browser:
        webbrowser.open(address)
    return DONE


@command(
    *SWARM,
    *at_server("ask this server instead, as an administrator"),
    epilog="For example: mail nodes --store postgresql://user@host/database",
)
@at_shell()
async def nodes(session: Session, arguments: Namespace) -> int:
    """List the processes that share the server's PostgreSQL database."""
    found = (await session.client.get_nodes())["nodes"]
    rows = [
        (
            *(node["id"][:8], f"{node['host']}:{node['pid']}", node["version"], node["swarm"]),
            *(str(node["tasks"]), how_long(node["uptime"]), f"{node['silence']:.1f} s"),
        )
        for node in found
    ]
    return session.tell_table(arguments, found, _NODE_COLUMNS, rows, nothing="no server is running")

"""``mail ui``: open a server's console in a browser. Uses only the standard library."""

import http.client
import urllib.error
import urllib.request
import webbrowser
from typing import Final

from mail.cli.common import DONE, cleaned
from mail.cli.credentials import URL_VARIABLE, server_url, warn_of_exposure
from mail.cli.table import Namespace, argument, command, flag
from mail.config.env import setting
from mail.errors import MAILError

_DEFAULT: Final = "http://localhost:8000"
_SECONDS: Final = 5.0
_NOT_FOUND: Final = 404


@command(
    argument("url", f"the server (default: {URL_VARIABLE}, else {_DEFAULT})", required=False),
    flag("--no-browser", told="only print the address"),
)
def run(arguments: Namespace) -> int:
    """Print the address of the console, and open it if there is a browser.

    Raises:
        ConfigError: the URL is not one of a server.
        MAILError: no server answers there, or it has no console.
    """
    warn_of_exposure(None, arguments.url or "")
    url = server_url(arguments.url or setting(URL_VARIABLE) or _DEFAULT)
    address = f"{url}/console"
    _check(url, address)
    print(cleaned(address), flush=True)
    if not arguments.no_browser:
        webbrowser.open(address)
    return DONE


def _check(url: str, address: str) -> None:
    request = urllib.request.Request(address, method="HEAD")  # noqa: S310 - only http and https
    try:
        urllib.request.urlopen(request, timeout=_SECONDS).close()  # noqa: S310 - the same
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == _NOT_FOUND:
            raise MAILError(f"{url} has no console; [server] console switches it on") from error
        raise MAILError(f"{address} answered with {error.code}") from error
    except (OSError, http.client.HTTPException) as error:
        raise MAILError(f"cannot connect to {url}") from error

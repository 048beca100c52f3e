"""``mail login`` and ``mail logout``: keep the token of a server, so that no command shows it."""

import argparse
import asyncio
import sys

from mail.cli.common import DONE, FAILED, cleaned
from mail.cli.credentials import (
    URL_VARIABLE,
    credentials_file,
    forget,
    keep,
    open_keyring,
    read_token,
    server_url,
)
from mail.config.env import setting
from mail.errors import ConfigError, MAILError


def configure_login(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``mail login``."""
    configure_logout(parser)
    parser.add_argument(
        "--file", action="store_true", help="keep the token in a private file, not in the keyring"
    )


def configure_logout(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``mail logout``."""
    parser.add_argument("url", nargs="?", help=f"the server's URL (default: {URL_VARIABLE})")


def run_login(arguments: argparse.Namespace) -> int:
    """Ask for a token, check it at the server, and keep it.

    Raises:
        ConfigError: the URL, the token or the file of credentials is invalid.
        MAILError: there is no keyring, or the server does not accept the token.
    """
    url = _server(arguments)
    keyring = None if arguments.file else open_keyring()  # before anybody is asked for a secret
    token = read_token(url)
    role, identifier = asyncio.run(_whoami(url, token))
    keep(url, token, keyring)
    place = credentials_file() if keyring is None else f"the keyring ({keyring.name})"
    print(cleaned(f"logged in to {url} as {role} '{identifier}'; the token is kept in {place}"))
    return DONE


def run_logout(arguments: argparse.Namespace) -> int:
    """Forget the token of a server; it stays valid until it is revoked.

    Raises:
        ConfigError: the URL or the file of credentials is invalid.
    """
    url = _server(arguments)
    if forget(url):
        print(cleaned(f"logged out of {url}; the token itself stays valid until it is revoked"))
        return DONE
    print(cleaned(f"not logged in to {url}"), file=sys.stderr)
    return FAILED


def _server(arguments: argparse.Namespace) -> str:
    url = arguments.url or setting(URL_VARIABLE)
    if not url:
        raise ConfigError(f"give the server's URL, or set {URL_VARIABLE}")
    return server_url(url)


async def _whoami(url: str, token: str) -> tuple[str, str]:
    from mail.client.client import MAILClient

    async with MAILClient(url, token) as client:
        who: dict[str, object] = {**await client.get_whoami()}
    role, identifier = who.get("role"), who.get("id")
    if not isinstance(role, str) or not isinstance(identifier, str):
        raise MAILError(f"{url} does not say whose the token is; is it a MAIL server?")
    return "participant" if who.get("participant") is True else role, identifier

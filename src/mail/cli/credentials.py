"""The server that commands talk to, the token that they send, and the file of ``mail login``.

The file ``mail/credentials`` below ``XDG_CONFIG_HOME`` (``~/.config``) lists the servers that the
user has logged in to. A token is in the system's keyring, through the ``keyring`` library, or in
that file when the user asked for it. The keyring is opened for servers of that list only.
"""

import asyncio
import getpass
import importlib
import json
import os
import secrets
import stat
import sys
import warnings
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import SplitResult, parse_qs, urlsplit

import click

from mail.cli.common import cleaned, tell
from mail.cli.table import JSON, Namespace, argument, command, flag, option
from mail.config.env import base_folder, expanded, setting
from mail.errors import ConfigError, MAILError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from mail.client.client import MAILClient

URL_VARIABLE: Final = "MAIL_URL"


class SwarmLink(NamedTuple):
    """The content of a ``swarm://connect`` or ``swarm://invite`` link."""

    server: str | None = None
    token: str | None = None


def parse_swarm_link(url: str) -> SwarmLink | None:
    """Return the parts of a ``swarm://`` link, or None for anything else.

    Raises:
        ConfigError: the link is not a valid URL.
    """
    if not url.startswith("swarm://"):
        return None
    parts = _parts(url)
    query = parse_qs(parts.query)
    known = parts.netloc in ("connect", "invite")
    return (
        SwarmLink(query.get("server", [None])[0], query.get("token", [None])[0]) if known else None
    )


def server_url(url: str) -> str:
    """Return the HTTP base URL of a URL or ``swarm://`` link, without a trailing slash.

    Raises:
        ConfigError: the link has no ``server``, or the URL is invalid, not http or https, or holds
            a user or a password, which no server takes.
    """
    link = parse_swarm_link(url)
    if link is not None:
        if not link.server:
            raise ConfigError("swarm:// URL must include a 'server' parameter")
        url = f"https://{link.server}"
    if not url.startswith(("http://", "https://")):
        raise ConfigError("the URL must begin with http://, https:// or swarm://")
    if _parts(url).username is not None:
        raise ConfigError(
            "the URL must not contain a user, a password or a token, which ps and the shell's "
            f"history show; use {_OWN_INSTEAD}"
        )
    return url.rstrip("/")


def _parts(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        _ = parts.port  # the port is only validated on access
    except ValueError as error:
        raise ConfigError(f"invalid URL: {error}") from error
    return parts


KEY_VARIABLE: Final = "MAIL_API_KEY"
_SERVICE: Final = "mail-protocol"
_MOST_CHARACTERS: Final = 16_384
_IN_KEYRING: Final = "keyring"
_TOKEN: Final = "token"  # noqa: S105 - the name of a field
_EXPOSED: Final = "mail: warning: ps and the shell's history show the token of a command line; use "
_OWN_INSTEAD: Final = f"{KEY_VARIABLE}, --api-key-file or `mail login`"
_OTHER_INSTEAD: Final = "this command at the prompt, or on standard input, of `mail client URL`"


KEYS: Final = (
    option("-ak", "--api-key", metavar="KEY", told="your token, visible to others"),
    option("--api-key-file", metavar="PATH", told="a file that contains your token"),
)


def at_server(told: str) -> tuple[click.Parameter, ...]:
    """Return the flags of a command that asks a server when it is given one with ``--url``."""
    return (option("--url", metavar="URL", told=told), *KEYS, JSON)


def needed_url(given: str | None, told: str = "give the server's URL") -> str:
    """Return a URL as it was given, or that of the environment.

    Raises:
        ConfigError: there is none; it says what is ``told``.
    """
    url = given or setting(URL_VARIABLE)
    if not url:
        raise ConfigError(f"{told}, or set {URL_VARIABLE}")
    return url


def api_key(given: str | None, file: str | None, url: str, *, typed: bool = True) -> str | None:
    """Return the token for a server, None when there is none.

    The first of: the flags, the link's own, the environment's, that of ``mail login``. A link may
    come from anyone, so it never gets the environment's; that of a login is for its server alone.

    Args:
        given: ``--api-key``.
        file: ``--api-key-file``.
        url: The server's URL or ``swarm://`` link.
        typed: The URL stands on the command line.

    Raises:
        ConfigError: both flags are given, or a file cannot be used.
        MAILError: the keyring does not answer.
    """
    if given is not None and file is not None:
        raise ConfigError("give --api-key or --api-key-file, not both")
    warn_of_exposure(given, url if typed else "")
    if given is not None:
        return given
    if file is not None:
        return _read_file(file)
    link = parse_swarm_link(url)
    if link is not None:
        return link.token or (_kept(server_url(url)) if link.server else None)
    return setting(KEY_VARIABLE) or _kept(server_url(url))


def warn_of_exposure(given: str | None, url: str) -> None:
    """Print a warning when a token stands on the command line."""
    link = parse_swarm_link(url)
    if given is not None or (link is not None and link.token is not None):
        print(f"{_EXPOSED}{_OWN_INSTEAD}", file=sys.stderr)


def warn_of_tokens(arguments: Namespace) -> None:
    """Print a warning when a command of ``mail client`` was given a token as an argument."""
    given = vars(arguments)
    if given.get("api_key"):
        warn_of_exposure(given["api_key"], "")
    elif given.get("user_token") or given.get("auth_token"):
        print(f"{_EXPOSED}{_OTHER_INSTEAD}", file=sys.stderr)


def read_token(url: str) -> str:
    """Ask for the token of a server without showing it, or read it from the standard input.

    Raises:
        ConfigError: nothing was given, or it cannot be a token.
    """
    if sys.stdin.isatty():
        with warnings.catch_warnings():
            warnings.simplefilter("error", getpass.GetPassWarning)  # it would show the token
            try:
                text = getpass.getpass(cleaned(f"Token for {url}: "))
            except (EOFError, getpass.GetPassWarning):
                text = ""
    else:
        text = sys.stdin.readline(_MOST_CHARACTERS)
    return _checked(text, "no token was given")


def open_keyring() -> Any:
    """Return the system's keyring.

    Raises:
        MAILError: there is none, or the library is not installed; the text says what to do.
    """
    try:
        library = importlib.import_module("keyring")
    except ImportError:
        raise MAILError(
            "the system's keyring needs a library: pip install 'mail-protocol[keyring]'; "
            f"or keep the token in {credentials_file()} with --file"
        ) from None
    backend = library.get_keyring()
    if type(backend).__module__ in ("keyring.backends.fail", "keyring.backends.null"):
        raise MAILError(
            "this system has no keyring that can be used; "
            f"keep the token in {credentials_file()}, readable by you alone, with --file"
        )
    return backend


def keep(url: str, token: str, keyring: Any | None) -> None:
    """Keep the token of a server, in the keyring or, without one, in the file.

    Raises:
        ConfigError: the file cannot be used.
        MAILError: the keyring refuses it.
    """
    known, name = _servers(), _key(url)
    _drop(name, known)
    if keyring is not None:
        try:
            keyring.set_password(_SERVICE, name, token)
        except Exception as error:  # backends raise what their systems raise
            raise MAILError(
                f"the keyring did not take the token ({type(error).__name__}); "
                f"keep it in {credentials_file()} with --file"
            ) from error
    known[name] = {_TOKEN: token} if keyring is None else {_IN_KEYRING: True}
    _write(known)


def forget(url: str) -> bool:
    """Remove the token of a server; False when there was none.

    Raises:
        ConfigError: the file cannot be used.
    """
    known = _servers()
    found = _drop(_key(url), known)
    if found:
        _write(known)
    return found


def credentials_file() -> Path:
    """Return the file that lists the servers."""
    return base_folder("XDG_CONFIG_HOME", ".config") / "mail" / "credentials"


def _kept(url: str) -> str | None:
    entry = _servers().get(_key(url))
    if entry is None or _IN_KEYRING not in entry:
        return entry and entry.get(_TOKEN)
    try:
        token: str | None = open_keyring().get_password(_SERVICE, _key(url))
    except MAILError:
        raise
    except Exception as error:  # backends raise what their systems raise
        raise MAILError(
            f"the keyring did not give the token of {url} ({type(error).__name__}); unlock it, "
            f"or set {KEY_VARIABLE}"
        ) from error
    return token


def _drop(name: str, known: dict[str, Any]) -> bool:
    entry = known.pop(name, None)
    if entry is not None and _IN_KEYRING in entry:
        with suppress(Exception):  # it is gone, or its keyring is
            open_keyring().delete_password(_SERVICE, name)
    return entry is not None


def _key(url: str) -> str:
    """Return a server's URL as the list has it: no user, no password, no capitals in the host."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2].lower()}{parts.path.rstrip('/')}"


def _servers() -> dict[str, Any]:
    file = credentials_file()
    try:
        data, mode = file.read_bytes(), file.stat().st_mode
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror}") from error
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise ConfigError(f"others can read {file}: chmod 600 it, and replace its tokens")
    try:
        known = json.loads(data)
    except ValueError:
        known = None
    if not isinstance(known, dict) or not all(isinstance(entry, dict) for entry in known.values()):
        raise ConfigError(f"{file} is not what 'mail login' wrote; delete it and log in again")
    return known


def _write(known: dict[str, Any]) -> None:
    file = credentials_file()
    draft = file.with_name(f"{file.name}.{secrets.token_hex(8)}")
    try:
        file.parent.mkdir(0o700, parents=True, exist_ok=True)
        if not known:
            file.unlink(missing_ok=True)
            return
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as opened:
            json.dump(known, opened, indent=2)
        draft.replace(file)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise ConfigError(f"cannot write {file}: {error.strerror}") from error


def _read_file(path: str) -> str:
    try:
        with expanded(path, "--api-key-file").open(encoding="utf-8") as file:
            text = file.read(_MOST_CHARACTERS)
    except OSError as error:
        raise ConfigError(f"--api-key-file: cannot read '{path}': {error.strerror}") from error
    except ValueError:
        raise ConfigError(f"--api-key-file: '{path}' does not contain a token") from None
    return _checked(text, f"--api-key-file: '{path}' is empty")


def _checked(text: str, empty: str) -> str:
    token = text.strip()
    if not token:
        raise ConfigError(empty)
    if not (token.isascii() and token.isprintable()) or " " in token:
        raise ConfigError("a token is one word of printable ASCII characters")
    return token


@asynccontextmanager
async def connected(
    arguments: Namespace, needs: str | None = None, **more: Any
) -> "AsyncIterator[MAILClient]":
    """Give a client of the server that the arguments or the environment name, with the token.

    Args:
        arguments: ``url``, ``api_key`` and ``api_key_file``.
        needs: The error if there is no URL.
        more: Further arguments of `MAILClient`.

    Raises:
        ConfigError: the address or the token is missing or invalid.
        MAILError: the keyring does not answer.
    """
    url = needed_url(arguments.url, *([needs] if needs else []))
    base = server_url(url)
    key = api_key(arguments.api_key, arguments.api_key_file, url, typed=bool(arguments.url))
    from mail.client.client import MAILClient

    async with MAILClient(base, key, **more) as client:
        yield client


_URL: Final = argument("url", f"the server's URL (default: {URL_VARIABLE})", required=False)


@command(_URL, flag("--file", told="keep the token in a private file, not in the keyring"), JSON)
def login(arguments: Namespace) -> int:
    """Ask for a token, check it at the server, and keep it."""
    url = server_url(needed_url(arguments.url))
    keyring = None if arguments.file else open_keyring()  # before anybody is asked for a secret
    token = read_token(url)

    async def whoami() -> dict[str, Any]:
        from mail.client.client import MAILClient

        async with MAILClient(url, token) as client:
            return {**await client.get_whoami()}

    who = asyncio.run(whoami())
    role, identifier = who.get("role"), who.get("id")
    if not isinstance(role, str) or not isinstance(identifier, str):
        raise MAILError(f"{url} does not say whose the token is; is it a MAIL server?")
    role = "participant" if who.get("participant") is True else role
    keep(url, token, keyring)
    place = credentials_file() if keyring is None else f"the keyring ({keyring.name})"
    answer = {"url": url, "role": role, "id": identifier, "kept_in": str(place)}
    told = f"logged in to {url} as {role} '{identifier}'; the token is kept in {place}"
    return tell(arguments, answer, told)


@command(_URL, JSON)
def logout(arguments: Namespace) -> int:
    """Forget the token of a server; it stays valid until it is revoked."""
    url = server_url(needed_url(arguments.url))
    if not forget(url):
        raise MAILError(f"not logged in to {url}")
    told = f"logged out of {url}; the token itself stays valid until it is revoked"
    return tell(arguments, {"url": url, "status": "logged_out"}, told)

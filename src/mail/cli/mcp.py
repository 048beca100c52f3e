"""``mail mcp``: be an MCP server on standard input and output, whose tools ask a MAIL server."""

import asyncio
import json
import sys
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from shlex import quote
from typing import TYPE_CHECKING, Final

from mail.cli.common import DONE, cleaned
from mail.cli.credentials import (
    KEY_VARIABLE,
    KEYS,
    URL_VARIABLE,
    api_key,
    needed_url,
    server_url,
)
from mail.cli.table import Namespace, argument, command, option
from mail.core.suggest import hinted
from mail.errors import ConfigError, MAILError, ToolError

if TYPE_CHECKING:
    from mail.mcp.api import Api
    from mail.mcp.files import LocalFiles
    from mail.mcp.server import Caller, Context
    from mail.mcp.watching import Watcher

_CONFIG: Final = "config"
_PARTICIPANT: Final = "agent"
_PROFILES: Final = ("desk", "basic", "threads", "teams", "tasks", "all")  # it is a large module
_SECONDS: Final = 30.0
_LINES: Final = """\
# Claude Code
claude mcp add --transport http {name} {address} --header "Authorization: Bearer ${key}"

# Codex: the token is read from {key} when it starts
codex mcp add {name} --url {address} --bearer-token-env-var {key}

# VS Code: it asks for the token once
code --add-mcp {vscode}

# Any client with an mcp.json, over standard input and output; needs {key} or `mail login {url}`
{stdio}
"""


@command(
    argument(
        "words",
        f"the MAIL server (default: {URL_VARIABLE})",
        metavar=f"[{_CONFIG}] [URL]",
        nargs=-1,
    ),
    option(
        "--tools",
        default="",
        metavar="PROFILES",
        told=f"the tools to offer: {', '.join(_PROFILES)} (default: desk for participants)",
    ),
    option(
        "--root",
        multiple=True,
        metavar="FOLDER",
        told="let the tools read and save files in this folder (default: in none); may be repeated",
    ),
    option("--name", default="mail", told="with config, how clients are to call it"),
    *KEYS,
    epilog=f"`mail mcp {_CONFIG} [URL]` prints the lines that add MAIL to clients in common use.",
)
def run(arguments: Namespace) -> int:
    """Serve until standard input ends, or print lines of configuration."""
    from mail.mcp.files import LocalFiles
    from mail.mcp.tools import read_profiles

    words = list(arguments.words)
    shows = words[:1] == [_CONFIG]
    if shows:
        del words[0]
    if len(words) > 1:
        raise ConfigError(hinted(f"'{words[0]}' is too much", words[0], [_CONFIG]))
    named = needed_url(words[0] if words else None)
    try:
        profiles = read_profiles(arguments.tools)
    except ToolError as error:
        raise ConfigError(f"--tools: {error}") from None
    url = server_url(named)
    if shows:
        print(cleaned(_lines(url, arguments.name, profiles)), end="")
        return DONE
    token = api_key(arguments.api_key, arguments.api_key_file, named, typed=bool(words))
    if token is None:
        raise ConfigError(
            f"there is no token for {url}: set {KEY_VARIABLE}, give --api-key-file, or use "
            "`mail login`"
        )
    asyncio.run(_serve(url, token, profiles, LocalFiles.inside(arguments.root)))
    return DONE


async def _serve(url: str, token: str, profiles: list[str], files: "LocalFiles") -> None:
    import httpx
    from mcp.server.stdio import stdio_server

    from mail.mcp.api import Api, Refused
    from mail.mcp.server import make_server

    headers = {"Authorization": f"Bearer {token}"}
    async with httpx.AsyncClient(base_url=url, headers=headers, timeout=_SECONDS) as client:
        who = _Caller(Api(client, files), profiles)
        try:
            await who.ask()
        except Refused as error:
            raise MAILError(f"{url} refuses the token: {error}") from None
        except ToolError as error:
            print(cleaned(f"mail: {error}; the tools will work when it can"), file=sys.stderr)
        server = make_server(who.of_request)
        print(f"mail: MCP tools for {url}", file=sys.stderr)
        async with stdio_server() as (incoming, outgoing):
            await server.run(incoming, outgoing, server.create_initialization_options())


@dataclass(slots=True)
class _Caller:
    """The owner of the token, as soon as the server can tell."""

    api: "Api"
    profiles: list[str]
    role: str = ""
    own_id: str = ""
    _watcher: "Watcher | None" = None
    _telling: "asyncio.Task[None] | None" = None

    async def ask(self) -> None:
        """Ask the server.

        Raises:
            Refused: the token is not valid.
            ToolError: there is no answer.
        """
        found = await self.api.ask("GET", "/whoami")
        self.role, self.own_id = str(found.get("role")), str(found.get("id") or "")

    async def of_request(self, request: "Context") -> "Caller":
        """Return who makes a request."""
        from mail.mcp.server import Caller
        from mail.mcp.tools import profile_of

        if not self.role:
            with suppress(ToolError):  # what it asks for fails with the same words
                await self.ask()
        own_id = self.own_id if self.role == _PARTICIPANT else ""
        profiles = self.profiles or [profile_of(self.role)]
        return Caller(self.api, profiles, own_id, partial(self._watched, request))

    def _watched(self, request: "Context") -> "Watcher":
        """Return what the client has subscribed to, and tell it of changes from now on."""
        from mail.mcp.watching import Watcher

        if self._watcher is None:
            self._watcher = Watcher()
        if self._telling is None or self._telling.done():
            self._telling = asyncio.create_task(self._tell(self._watcher, request))
        return self._watcher

    async def _tell(self, watcher: "Watcher", request: "Context") -> None:
        try:
            await watcher.run(self.api, request.session.send_resource_updated)
        except ToolError as error:
            print(cleaned(f"mail: no more notifications: {error}"), file=sys.stderr)


def _lines(url: str, name: str, profiles: list[str]) -> str:
    query = f"?tools={','.join(profiles)}" if profiles else ""
    asked = f"{name}-token"
    vscode = {
        "name": name,
        "type": "http",
        "url": f"{url}/mcp{query}",
        "headers": {"Authorization": f"Bearer ${{input:{asked}}}"},
        "inputs": [{"type": "promptString", "id": asked, "description": url, "password": True}],
    }
    words = ["mcp", url, *(["--tools", ",".join(profiles)] if profiles else [])]
    stdio = {"mcpServers": {name: {"command": "mail", "args": words}}}
    return _LINES.format(
        name=quote(name),
        url=url,
        address=quote(f"{url}/mcp{query}"),
        key=KEY_VARIABLE,
        vscode=quote(json.dumps(vscode)),
        stdio=json.dumps(stdio),
    )

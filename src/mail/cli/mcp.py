"""``mail mcp``: be an MCP server on standard input and output, whose tools ask a MAIL server."""

import argparse
import asyncio
import json
import sys
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from mail.cli.common import DONE, cleaned
from mail.cli.credentials import KEY_VARIABLE, URL_VARIABLE, add_key_flags, api_key, server_url
from mail.config.env import setting
from mail.errors import ConfigError, ToolError

if TYPE_CHECKING:
    from mail.mcp.tools import Api

__all__ = ["configure", "run"]

_CONFIG: Final = "config"
_SECONDS: Final = 30.0
_LINES: Final = """\
# Claude Code
claude mcp add --transport http {name} {url}/mcp{query} --header "Authorization: Bearer ${key}"

# Codex: the token is read from {key} when it starts
codex mcp add {name} --url {url}/mcp{query} --bearer-token-env-var {key}

# VS Code: it asks for the token once
code --add-mcp '{vscode}'

# Any client with an mcp.json, over standard input and output; needs {key} or `mail login {url}`
{stdio}
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.description = (
        "Be an MCP server on standard input and output, whose tools ask a MAIL server; "
        f"`{parser.prog} {_CONFIG} [URL]` prints the line that adds MAIL to the clients in common "
        "use."
    )
    parser.add_argument(
        "words",
        metavar=f"[{_CONFIG}] [URL]",
        nargs="*",
        help=f"the MAIL server (default: {URL_VARIABLE})",
    )
    parser.add_argument("--tools", default="", metavar="PROFILES", help="the tools to offer")
    parser.add_argument("--name", default="mail", help="with config, how clients are to call it")
    add_key_flags(parser)


def run(arguments: argparse.Namespace) -> int:
    """Serve until standard input ends, or print lines of configuration.

    Raises:
        ConfigError: an argument is wrong, or there is no token.
    """
    from mail.mcp.tools import tools_of

    words, shows = list(arguments.words), arguments.words[:1] == [_CONFIG]
    if shows:
        del words[0]
    if len(words) > 1:
        raise ConfigError(f"one URL is enough, there are {len(words)}")
    named = words[0] if words else setting(URL_VARIABLE) or ""
    if not named:
        raise ConfigError(f"give the server's URL, or set {URL_VARIABLE}")
    profiles = [part.strip() for part in arguments.tools.split(",") if part.strip()]
    try:
        tools_of(profiles)
    except ToolError as error:
        raise ConfigError(f"--tools: {error}") from None
    url = server_url(named)
    if shows:
        print(cleaned(_lines(url, arguments.name, profiles)), end="")
        return DONE
    token = api_key(arguments.api_key, arguments.api_key_file, named, typed=bool(words))
    if token is None:
        raise ConfigError(f"there is no token for {url}: set {KEY_VARIABLE}, or use `mail login`")
    asyncio.run(_serve(url, token, profiles))
    return DONE


async def _serve(url: str, token: str, profiles: list[str]) -> None:
    import httpx
    from mcp.server.stdio import stdio_server

    from mail.mcp.server import make_server
    from mail.mcp.tools import Api

    headers = {"Authorization": f"Bearer {token}"}
    async with httpx.AsyncClient(base_url=url, headers=headers, timeout=_SECONDS) as client:
        api = Api(client)
        profiles = profiles or [await _usual_profile(api)]
        server = make_server(partial(_connected, api, profiles))
        print(f"mail: MCP tools for {url}", file=sys.stderr)
        async with stdio_server() as (incoming, outgoing):
            await server.run(incoming, outgoing, server.create_initialization_options())


async def _usual_profile(api: "Api") -> str:
    """Return what the token's role may use; if nobody can tell, what people use."""
    from mail.mcp.tools import Refused, profile_of

    try:
        await api.ask("GET", "/whoami")
    except Refused as error:
        return profile_of("agent" if error.status == HTTPStatus.FORBIDDEN else "user")
    except ToolError:
        pass
    return profile_of("user")


def _connected(api: "Api", profiles: list[str], ctx: Any) -> "tuple[Api, list[str]]":
    return api, profiles


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
        name=name,
        url=url,
        query=query,
        key=KEY_VARIABLE,
        vscode=json.dumps(vscode),
        stdio=json.dumps(stdio),
    )

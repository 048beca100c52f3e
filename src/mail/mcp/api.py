"""The HTTP API as the MCP tools of one caller see it."""

from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, cast
from urllib.parse import quote

import httpx

from mail.errors import ToolError
from mail.mcp.files import LocalFiles

_RESERVED: Final = {
    "approval": frozenset({"events"}),
    "message": frozenset({"overdue", "search", "unread"}),
}
"""The words at the place of an id in routes about something else."""


@dataclass(frozen=True, slots=True)
class Api:
    """The HTTP API as one caller sees it.

    Attributes:
        client: It knows the address and sends the token.
        files: The files that tools may use on this machine, if it is the caller's own.
    """

    client: httpx.AsyncClient
    files: LocalFiles | None = None

    @asynccontextmanager
    async def download(self, path: str) -> AsyncGenerator[AsyncGenerator[bytes, None], None]:
        """Request bytes, and yield them as they come.

        Raises:
            ToolError: the server refuses, or does not answer.
        """
        try:
            async with self.client.stream("GET", path) as response:
                if response.is_error:
                    raise Refused(response.reason_phrase, response.status_code)
                whole = cast("AsyncGenerator[bytes, None]", response.aiter_bytes())
                async with aclosing(whole) as pieces:
                    yield pieces
        except httpx.HTTPError as error:
            raise ToolError(f"the MAIL server cannot be reached ({type(error).__name__})") from None

    async def ask(self, method: str, path: str, **options: Any) -> dict[str, Any]:
        """Make a request and return the object that it is answered with.

        Args:
            method, path: The request.
            options: Those of `httpx.AsyncClient.request`.

        Raises:
            Refused: the answer is an error.
            ToolError: there is no answer, or it is none of a MAIL server.
        """
        try:
            response = await self.client.request(method, path, **options)
        except httpx.TimeoutException:
            raise ToolError("the MAIL server did not answer in time") from None
        except httpx.HTTPError as error:
            raise ToolError(f"the MAIL server cannot be reached ({type(error).__name__})") from None
        try:
            answer = response.json(object_hook=_Answer) if response.content else _Answer()
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, _Answer):
            raise ToolError(f"HTTP {response.status_code}, and no answer of a MAIL server")
        if response.is_error:
            detail = answer.get("detail") or response.reason_phrase
            raise Refused(str(detail), response.status_code, answer.get("task_id"))
        return answer


class _Answer(dict[str, Any]):
    """An object of an answer; what it lacks shows that it is none of a MAIL server."""

    def __missing__(self, name: str) -> Any:
        raise ToolError(f"the server's answer is not that of a MAIL server: it has no {name!r}")


class Refused(ToolError):
    """The server answered with an error; ``task_id`` is the task that exists all the same."""

    def __init__(self, detail: str, status: int, task_id: str | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.task_id = task_id


def id_in_path(name: str, what: str) -> str:
    """Return an id as a part of a path, where dots would lead elsewhere.

    Args:
        name: The id.
        what: The kind of thing that it identifies, for example ``task``.

    Raises:
        ToolError: there is nothing with such an id.
    """
    if name in (".", "..") or name in _RESERVED.get(what, ()):
        raise ToolError(f"no such {what}")
    return quote(name, safe="")

"""Resources of the MCP server: what they are, and watching whether they change.

A watcher asks the HTTP API like any tool: it waits for mail there, and looks at tasks once a
second. That works the same inside the server and in a ``mail mcp`` beside a client.
"""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from typing import Final
from urllib.parse import quote, unquote

from mail.errors import ToolError
from mail.mcp.api import Api, Refused, id_in_path
from mail.mcp.tools import FILE_URI, small_file, text_of, timeline

Tell = Callable[[str], Awaitable[None]]
"""Says that the resource with a URI has changed."""

INBOX: Final = "mail://inbox"
MOST_WATCHED: Final = 32
"""Resources that one client may watch at a time."""

_THREADS: Final = "mail://threads/"
_TASKS: Final = "mail://tasks/"
_TIMELINE: Final = "/timeline"
_LONGEST_URI: Final = 1024
_SHOWN_LETTERS: Final = 20
_WAIT_SECONDS: Final = 25.0
_MARGIN_SECONDS: Final = 30.0
_LOOK_SECONDS: Final = 1.0
_PAUSE_SECONDS: Final = 2.0
_FINAL: Final = frozenset({401, 403, 429})
"""Refusals of the API that end a watch: asking again would not help soon."""
_GONE: Final = frozenset({400, 404})


class Resource:
    """One resource: its text, and a mark that differs whenever the text does."""

    mime_type = "application/json"
    is_mail = True

    def __init__(self, name: str = "") -> None:
        self._name = name

    async def read(self, api: Api) -> str | bytes:
        """Return its text, or the bytes of what is none.

        Raises:
            ToolError: the caller may not read it, or the server does not answer.
        """
        page = await api.ask("GET", "/messages", params=self._page(_SHOWN_LETTERS))
        return json.dumps(page, ensure_ascii=False)

    async def mark(self, api: Api) -> object:
        """Return what tells this state of it from others; it raises what `read` does."""
        newest = (await api.ask("GET", "/messages", params=self._page(1)))["messages"]
        return newest[0]["id"] if newest else None

    def _page(self, limit: int) -> dict[str, str]:
        return {"thread_id": self._name, "limit": str(limit), "mark_read": "false"}


class _Inbox(Resource):
    async def mark(self, api: Api) -> object:
        return await _latest(api)

    def _page(self, limit: int) -> dict[str, str]:
        return {"limit": str(limit), "mark_read": "false"}


class _File(Resource):
    """A file; it never changes. What it is said to be is for no client to act upon."""

    mime_type = "text/plain"

    async def read(self, api: Api) -> str | bytes:
        _, content = await small_file(api, self._name)
        text = text_of(content)
        return content if text is None else text

    async def mark(self, api: Api) -> object:
        raise ToolError("a file never changes; there is nothing to watch")


class _Timeline(Resource):
    mime_type = "text/plain"
    is_mail = False

    async def read(self, api: Api) -> str:
        return await timeline(api, self._name)

    async def mark(self, api: Api) -> object:
        path = f"/tasks/{id_in_path(self._name, 'task')}"
        return (await api.ask("GET", path, params={"limit": "1"}))["event_count"]


def resource_of(uri: str) -> Resource:
    """Return the resource with a URI.

    Raises:
        ToolError: there are no such resources.
    """
    if uri == INBOX:
        return _Inbox()
    if len(uri) <= _LONGEST_URI:
        if uri.startswith(_THREADS):
            return Resource(unquote(uri[len(_THREADS) :]))
        if uri.startswith(FILE_URI):
            return _File(unquote(uri[len(FILE_URI) :]))
        if uri.startswith(_TASKS) and uri.endswith(_TIMELINE):
            return _Timeline(unquote(uri[len(_TASKS) : -len(_TIMELINE)]))
    raise ToolError(f"unknown resource: {uri[:_LONGEST_URI]}")


def thread_uri(thread_id: str) -> str:
    """Return the URI of a thread."""
    return f"{_THREADS}{quote(thread_id, safe='')}"


def task_uri(task_id: str) -> str:
    """Return the URI of a task's timeline."""
    return f"{_TASKS}{quote(task_id, safe='')}{_TIMELINE}"


class Watcher:
    """The resources that one client watches, with the state in which it knows them."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[Resource, object]] = {}
        self._changed = asyncio.Event()

    def __len__(self) -> int:
        return len(self._known)

    async def add(self, api: Api, uri: str) -> None:
        """Watch a resource from its present state on.

        Raises:
            ToolError: there is no such resource for the caller, or it would be one too many.
        """
        resource = resource_of(uri)
        if len(self._known) >= MOST_WATCHED and uri not in self._known:
            raise ToolError(f"at most {MOST_WATCHED} resources can be watched at a time")
        mark = await resource.mark(api)
        if uri not in self._known and len(self._known) < MOST_WATCHED:
            self._known[uri] = (resource, mark)
            self._changed.set()

    def remove(self, uri: str) -> None:
        """Watch a resource no longer."""
        self._known.pop(uri, None)

    async def run(self, api: Api, tell: Tell) -> None:
        """Tell of changes until that is impossible, or this is cancelled.

        Raises:
            ToolError: the caller's token does not hold any more, or it watches too much elsewhere.
        """
        try:
            async with asyncio.TaskGroup() as group:
                for of_mail in (True, False):
                    group.create_task(self._follow(api, tell, of_mail=of_mail))
        except* ToolError as failed:
            raise failed.exceptions[0] from None

    async def _follow(self, api: Api, tell: Tell, *, of_mail: bool) -> None:
        place: int | None = None
        while True:
            await self._some(of_mail=of_mail)
            began, before = time.monotonic(), place
            try:
                if of_mail:
                    place = await _latest(api, before)
                await self._compare(api, tell, of_mail=of_mail)
            except ToolError as error:
                if isinstance(error, Refused) and error.status in _FINAL:
                    raise
                await asyncio.sleep(_PAUSE_SECONDS)
            if place == before:  # a task, or a server that stops, which answers at once
                await asyncio.sleep(began + _LOOK_SECONDS - time.monotonic())

    async def _some(self, *, of_mail: bool) -> None:
        """Wait until something of a kind is watched."""
        while not any(each.is_mail == of_mail for each, _ in self._known.values()):
            self._changed.clear()
            await self._changed.wait()

    async def _compare(self, api: Api, tell: Tell, *, of_mail: bool) -> None:
        """Look at what is watched, and tell of what is not as it was."""
        for uri, (resource, known) in list(self._known.items()):
            if resource.is_mail != of_mail:
                continue
            try:
                mark = await resource.mark(api)
            except Refused as error:
                if error.status not in _GONE:
                    raise
                self.remove(uri)  # whoever reads it is told why
                await tell(uri)
                continue
            if mark != known and uri in self._known:
                self._known[uri] = (resource, mark)
                await tell(uri)


async def _latest(api: Api, after: int | None = None) -> int:
    """Return the place of the newest letter; wait a while for one behind ``after``, if given."""
    params = {"after": "0"} if after is None else {"after": str(after), "wait": str(_WAIT_SECONDS)}
    timeout = _WAIT_SECONDS + _MARGIN_SECONDS
    answer = await api.ask("GET", "/messages/unread", params=params, timeout=timeout)
    return int(answer["latest"])

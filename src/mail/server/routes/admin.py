"""For administrators: the tasks of all callers."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated, Final, Literal

from fastapi import Depends, Query
from pydantic_core import from_json
from starlette.requests import Request
from starlette.responses import Response

from mail.auth.callers import Caller, check_caller_id
from mail.core.large import json_line
from mail.core.schema import check_task_id
from mail.core.tasks import MAILTask, TaskState
from mail.db.records import Owner, TaskRow
from mail.errors import ProtocolError
from mail.net.types import (
    GetAdminTasksResponse,
)
from mail.server.answers import json_list, json_object, json_text, large_answer
from mail.server.deps import (
    ADMIN,
    Administrator,
    OwnerName,
    State,
    owner_named,
)
from mail.server.openapi import errors
from mail.server.routing import MAILRouter
from mail.server.state import ServerState

_MOST_LOOKED_AT: Final = 2000
"""The number of tasks that one request searches; the next page goes on behind them."""
_AT_ONCE: Final = 100
_MAX_PAGE: Final = 200

router = MAILRouter("tasks")

Status = Literal["running", "paused", "completed", "failed", "cancelled"]


@router.get(
    "/admin/tasks",
    dependencies=[Depends(ADMIN)],
    response_model=GetAdminTasksResponse,
    responses=errors(400),
)
async def get_admin_tasks(  # noqa: PLR0913 - the filters
    request: Request,
    state: State,
    caller: Administrator,
    limit: Annotated[int, Query(ge=1, le=_MAX_PAGE, description="The size of a page.")] = 50,
    cursor: Annotated[
        str | None,
        Query(max_length=2048, description="The `next_cursor` of the previous page."),
    ] = None,
    status: Annotated[Status | None, Query(description="Only tasks in this state.")] = None,
    owner: OwnerName = None,
    q: Annotated[
        str | None,
        Query(
            max_length=200,
            description="Only tasks whose title, id or owner has all of these words.",
        ),
    ] = None,
) -> Response:
    """List the tasks of all callers, newest first, without their events and waiting messages.

    A request looks at 2,000 tasks at most: a page of a search may be short, or empty, although
    there are more.
    """
    wanted = None if owner is None else owner_named(owner)
    search = _Search(state, limit, wanted, status, q or "")
    if cursor is not None:
        search.last = await _place(state, cursor)
    page = json_object({"tasks": json_list(search.records()), "next_cursor": search.cursor()})
    return await large_answer(request, state.quotas.places(caller), page)


class _Search:
    """Goes through the tasks of a swarm until a page is full or enough was looked at."""

    def __init__(
        self, state: ServerState, limit: int, owner: Caller | None, status: str | None, text: str
    ) -> None:
        self.state, self.limit = state, limit
        self.owner = owner
        self.status = None if status is None else TaskState(status)
        self.words = text.casefold().split()
        self.swarm: str = state.template.name
        self.last: tuple[Owner, str] | None = None
        self.more = False

    async def records(self) -> AsyncGenerator[str, None]:
        async with aclosing(self._found()) as found:
            async for owner, row in found:
                reader = self.state.tasks_of(Caller(owner.role, owner.id))
                for task in await reader.summaries([row]):
                    yield await json_text(_owned(owner, task))

    async def cursor(self) -> AsyncGenerator[str, None]:
        yield json_line(_cursor(*self.last) if self.more and self.last else None)

    async def _found(self) -> AsyncGenerator[tuple[Owner, TaskRow], None]:
        looked_at = found = 0
        while looked_at < _MOST_LOOKED_AT:
            rows = await self.state.store.swarm_tasks(self.swarm, _AT_ONCE, self.last)
            for owner, row in rows:
                if found == self.limit:
                    self.more = True
                    return
                self.last = owner, row.task_id
                looked_at += 1
                if self._fits(owner, row):
                    found += 1
                    yield owner, row
            if len(rows) < _AT_ONCE:
                return
        self.more = True

    def _fits(self, owner: Owner, row: TaskRow) -> bool:
        if self.owner is not None and self.owner != (owner.role, owner.id):
            return False
        if self.status is not None and row.state is not self.status:
            return False
        text = f"{row.title or ''} {row.task_id} {owner.role}:{owner.id}".casefold()
        return all(word in text for word in self.words)


def _owned(owner: Owner, task: MAILTask) -> dict[str, object]:
    task.task_message_queue = []
    begins = 0 if task.event_count else None
    whose = f"{owner.role}:{owner.id}"
    return task.to_record() | {"events": [], "next_after": begins, "owner": whose}


def _cursor(owner: Owner, task_id: str) -> str:
    return urlsafe_b64encode(json_line([owner.role, owner.id, task_id]).encode()).decode()


async def _place(state: ServerState, cursor: str) -> tuple[Owner, str]:
    """Read a cursor.

    Raises:
        ProtocolError: it is none, or its task is gone.
    """
    try:
        role, identifier, task_id = from_json(urlsafe_b64decode(cursor.encode()))
        place = Owner(state.template.name, check_caller_id(role), check_caller_id(identifier))
        if await state.store.load_task(place, check_task_id(task_id)) is not None:
            return place, task_id
    except (ValueError, TypeError):  # all that a made-up text can lead to
        pass
    raise ProtocolError("cursor is not the 'next_cursor' of a page, or its task was deleted")

"""For administrators: the tasks of all callers, and the tokens of the built-in authority."""

import logging
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Annotated, Any, Final, Literal, cast

from fastapi import Depends, Path, Query
from pydantic import ConfigDict, Field
from pydantic_core import from_json
from starlette.requests import Request
from starlette.responses import Response

from mail.auth.callers import Caller, check_caller_id
from mail.auth.tokens import MOST_DAYS, check_purpose, create_token, kind_of_token, revoke_token
from mail.auth.tokens import token_record as record_of
from mail.core.large import json_line
from mail.core.schema import check_task_id
from mail.core.tasks import MAILTask, TaskState
from mail.db.records import Owner, TaskRow, TokenRow
from mail.errors import ProtocolError
from mail.net.types import (
    GetAdminTasksResponse,
    GetTokensResponse,
    PostTokensResponse,
    TokenRecord,
)
from mail.server.answers import json_list, json_object, json_text, large_answer
from mail.server.bodies import RequestBody
from mail.server.deps import (
    ADMIN,
    Administrator,
    IdempotencyKey,
    OwnerName,
    State,
    owner_named,
    page_of,
)
from mail.server.idempotency import answered_once
from mail.server.openapi import errors
from mail.server.routing import MAILRouter
from mail.server.state import ServerState

_MOST_LOOKED_AT: Final = 2000
"""How many tasks one request searches; the next page goes on behind them."""
_AT_ONCE: Final = 100
_MAX_PAGE: Final = 200

_LINE: Final = r"^[^\x00-\x1f\x7f-\x9f]*$"

router = MAILRouter("tasks")
authority = MAILRouter("tokens")
"""Served when the server itself is the authority."""
_log = logging.getLogger("mail.server")

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


# --- tokens -----------------------------------------------------------------------------------


_PARTICIPANTS_ARE_AGENTS: Final[list[Any]] = [
    {"properties": {"role": {"const": "agent"}}},
    {"properties": {"participant": {"not": {"const": True}}}},
]


class TokenIn(RequestBody):
    """A token to make."""

    model_config = ConfigDict(json_schema_extra={"anyOf": _PARTICIPANTS_ARE_AGENTS})

    role: Annotated[Literal["user", "admin", "agent"], Field(description="The caller's role.")]
    id: Annotated[
        str,
        Field(
            min_length=1,
            max_length=256,
            pattern=_LINE,
            description="The caller's id; of the role `agent`, another swarm or a participant.",
            examples=["alice"],
        ),
    ]
    label: Annotated[
        Annotated[str, Field(max_length=200, pattern=_LINE)] | None,
        Field(description="A note for people."),
    ] = None
    days: Annotated[
        Annotated[float, Field(gt=0, lt=MOST_DAYS)] | None,
        Field(description="When it expires, in days from now; never by default."),
    ] = None
    participant: Annotated[
        bool | None,
        Field(description="With the role `agent`: it is the token of a participant."),
    ] = None


@authority.get("/tokens", dependencies=[Depends(ADMIN)], responses=errors(400, 404))
async def get_tokens(
    state: State,
    limit: Annotated[int, Query(ge=1, le=1000, description="The size of a page.")] = 100,
    cursor: Annotated[
        str | None, Query(max_length=64, description="The `next_cursor` of the previous page.")
    ] = None,
) -> GetTokensResponse:
    """List the access tokens, newest first, without the tokens themselves.

    404 when this server asks an external authority.
    """
    rows = list(reversed(await state.store.list_tokens()))
    if cursor is not None:
        places = [at for at, row in enumerate(rows) if row.token_hash == cursor]
        if not places:
            raise ProtocolError("cursor is not the 'next_cursor' of a page")
        rows = rows[places[0] + 1 :]
    page, last = page_of(rows, limit, lambda row: row.token_hash)
    return {"tokens": [_token(state, row) for row in page], "next_cursor": last}


@authority.post("/tokens", responses=errors(404))
@answered_once(keep=False, of_server=True)  # a token is not kept in the store
async def create_access_token(
    request: Request, state: State, caller: Administrator, body: TokenIn, key: IdempotencyKey = None
) -> PostTokensResponse:
    """Make an access token. It is shown in this answer only.

    A repeat with the same `Idempotency-Key` makes another token. 404 when this server asks an
    external authority.
    """
    template = state.template
    names = {each["name"] for each in template.participants}
    said = body.participant is True
    check_purpose(
        body.role, body.id, template.name, names, participant=said, flag='"participant": true'
    )
    token, row = await create_token(
        state.store, body.role, body.id, label=body.label or "", days=body.days
    )
    made = _token(state, row)
    _log.info("%s '%s' made %s", caller.role, caller.id, _told(made))
    return {**made, "token": token}


@authority.delete("/tokens/{prefix}", responses=errors(400, 404))
async def revoke_access_token(
    state: State,
    caller: Administrator,
    prefix: Annotated[
        str,
        Path(min_length=4, max_length=64, description="The beginning of the token's hash."),
    ],
) -> TokenRecord:
    """Revoke an access token, also one's own.

    Whoever has it is refused from then on: administrators and agents at once, users within a few
    seconds. 404 when this server asks an external authority.
    """
    revoked = _token(state, await revoke_token(state.store, prefix))
    _log.info("%s '%s' revoked %s", caller.role, caller.id, _told(revoked))
    return revoked


def _token(state: ServerState, row: TokenRow) -> TokenRecord:
    names: Sequence[str] = [each["name"] for each in state.template.participants]
    return cast("TokenRecord", record_of(row) | {"kind": kind_of_token(row, names)})


def _told(token: TokenRecord) -> str:
    return f"the token {token['hash']} of {token['role']} '{token['id']}'"

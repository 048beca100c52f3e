"""The caller's identity, and the built-in authority, also in the shape that servers expect."""

import logging
from typing import Annotated, Any, Final, Literal, cast

from fastapi import Depends, Path, Query
from pydantic import ConfigDict, Field
from starlette.requests import Request

from mail.auth.tokens import MOST_DAYS, check_purpose, create_token, kind_of_token, revoke_token
from mail.auth.tokens import token_record as record_of
from mail.db.records import TokenRow
from mail.errors import ProtocolError
from mail.net.types import (
    GetTokensResponse,
    GetWhoamiResponse,
    LoginResponse,
    PostTokensResponse,
    TokenInfo,
    TokenRecord,
)
from mail.server.bodies import RequestBody
from mail.server.deps import (
    ADMIN,
    Administrator,
    Anyone,
    BearerToken,
    IdempotencyKey,
    State,
    TaskOwner,
    page_of,
)
from mail.server.idempotency import answered_once
from mail.server.openapi import errors
from mail.server.routing import MAILRouter
from mail.server.state import ServerState

_LINE: Final = r"^[^\x00-\x1f\x7f-\x9f]*$"
_log = logging.getLogger("mail.server")

router = MAILRouter("tokens")
authority = MAILRouter("tokens")
"""Served when the server itself is the authority."""


@router.get("/whoami")
async def whoami(state: State, caller: TaskOwner) -> GetWhoamiResponse:
    """Get the caller's id and role.

    The role `agent` is a participant's; the servers of other swarms are refused.
    """
    answer: GetWhoamiResponse = {"id": caller.id, "role": caller.role, "username": caller.id}
    if state.is_participant(caller):
        answer["participant"] = True
    return answer


@authority.post("/auth/login", responses=errors(404))
@answered_once(keep=False)  # a token is not kept in the store
async def login(
    request: Request, state: State, caller: Anyone, token: BearerToken, key: IdempotencyKey = None
) -> LoginResponse:
    """Exchange a key for a token.

    For servers that use this one as their `AUTH_ENDPOINT`. The key is the bearer token. 404 when
    this server itself asks an external authority.
    """
    return {"token": token}


@authority.get("/auth/check", responses=errors(404))
async def check(caller: Anyone, token: BearerToken) -> TokenInfo:
    """Get the role and id that a token stands for.

    For servers that use this one as their `TOKEN_INFO_ENDPOINT`. 404 when this server itself asks
    an external authority.
    """
    return {"role": caller.role, "id": caller.id, "api_key": token}


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
    names = [each["name"] for each in state.template.participants]
    return cast("TokenRecord", record_of(row) | {"kind": kind_of_token(row, names)})


def _told(token: TokenRecord) -> str:
    return f"the token {token['hash']} of {token['role']} '{token['id']}'"

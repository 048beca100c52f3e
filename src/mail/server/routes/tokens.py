"""Who calls, and the built-in token authority in the shape that servers expect of one."""

from starlette.requests import Request

from mail.net.types import GetWhoamiResponse, LoginResponse, TokenInfo
from mail.server.deps import Anyone, BearerToken, IdempotencyKey, State, TaskOwner
from mail.server.idempotency import answered_once
from mail.server.openapi import errors
from mail.server.routing import MAILRouter

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

"""Teams over HTTP: ``/teams``; the rules are those of `mail.core.teams` and `mail.services.teams`.

The names of the fields are those of the tools ``teammate_message`` and ``teammate_broadcast``.
"""

from typing import Annotated, Final

from fastapi import Path
from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse

from mail.core.schema import MAX_ID
from mail.core.teams import Priority
from mail.net.types import (
    GetTeamsResponse,
    PostTeamBroadcastResponse,
    PostTeamMessageResponse,
    TeamReply,
    TeamWaitOutcome,
)
from mail.server.answers import CLIENT_GONE, while_connected
from mail.server.bodies import RequestBody
from mail.server.deps import BearerToken, IdempotencyKey, Participant, State
from mail.server.idempotency import answered_once
from mail.server.openapi import errors
from mail.server.routes.desk import RequestId
from mail.server.routes.interswarm import AuditedRoute
from mail.server.routing import MAILRouter
from mail.services.desk import MAX_WAIT_SECONDS
from mail.services.teams import TeamLetter

router = MAILRouter("teams", route_class=AuditedRoute)

_WAIT_SECONDS: Final = 60.0

PathTeamId = Annotated[str, Path(description="The team.")]
Text = Annotated[str, Field(min_length=1, description="The text.", examples=["Ready?"])]
Urgency = Annotated[
    Priority | None,
    Field(
        description="`urgent` if it wants attention at once.",
        json_schema_extra={"default": "normal"},
    ),
]
GivenRequestId = Annotated[
    RequestId | None,
    Field(
        alias="requestId",
        description="The caller's name for this request. A repeat with the same id and message "
        "sends nothing twice; another message with that id is 409. `Idempotency-Key` serves as "
        "one, too.",
    ),
]


class TeamMessageIn(RequestBody):
    """A message to one member of a team."""

    to: Annotated[
        str,
        Field(
            min_length=1,
            max_length=MAX_ID,
            description="The member's name, or `lead`.",
            examples=["lead"],
        ),
    ]
    message: Text
    priority: Urgency = None
    wait_for_reply: Annotated[
        bool | None,
        Field(
            alias="waitForReply",
            description="Wait for the member's reply. A request that waits counts as an open "
            "stream.",
            json_schema_extra={"default": False},
        ),
    ] = None
    timeout_seconds: Annotated[
        Annotated[float, Field(ge=0, le=MAX_WAIT_SECONDS, allow_inf_nan=False)] | None,
        Field(
            alias="timeoutSeconds",
            description="How long to wait. A later reply is an ordinary message.",
            json_schema_extra={"default": _WAIT_SECONDS},
        ),
    ] = None
    request_id: GivenRequestId = None


class TeamBroadcastIn(RequestBody):
    """A message to all members of a team."""

    message: Text
    priority: Urgency = None
    exclude_self: Annotated[
        bool | None,
        Field(
            alias="excludeSelf",
            description="Send no copy to the caller. The lead gets none in any case.",
            json_schema_extra={"default": False},
        ),
    ] = None
    request_id: GivenRequestId = None


@router.get("/teams")
async def get_teams(state: State, caller: Participant) -> GetTeamsResponse:
    """List the teams that the caller is in; none if teams are not enabled."""
    return {
        "teams": [
            {"id": team.team_id, "lead": team.lead, "members": list(team.members)}
            for team in state.team_desk.list_teams(caller.id)
        ]
    }


@router.post(
    "/teams/{team_id}/messages",
    response_model=PostTeamMessageResponse,
    responses=errors(404, 507),
)
@answered_once()
async def send_teammate_message(
    request: Request,
    state: State,
    caller: Participant,
    team_id: PathTeamId,
    body: TeamMessageIn,
    token: BearerToken,
    key: IdempotencyKey = None,
) -> JSONResponse:
    """Send a message to one member of a team that the caller is in, and maybe wait for its reply.

    When the answer comes, the message is stored. The reply is the first direct message of that
    member after it, unless that answers another message; it counts as read.
    """
    priority, request_id = body.priority or "normal", body.request_id or key or ""
    desk, where = state.team_desk, (caller.id, team_id, body.to, body.message)
    if not body.wait_for_reply:
        sent = await desk.message(*where, priority=priority, request_id=request_id)
        return JSONResponse(_told(sent))
    seconds = _WAIT_SECONDS if body.timeout_seconds is None else body.timeout_seconds
    waiting = desk.ask(*where, seconds=seconds, priority=priority, request_id=request_id)
    with state.quotas.stream(caller):
        found = await while_connected(request, waiting)
    if found is None:
        return JSONResponse(None, CLIENT_GONE)
    await state.auth.authenticate(token)  # it may have been revoked meanwhile
    return JSONResponse(_told(found) | _outcome(found))


def _told(found: TeamLetter) -> PostTeamMessageResponse:
    return {"messageId": found.sent.letter.letter_id, "delivered": True, "state": "stored"}


def _outcome(found: TeamLetter) -> TeamWaitOutcome:
    if found.reply is None:
        return {"status": "timeout"}
    reply: TeamReply = {
        "messageId": found.reply.letter_id,
        "from": found.route.reached[0],
        "message": found.reply.body,
    }
    return {"status": "replied", "reply": reply}


@router.post(
    "/teams/{team_id}/broadcasts",
    responses=errors(404, 507),
)
@answered_once()
async def send_teammate_broadcast(
    request: Request,
    state: State,
    caller: Participant,
    team_id: PathTeamId,
    body: TeamBroadcastIn,
    key: IdempotencyKey = None,
) -> PostTeamBroadcastResponse:
    """Send a message to all members of a team that the caller is in: to all, or to nobody.

    The lead gets it, too, unless it is the sender. Other senders get a copy of their own.
    """
    found = await state.team_desk.broadcast(
        caller.id,
        team_id,
        body.message,
        priority=body.priority or "normal",
        exclude_self=bool(body.exclude_self),
        request_id=body.request_id or key or "",
    )
    return {
        "messageId": found.sent.letter.letter_id,
        "deliveredTo": found.route.reached,
        "state": "stored",
    }

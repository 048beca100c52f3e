"""Teams over HTTP: ``/teams``; the rules are those of `mail.core.teams` and `mail.services.teams`.

The names of the fields are those of the tools ``teammate_message`` and ``teammate_broadcast``.
"""

from typing import Annotated

from fastapi import Path
from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from mail.core.schema import MAX_ID
from mail.core.teams import Priority
from mail.net.types import GetTeamsResponse, PostTeamBroadcastResponse, PostTeamMessageResponse
from mail.server.bodies import RequestBody
from mail.server.deps import IdempotencyKey, Participant, State
from mail.server.idempotent_response import answered_once
from mail.server.openapi import errors
from mail.server.routes.desk import RequestId
from mail.server.routes.interswarm import AuditedRoute
from mail.server.routing import MAILRouter

__all__ = ["router"]

router = MAILRouter("teams", route_class=AuditedRoute)

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


@router.get("/teams", response_model=GetTeamsResponse)
async def get_teams(state: State, caller: Participant) -> Response:
    """List the teams that the caller is in; none if teams are not enabled."""
    answer: GetTeamsResponse = {
        "teams": [
            {"id": team.team_id, "lead": team.lead, "members": list(team.members)}
            for team in state.team_desk.list_teams(caller.id)
        ]
    }
    return JSONResponse(answer)


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
    key: IdempotencyKey = None,
) -> JSONResponse:
    """Send a message to one member of a team that the caller is in.

    When the answer comes, the message is stored.
    """
    found = await state.team_desk.message(
        caller.id,
        team_id,
        body.to,
        body.message,
        priority=body.priority or "normal",
        request_id=body.request_id or key or "",
    )
    answer: PostTeamMessageResponse = {
        "messageId": found.sent.letter.letter_id,
        "delivered": True,
        "state": "stored",
    }
    return JSONResponse(answer)


@router.post(
    "/teams/{team_id}/broadcasts",
    response_model=PostTeamBroadcastResponse,
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
) -> JSONResponse:
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
    answer: PostTeamBroadcastResponse = {
        "messageId": found.sent.letter.letter_id,
        "deliveredTo": found.route.reached,
        "state": "stored",
    }
    return JSONResponse(answer)

"""Dependencies of routes: the server's state, the caller, and an audience for every route.

A route names its audience by depending on an `Audience`. `mail.server.routing.MAILRoute` admits it
before anything else is read.
"""

import re
from collections.abc import Callable, Sequence
from hmac import compare_digest
from typing import Annotated, Final, TypeVar

from fastapi import Depends, Header, Path, Query
from fastapi.openapi.models import HTTPBearer
from fastapi.security.base import SecurityBase
from pydantic import AfterValidator, BeforeValidator, WithJsonSchema
from starlette.requests import Request

from mail.auth.callers import ROLES, Caller, check_caller_id
from mail.auth.guards import bearer_token
from mail.config.env import setting
from mail.core.interswarm import PEER_ROLE
from mail.core.schema import MAX_ID
from mail.errors import Forbidden, ProtocolError
from mail.logcontext import note
from mail.server.exchange import caller_of, exchange_of
from mail.server.federation import swarms_of
from mail.server.intake import KEY_HEADER
from mail.server.letters import sender_token
from mail.server.state import PARTICIPANT_ROLE, ServerState, state_of

_KEY: Final = re.compile(r"[\x21-\x7e]{1,255}")
_FOR_DESK: Final = (
    "the mail desk takes a token of a participant that swarms.json declares (mail token create "
    "--role agent --id NAME --participant)"
)
_METRICS_TOKEN: Final = "MAIL_METRICS_TOKEN"  # noqa: S105 - its name
_EVENT_NUMBER: Final = re.compile(r"[0-9]{0,18}")
_OWNERS: Final = (*ROLES, PEER_ROLE)
_OWNER: Final = rf"^({'|'.join(_OWNERS)}):[^\x00-\x1f\x7f-\x9f]{{1,{MAX_ID}}}$"


async def _state(request: Request) -> ServerState:  # async: FastAPI runs functions in a thread
    return state_of(request)


async def _token(request: Request) -> str:
    return exchange_of(request).token


State = Annotated[ServerState, Depends(_state)]
BearerToken = Annotated[str, Depends(_token)]
"""The token of the caller that has been admitted."""


def _key(text: str) -> str:
    if not _KEY.fullmatch(text):
        raise ValueError("must be 1 to 255 visible ASCII characters")
    return text


def _number(text: object) -> object:
    """Read the number of an event; an empty text counts as none."""
    if not isinstance(text, str) or not _EVENT_NUMBER.fullmatch(text):
        raise ValueError("must be the number of an event")
    return int(text) if text else None


_Number = Annotated[
    int | None,
    BeforeValidator(_number),
    WithJsonSchema({"type": "string", "pattern": f"^{_EVENT_NUMBER.pattern}$"}),
]
IdempotencyKey = Annotated[
    Annotated[str, AfterValidator(_key)] | None,
    WithJsonSchema({"type": "string", "pattern": f"^{_KEY.pattern}$"}),
    Header(
        alias=KEY_HEADER,
        description="Identifies this request: 1 to 255 visible ASCII characters of the "
        "caller's choice. "
        "A repeat with the same key and body gets the first answer again, and nothing is done "
        "twice, also after a restart; another body with the same key is 409. A stream is repeated "
        "from the beginning, or after the event that `Last-Event-ID` names.",
    ),
]
LastEventId = Annotated[
    _Number,
    Header(
        alias="Last-Event-ID",
        description="The number of the last event that arrived; readers that reconnect by "
        "themselves send it.",
    ),
]
After = Annotated[
    _Number,
    Query(
        description="The number of the last event that is known. `Last-Event-ID` takes precedence."
    ),
]


EventsAfter = Annotated[
    _Number,
    Query(description="Only events with a greater number: the `next_after` of the previous page."),
]


OwnerName = Annotated[
    Annotated[str, WithJsonSchema({"type": "string", "pattern": _OWNER})] | None,
    Query(
        description="Administrators only: whose task it is, as `role:id`, for example "
        "`user:alice`, or `swarm:NAME` for another swarm's. Your own by default.",
    ),
]


MessageNumber = Annotated[int, Path(ge=1, lt=2**63, description="The number of the message.")]

Row = TypeVar("Row")
Place = TypeVar("Place")


def page_of(
    rows: Sequence[Row], limit: int, place: Callable[[Row], Place]
) -> tuple[Sequence[Row], Place | None]:
    """Return a page of rows, and the place of its last one if more rows come behind.

    Args:
        rows: The rows that were found: one more than a page has, if there are more.
        limit: The size of the page.
        place: Tells the place of a row.
    """
    return rows[:limit], place(rows[limit - 1]) if len(rows) > limit else None


def owner_named(text: str) -> Caller:
    """Return the caller that ``role:id`` names.

    Raises:
        ProtocolError: it names none.
    """
    role, _, identifier = text.partition(":")
    if role not in _OWNERS:
        raise ProtocolError("owner is written role:id, for example user:alice, or swarm:NAME")
    return Caller(role, check_caller_id(identifier))


Prefer = Annotated[
    str | None,
    Header(
        alias="Prefer",
        description="`respond-async`: answer with 202 as soon as the message is stored. Ignored "
        "with `stream`, as are other preferences.",
    ),
]


class Audience:
    """The callers that may use a route. This one is everybody, with or without a token."""

    roles: frozenset[str] = frozenset()

    async def admit(self, request: Request) -> None:
        """Let the request pass."""

    async def __call__(self, request: Request) -> object:
        """Depend on this to name the audience of a route."""


class Roles(Audience, SecurityBase):
    """Callers with one of some roles; as a dependency it yields the caller.

    In the OpenAPI document it is the scheme by which a caller says who it is.
    """

    def __init__(self, *roles: str) -> None:
        self.roles = frozenset(roles)
        self.scheme_name = "bearer"
        self.model = HTTPBearer(
            description="A token from `mail token create` or from the external authority. It "
            "identifies the caller by a role and an id."
        )

    async def admit(self, request: Request) -> None:
        """Authenticate the caller, once per request.

        Raises:
            Unauthenticated: no token, or one that the authority refuses.
            AuthUnavailable: the authority did not answer.
            Forbidden: the caller's role is not in the audience.
        """
        state, exchange = state_of(request), exchange_of(request)
        token = bearer_token(request)
        caller = await state.auth.authenticate(token)
        note(caller_role=caller.role, caller_id=caller.id)
        exchange.caller, exchange.token = caller, token
        if caller.role not in self.roles:
            raise Forbidden(self._refusal(state, caller))

    def _refusal(self, state: ServerState, caller: Caller) -> str:
        """Say which token it takes, and to participants which routes are theirs."""
        text = f"invalid role: this requires {' or '.join(sorted(self.roles))}"
        if state.is_participant(caller):
            text += (
                f"; '{caller.id}' is a participant, whose routes are /messages, /threads, /teams, "
                "/files and /tasks"
            )
        return text

    async def __call__(self, request: Request) -> Caller:
        """Return the caller that was admitted."""
        return caller_of(request)


class Scrapers(Roles):
    """Administrators, and whoever has the token for the metrics alone, which needs no store."""

    async def admit(self, request: Request) -> None:
        """Admit that token, else an administrator's; see `Roles.admit`."""
        own, given = setting(_METRICS_TOKEN), bearer_token(request)
        if own and compare_digest(given.encode(), own.encode()):
            exchange_of(request).waited = True  # it is no stranger
        else:
            await super().admit(request)


class Peers(Roles):
    """Other swarms, where the swarm that is served exchanges mail with them.

    As a dependency it yields the caller; `peer_name` tells which swarm that speaks for.
    """

    def __init__(self) -> None:
        super().__init__("agent")

    async def admit(self, request: Request) -> None:
        """Find out for which swarm the caller speaks.

        Raises:
            UnknownSwarm: the served swarm exchanges no mail.
            Forbidden, ProtocolError: the caller speaks for no registered swarm, or is a
                participant of this one.
            Unauthenticated: the request is not signed as that swarm must sign.
        """
        await super().admit(request)
        state, caller = state_of(request), caller_of(request)
        if state.is_participant(caller):
            raise Forbidden(
                f"'{caller.id}' is a participant of the swarm: its token is for the mail desk, "
                "not for mail between swarms"
            )
        federation = state.federation
        federation.check_enabled()
        exchange = exchange_of(request)
        exchange.peer = federation.peer_of(caller)
        exchange.body_check = federation.check_signature(request, exchange.peer)


class Mailboxes(Roles):
    """Participants that the swarm declares, and operators where another role is named, too."""

    async def admit(self, request: Request) -> None:
        """Check that a caller of the role ``agent`` is a participant, and no peer.

        Raises:
            Forbidden: it is none, or also a registered swarm.
        """
        await super().admit(request)
        state, caller = state_of(request), caller_of(request)
        if caller.role != PARTICIPANT_ROLE:
            return
        if not state.is_participant(caller):
            raise Forbidden(
                f"invalid role: '{caller.id}' is no participant of the swarm; {_FOR_DESK}"
            )
        if swarms_of(state.registry, caller):
            raise Forbidden(
                f"'{caller.id}' is both a participant and a registered swarm, so its tokens count "
                "as neither's; an administrator renames one of them"
            )
        sender_token.set(exchange_of(request).token)  # each request has a context of its own

    def _refusal(self, state: ServerState, caller: Caller) -> str:
        """Say which token it takes, and where people write to the swarm."""
        return f"invalid role: {_FOR_DESK}; users write to the swarm with POST /message"


PUBLIC: Final = Audience()
AUTHENTICATED: Final = Roles("admin", "user", "agent")
PEOPLE: Final = Roles("admin", "user")
ADMIN: Final = Roles("admin")
SCRAPERS: Final = Scrapers("admin")
PEERS: Final = Peers()
PARTICIPANTS: Final = Mailboxes(PARTICIPANT_ROLE)
DESK_READERS: Final = Mailboxes(PARTICIPANT_ROLE, "admin")
TASK_OWNERS: Final = Mailboxes(PARTICIPANT_ROLE, "admin", "user")

Anyone = Annotated[Caller, Depends(AUTHENTICATED)]
Person = Annotated[Caller, Depends(PEOPLE)]
Administrator = Annotated[Caller, Depends(ADMIN)]
Peer = Annotated[Caller, Depends(PEERS)]
Participant = Annotated[Caller, Depends(PARTICIPANTS)]
DeskReader = Annotated[Caller, Depends(DESK_READERS)]
TaskOwner = Annotated[Caller, Depends(TASK_OWNERS)]
"""The callers that may have tasks, and so tools: all but other swarms."""


def peer_name(request: Request) -> str:
    """Return the swarm that a request of another swarm's server comes from."""
    return exchange_of(request).peer

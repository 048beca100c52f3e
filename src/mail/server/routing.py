"""The class of our routes: who calls is settled first, and every body is read as JSON."""

import inspect
import re
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from fastapi import APIRouter
from fastapi.dependencies.models import Dependant
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import ASGIApp, Receive, Scope, Send

from mail.errors import ConfigError
from mail.server.bodies import RequestBody, check_query
from mail.server.deps import GIVEN, Audience, audience_of, given
from mail.server.intake import read_body, with_body
from mail.server.openapi import answer_headers, errors
from mail.server.strangers import ALWAYS_ANSWERED

Handler = Callable[[Request], Coroutine[Any, Any, Response]]

_PARAMETER: Final = re.compile(r"\{[^}]*\}")
_BETWEEN_SWARMS: Final = "/interswarm/"
_EVERY: Final = (414, 415, 431, 500)
_CALLER: Final = (401, 403, 429, 503)
_POSTED: Final = (400, 408, 409, 413, 503)


class MAILRoute(APIRoute):
    """A route that admits its audience before it reads a body, and reads every body as JSON.

    FastAPI alone would read a body before any dependency has seen who sends it.

    In the OpenAPI document the first line of the endpoint's docstring is the summary, the rest the
    description. Roles, and what every route, every POST and every route for callers can answer,
    are added to what the route itself says.

    Raises:
        ConfigError: the route declares no audience. What is not allowed is denied.
    """

    error_schema = "ErrorAnswer"
    """The schema of its errors; the usual one when empty."""
    foreign = False
    """Whether its requests are of a protocol where unknown parameters are usual."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        super().__init__(path, endpoint, **options)
        audience = self._audience()
        roles = sorted(audience.roles)
        self._fixed = tuple(filter(None, _PARAMETER.split(path)))
        summary, _, text = self.description.partition("\n")
        who = f"For {_listed(roles)}." if roles else "For everybody."
        self.summary = summary.rstrip(".")
        self.description = f"{who} {text.strip()}".strip()
        self.responses = self.responses | _responses(self, audience)
        self.openapi_extra = {
            "x-mail-roles": roles,
            **({} if roles else {"security": []}),
            **(self.openapi_extra or {}),
        }
        direct = _Endpoint.of(self.dependant, _body_model(self))
        if direct is not None:
            self.app = self._shorter(direct, self.app)

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Tell whether a request is for this route; most routes see quickly that it is not."""
        path = scope["path"]
        if not scope.get("root_path") and not path.startswith(self._fixed[0]):
            return Match.NONE, {}
        for part in self._fixed:
            if part not in path:
                return Match.NONE, {}
        return super().matches(scope)

    def _shorter(self, endpoint: "_Endpoint", whole: ASGIApp) -> ASGIApp:
        """Return an application that goes through FastAPI only when a request needs it."""
        audience = self._audience()

        async def answer(request: Request) -> Response:
            await _admit(request, audience)
            return await endpoint.answer(request)

        handler = self.guarded(answer)

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            if endpoint.suffices(scope):
                response = await handler(Request(scope, receive, send))
                await response(scope, receive, send)
            else:
                await whole(scope, receive, send)

        return app

    def guarded(self, handler: Handler) -> Handler:
        """Return a handler that answers to the errors which the route answers to by itself."""
        return handler

    def get_route_handler(self) -> Handler:
        """Return the handler; see `APIRoute.get_route_handler`."""
        handler = super().get_route_handler()
        audience, model = self._audience(), _body_model(self)
        known = frozenset(_query_names(self.dependant))
        foreign = self.foreign or self.path.startswith(_BETWEEN_SWARMS)

        async def answer(request: Request) -> Response:
            await _admit(request, audience)
            if request.scope["query_string"] and known and not foreign:
                check_query(request.query_params, known, request.scope["path"])
            if model is not None:
                request = await with_body(request, model)
            return await handler(request)

        return self.guarded(answer)

    def _audience(self) -> Audience:
        audience = audience_of(self)
        if audience is None:
            raise ConfigError(f"route {self.path!r} declares no audience")
        return audience


class MAILRouter(APIRouter):
    """A router of such routes."""

    def __init__(
        self,
        *tags: str,
        route_class: type[MAILRoute] = MAILRoute,
        include_in_schema: bool = True,
    ) -> None:
        super().__init__(
            tags=[*tags],
            route_class=route_class,
            include_in_schema=include_in_schema,
            generate_unique_id_function=_name_of,
            strict_content_type=False,  # a `JSONRequest` has no content type
        )


async def _admit(request: Request, audience: Audience) -> None:
    await audience.admit(request)
    if request.scope["path"].endswith("\n"):  # routing lets a line feed there fall away
        raise HTTPException(404)


@dataclass(frozen=True, slots=True)
class _Endpoint:
    """An endpoint that can be called as it is when none of its optional parameters was sent.

    FastAPI takes longer over what is not there than over all else.

    Attributes:
        call: The endpoint.
        readers: Parameter to the name of its value in `mail.server.deps.given`.
        places: FastAPI's fields of the parameters of the path.
        body: The name and the model of the body, if there is one.
        headers: The headers that it may be sent.
        asks: Whether it has parameters in the query.
    """

    call: Callable[..., Awaitable[Response]]
    readers: Mapping[str, str]
    places: Sequence[Any]
    body: tuple[str, type[RequestBody]] | None
    headers: frozenset[bytes]
    asks: bool

    @classmethod
    def of(cls, whole: Dependant, model: type[RequestBody] | None) -> "_Endpoint | None":
        """Return a route's endpoint; None when it needs FastAPI for every request."""
        call, optional = whole.call, [*whole.header_params, *whole.query_params]
        if call is None or not _answers(call) or whole.cookie_params:
            return None
        if whole.path_params and model is not None:  # FastAPI tells what is wrong with both
            return None
        if any(parameter.field_info.is_required() for parameter in optional):
            return None
        readers: dict[str, str] = {}
        if whole.request_param_name:
            readers[whole.request_param_name] = "request"
        for each in whole.dependencies:
            what = GIVEN.get(type(each.call), GIVEN.get(each.call))
            if what is None:
                return None
            if each.name is not None:
                readers[each.name] = what
        headers = frozenset(header.alias.lower().encode() for header in whole.header_params)
        body = None if model is None else (whole.body_params[0].name, model)
        return cls(call, readers, whole.path_params, body, headers, bool(whole.query_params))

    def suffices(self, scope: Scope) -> bool:
        """Tell whether a request has none of the optional parameters."""
        if self.asks and scope["query_string"]:
            return False
        return self.headers.isdisjoint([name for name, _ in scope["headers"]])

    async def answer(self, request: Request) -> Response:
        """Call the endpoint."""
        known = given(request)
        values = {name: known[what] for name, what in self.readers.items()}
        if self.places:
            values |= self._placed(request.scope["path_params"])
        if self.body is not None:
            name, model = self.body
            values[name] = await read_body(request, model)
        return await self.call(**values)

    def _placed(self, parts: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values of the path's parameters.

        Raises:
            RequestValidationError: one is not what it may be.
        """
        values, problems = {}, []
        for place in self.places:
            values[place.name], found = place.validate(
                parts[place.alias], loc=("path", place.alias)
            )
            problems += found
        if problems:
            raise RequestValidationError(problems)
        return values


def _query_names(dependant: Dependant) -> Iterator[str]:
    """Yield the parameters of the query that an endpoint and its dependencies take."""
    for parameter in dependant.query_params:
        yield parameter.alias
    for inner in dependant.dependencies:
        yield from _query_names(inner)


def _answers(call: Callable[..., Any]) -> bool:
    """Tell whether an endpoint says that it returns a response, not what one is made of."""
    returned = inspect.signature(call).return_annotation
    return inspect.isclass(returned) and issubclass(returned, Response)


def _name_of(route: APIRoute) -> str:
    return route.name


def _listed(roles: list[str]) -> str:
    *most, last = (f"`{role}`" for role in roles)
    return f"{', '.join(most)} and {last}" if most else last


def _responses(route: MAILRoute, audience: Audience) -> dict[int | str, dict[str, Any]]:
    posted = "POST" in (route.methods or ())
    statuses = {*_EVERY, *(_CALLER if audience.roles else ()), *(_POSTED if posted else ())}
    if route.path not in ALWAYS_ANSWERED:
        statuses.add(503)
    done = {
        "description": "Success.",
        "headers": answer_headers(repeated=posted),
        **route.responses.get(200, {}),
    }
    return {route.status_code or 200: done} | errors(*sorted(statuses), schema=route.error_schema)


def _body_model(route: APIRoute) -> type[RequestBody] | None:
    model = route.body_field.field_info.annotation if route.body_field else None
    if model is None:
        return None
    if not (inspect.isclass(model) and issubclass(model, RequestBody)):
        raise ConfigError(f"route {route.path!r}: its body must be a RequestBody")
    return model

"""The class of our routes: who calls is settled first, and every body is read as JSON."""

import inspect
import re
from collections.abc import Callable, Coroutine
from typing import Any, Final

from fastapi import APIRouter
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import Receive, Scope, Send

from mail.errors import ConfigError
from mail.server.answers import as_response
from mail.server.at_work import ALWAYS_ANSWERED
from mail.server.bodies import RequestBody, check_query
from mail.server.deps import Audience
from mail.server.exchange import exchange_of
from mail.server.intake import read_body
from mail.server.openapi import answer_headers, errors

Handler = Callable[[Request], Coroutine[Any, Any, Response]]

_PARAMETER: Final = re.compile(r"\{[^}]*\}")
_BETWEEN_SWARMS: Final = "/interswarm/"
_EVERY: Final = (414, 415, 431, 500)
_CALLER: Final = (401, 403, 429, 503)
_POSTED: Final = (400, 408, 409, 413, 503)


class MAILRoute(APIRoute):
    """A route that admits its audience before it reads a body, and reads every body as JSON.

    FastAPI alone would read a body before any dependency has seen who sends it. Its signatures are
    used as they are: parameters of the path, the query and the headers, one `RequestBody`, and
    dependencies on the request alone. An endpoint returns what its answer's JSON is made of, as its
    annotation describes it, or a response.

    In the OpenAPI document the first line of the endpoint's docstring is the summary, the rest the
    description. Roles, and what every route, every POST and every route for callers can answer,
    are added to what the route itself says.

    Raises:
        ConfigError: the route declares no audience (what is not allowed is denied), or takes
            something else.
    """

    error_schema = "ErrorAnswer"
    """The schema of its errors; the usual one when empty."""
    foreign = False
    """Whether its requests are of a protocol where unknown parameters are usual."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        super().__init__(path, endpoint, **options)
        asked = self.dependant
        self._fixed = tuple(filter(None, _PARAMETER.split(path)))
        self._parameters = [
            ("path", asked.path_params),
            ("query", asked.query_params),
            ("header", asked.header_params),
        ]
        self._names = frozenset(parameter.alias for parameter in asked.query_params)
        self._given = [
            (each.name, each.call) for each in asked.dependencies if each.name and each.call
        ]
        if asked.request_param_name:
            self._given.append((asked.request_param_name, _itself))
        self.audience = self._only_audience()
        self._body = self._only_body()
        self._answer = self.guarded(self._resolved)
        self.app = self._serve
        self._describe()

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Tell whether a request is for this route; most routes see quickly that it is not."""
        path = scope["path"]
        if not scope.get("root_path") and not path.startswith(self._fixed[0]):
            return Match.NONE, {}
        for part in self._fixed:
            if part not in path:
                return Match.NONE, {}
        if path.endswith("\n"):  # the pattern would let it fall away
            return Match.NONE, {}
        return super().matches(scope)

    def guarded(self, handler: Handler) -> Handler:
        """Return a handler that answers to the errors which the route answers to by itself."""
        return handler

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive, send)
        exchange_of(request).route = self.path_format
        response = await self._answer(request)
        await response(scope, receive, send)

    async def _resolved(self, request: Request) -> Response:
        """Admit the caller, read what the endpoint asks for, and call it."""
        await self.audience.admit(request)
        values = self._read_parameters(request)
        for name, call in self._given:
            values[name] = await call(request)
        if self._body is not None:
            name, model = self._body
            values[name] = await read_body(request, model)
        if self.audience.roles:
            await exchange_of(request).begins()
        return as_response(await self.endpoint(**values))

    def _read_parameters(self, request: Request) -> dict[str, Any]:
        """Return the values of the parameters of the path, the query and the headers.

        Raises:
            ProtocolError: one of the query is misspelt.
            RequestValidationError: one is not what it may be, or absent though it must be there.
        """
        received: dict[str, Any] = {"path": request.path_params, "header": request.headers}
        received["query"] = {}
        if self._names and request.scope["query_string"]:
            received["query"] = request.query_params
            if not (self.foreign or self.path.startswith(_BETWEEN_SWARMS)):
                check_query(request.query_params, self._names, request.scope["path"])
        values: dict[str, Any] = {}
        problems: list[Any] = []
        for place, parameters in self._parameters:
            for each in parameters:
                loc, value = (place, each.alias), received[place].get(each.alias)
                if value is not None:
                    values[each.name], found = each.validate(value, loc=loc)
                    problems += found
                elif each.field_info.is_required():
                    problems.append({"type": "missing", "loc": loc, "msg": "Field required"})
                else:
                    values[each.name] = each.get_default()
        if problems:
            raise RequestValidationError(problems)
        return values

    def _only_audience(self) -> Audience:
        calls = (dependency.call for dependency in self.dependant.dependencies)
        audience = next((call for call in calls if isinstance(call, Audience)), None)
        if audience is None:
            raise ConfigError(f"route {self.path!r} declares no audience")
        return audience

    def _only_body(self) -> tuple[str, type[RequestBody]] | None:
        if self.body_field is None:
            return None
        model = self.body_field.field_info.annotation
        if not (inspect.isclass(model) and issubclass(model, RequestBody)):
            raise ConfigError(f"route {self.path!r}: its body must be a RequestBody")
        return self.dependant.body_params[0].name, model

    def _describe(self) -> None:
        """Say in the OpenAPI document who may call, and what may be answered."""
        roles = sorted(self.audience.roles)
        summary, _, text = self.description.partition("\n")
        *most, last = [f"`{role}`" for role in roles] or ["everybody"]
        who = f"{', '.join(most)} and {last}" if most else last
        self.summary = summary.rstrip(".")
        self.description = f"For {who}. {text.strip()}".strip()
        self.openapi_extra = {
            "x-mail-roles": roles,
            **({} if roles else {"security": []}),
            **(self.openapi_extra or {}),
        }
        posted = "POST" in (self.methods or ())
        statuses = {*_EVERY, *(_CALLER if roles else ()), *(_POSTED if posted else ())}
        if self.path not in ALWAYS_ANSWERED:
            statuses.add(503)
        done = {
            "description": "Success.",
            "headers": answer_headers(repeated=posted),
            **self.responses.get(200, {}),
        }
        self.responses |= {self.status_code or 200: done}
        self.responses |= errors(*sorted(statuses), schema=self.error_schema)


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
            generate_unique_id_function=lambda route: route.name,
        )


async def _itself(request: Request) -> Request:
    return request

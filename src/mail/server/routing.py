"""The class of our routes: who calls is settled first, and every body is read as JSON."""

import inspect
from collections.abc import Callable, Coroutine
from dataclasses import replace
from functools import wraps
from typing import Any, Final

from fastapi import APIRouter
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response

from mail.errors import ConfigError, ProtocolError
from mail.server.bodies import RequestBody, with_body
from mail.server.deps import GIVEN, Audience, audience_of
from mail.server.middleware import ALWAYS_ANSWERED
from mail.server.openapi import answer_headers, errors

__all__ = ["MAILRoute", "MAILRouter"]

_EVERY: Final = (415, 431, 500)
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

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        super().__init__(path, endpoint, **options)
        audience = self._audience()
        roles = sorted(audience.roles)
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

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler; see `APIRoute.get_route_handler`."""
        handler = super().get_route_handler()
        audience = self._audience()
        model = _body_model(self)
        options = _options(self.dependant)
        plain = handler
        if options is not None:
            whole, self.dependant = self.dependant, _plain(self.dependant)
            plain = super().get_route_handler()
            self.dependant = whole

        async def answer(request: Request) -> Response:
            await audience.admit(request)
            if request.scope["path"].endswith("\n"):  # routing lets a line feed there fall away
                raise ProtocolError("the path must not end in a line feed")
            if model is not None:
                request = await with_body(request, model)
            names = (name for name, _ in request.scope["headers"])
            sent = options is None or not options.isdisjoint(names)
            return await (handler if sent or request.scope["query_string"] else plain)(request)

        return answer

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


def _options(dependant: Dependant) -> frozenset[bytes] | None:
    """Return the headers that a route may be sent; None when it needs any parameter."""
    parameters = [*dependant.header_params, *dependant.query_params]
    if any(parameter.field_info.is_required() for parameter in parameters):
        return None
    return frozenset(header.alias.lower().encode() for header in dependant.header_params)


def _plain(whole: Dependant) -> Dependant:
    """Return what a route depends on when none of its optional parameters was sent.

    What `GIVEN` has is read from the request. FastAPI takes longer over both than over all else.
    """
    call, takes_request = whole.call, whole.request_param_name
    readers = {
        each.name: GIVEN.get(type(each.call), GIVEN.get(each.call)) for each in whole.dependencies
    }
    if call is None or not all(readers.values()):
        return replace(whole, header_params=[], query_params=[])

    @wraps(call)
    async def endpoint(request: Request, **values: Any) -> Any:
        for name, read in readers.items():
            if name is not None and read is not None:
                values[name] = read(request)
        if takes_request:
            values[takes_request] = request
        return await call(**values)

    return replace(
        whole,
        header_params=[],
        query_params=[],
        dependencies=[],
        request_param_name="request",
        call=endpoint,
    )


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
    return {200: done} | errors(*sorted(statuses), schema=route.error_schema)


def _body_model(route: APIRoute) -> type[RequestBody] | None:
    model = route.body_field.field_info.annotation if route.body_field else None
    if model is None:
        return None
    if not (inspect.isclass(model) and issubclass(model, RequestBody)):
        raise ConfigError(f"route {route.path!r}: its body must be a RequestBody")
    return model

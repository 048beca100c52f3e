"""The server and its swarm: ``/``, ``/health``, ``/metrics``, ``/nodes``, ``/status``."""

import asyncio
import os
import re
import socket
from typing import Annotated, Final, cast

from fastapi import Depends
from pydantic import Field, field_validator
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from mail.auth.builtin import BuiltinAuth
from mail.config.server import answers_to
from mail.db.nodes import Node
from mail.net.types import (
    GetHealthResponse,
    GetNodesResponse,
    GetReadyResponse,
    GetRootResponse,
    GetStatusResponse,
    NodeRecord,
)
from mail.server.bodies import RequestBody
from mail.server.deps import PUBLIC, SCRAPERS, Administrator, IdempotencyKey, Person, State
from mail.server.errors import RETRY_AFTER
from mail.server.figures import to_text
from mail.server.idempotency import answered_once
from mail.server.openapi import RETRY_LATER, answer_headers
from mail.server.routes.pages import landing_page, prefers_html
from mail.server.routing import MAILRouter
from mail.server.state import ServerState, owner_of
from mail.version import get_protocol_version, get_version

_UNAVAILABLE: Final = 503
_UNSEEN: Final = r"\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff"
"""A class of characters: control, and what is invisible or turns the writing direction."""
_PRINTABLE: Final = rf"^[^{_UNSEEN}]*[^{_UNSEEN}\s][^{_UNSEEN}]*$"
_DOCUMENT: Final = {"schema": {"type": "object", "description": "This document."}}

_DRAINING: Final = {
    "description": "The server is shutting down.",
    "headers": {**answer_headers(repeated=False), **RETRY_LATER},
    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/GetHealthResponse"}}},
}

_NOT_READY: Final = {
    "description": "The server should get no work.",
    "headers": {**answer_headers(repeated=False), **RETRY_LATER},
    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/GetReadyResponse"}}},
}

router = MAILRouter()


class HealthIn(RequestBody):
    """A status for ``GET /health``."""

    status: Annotated[
        str,
        Field(
            min_length=1,
            max_length=256,
            description="Printable text: not blank, without control or invisible characters.",
            json_schema_extra={"pattern": _PRINTABLE},
            examples=["healthy"],
        ),
    ]

    @field_validator("status", mode="after")
    @classmethod
    def _printable(cls, value: str) -> str:
        if not value.strip() or re.search(f"[{_UNSEEN}]", value):
            raise ValueError("must be printable text: not blank, no control characters")
        return value


@router.get(
    "/",
    tags=["server"],
    dependencies=[Depends(PUBLIC)],
    response_model=GetRootResponse,
    responses={200: {"content": {"text/html": {"schema": {"type": "string"}}}}},
)
async def root(request: Request, state: State) -> Response:
    """Get the version of the server and the swarm that it serves.

    A page with the same facts for browsers, that is, if `Accept` ranks `text/html` above
    `application/json`.
    """
    template = state.template
    answer: GetRootResponse = {
        "name": "mail",
        "version": get_version(),
        "protocol_version": get_protocol_version(),
        "swarm": {
            "name": template.name,
            "version": template.version,
            "description": template.description,
            "entrypoint": template.entrypoint,
            "keywords": list(template.keywords),
            "public": template.public,
        },
        "status": "draining" if state.draining else "running",
        "uptime": state.uptime,
    }
    if prefers_html(",".join(request.headers.getlist("accept"))):
        config = state.config
        if not answers_to(config, request.headers.get("host", "")):
            request = Request({**request.scope, "headers": []})  # it has the socket's address then
        return landing_page(
            answer,
            config.federation.base_url or str(request.base_url),
            console=config.console,
            docs=config.docs,
            own_tokens=isinstance(state.auth, BuiltinAuth),
        )
    return JSONResponse(answer, headers={"Vary": "Accept"})


@router.get(
    "/openapi.yaml",
    tags=["server"],
    dependencies=[Depends(PUBLIC)],
    response_class=Response,
    responses={200: {"content": {"application/yaml": _DOCUMENT}}},
)
async def openapi_yaml(state: State) -> Response:
    """Get this document as YAML."""
    # In a thread: it is made at the first call, which takes a moment.
    made = await asyncio.to_thread(lambda: state.document.as_yaml)
    return Response(made, media_type="application/yaml")


@router.get(
    "/openapi.json",
    tags=["server"],
    dependencies=[Depends(PUBLIC)],
    response_class=Response,
    responses={200: {"content": {"application/json": _DOCUMENT}}},
)
async def openapi_json(state: State) -> Response:
    """Get this document as JSON."""
    made = await asyncio.to_thread(lambda: state.document.as_json)
    return Response(made, media_type="application/json")


@router.get(
    "/health",
    tags=["server"],
    dependencies=[Depends(PUBLIC)],
    response_model=GetHealthResponse,
    responses={503: _DRAINING},
)
async def health(state: State) -> JSONResponse:
    """Check whether the server accepts work.

    200 while it does; 503, in the same shape, while the server shuts down.
    """
    if state.draining:
        answer = _health(state) | {"status": "draining"}
        return JSONResponse(answer, _UNAVAILABLE, {"Retry-After": RETRY_AFTER})
    # The store fails: it does not answer, or it has failed the work of an instance.
    fails = state.pool.degraded or await state.health.store_fails()
    return JSONResponse(_health(state) | ({"status": "degraded"} if fails else {}))


@router.get(
    "/health/ready",
    tags=["server"],
    dependencies=[Depends(PUBLIC)],
    response_model=GetReadyResponse,
    responses={503: _NOT_READY},
)
async def ready(state: State) -> JSONResponse:
    """Check whether the server should get work.

    200 while it should; 503 with the reasons while it shuts down, or its store does not work. A
    load balancer asks this; `GET /health` tells whether the process is alive.
    """
    reasons = ["the server is shutting down"] if state.leaving or state.draining else []
    if state.pool.degraded or await state.health.store_fails():
        reasons.append("the store does not work")
    if reasons:
        answer = {"status": "not ready", "reasons": reasons}
        return JSONResponse(answer, _UNAVAILABLE, {"Retry-After": RETRY_AFTER})
    return JSONResponse({"status": "ready", "reasons": []})


@router.get("/nodes", tags=["server"])
async def nodes(state: State, caller: Administrator) -> GetNodesResponse:
    """List the processes that share the store, and with it the tasks: one, unless on PostgreSQL.

    Programs that work on tasks with the library are among them.
    """
    found = await state.store.nodes() or [_only_node(state)]
    return {"nodes": [cast("NodeRecord", node._asdict()) for node in found]}


def _only_node(state: ServerState) -> Node:
    """Return the process as the one node of a store that is not shared."""
    return Node(
        *(state.store.driver.node, socket.gethostname(), os.getpid(), get_version()),
        *(state.announcements.swarm, state.uptime, 0.0, state.pool.open_tasks),
    )


@router.post("/health", tags=["server"])
@answered_once(of_server=True)
async def health_post(
    request: Request,
    state: State,
    caller: Administrator,
    body: HealthIn,
    key: IdempotencyKey = None,
) -> GetHealthResponse:
    """Set the status that GET /health shows.

    It informs load balancers and people, and changes nothing else.
    """
    await state.announcements.tell("health", state.health.set(body.status))
    return _health(state)


@router.get(
    "/metrics",
    tags=["server"],
    dependencies=[Depends(SCRAPERS)],
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
)
async def get_metrics(state: State) -> Response:
    """Get figures for Prometheus in its text format.

    The token in the server's `MAIL_METRICS_TOKEN` may read them, too, and nothing else.
    """
    swarm = str(state.template.name)
    turns = len(state.pool.turns_at_work(swarm))
    stored = (await state.figures.look()).answer
    node = state.store.driver.node if state.config.workers > 1 else ""
    text = await asyncio.to_thread(to_text, swarm, turns, stored, node)
    return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")


@router.get("/status", tags=["server"])
async def status(state: State, caller: Person) -> GetStatusResponse:
    """Get the state of the swarm and of the caller's work.

    `active_users` counts the callers who have tasks that run or wait for their turn, on all
    servers of the swarm. `user_task_running` tells whether the caller has one. `user_mail_ready`
    tells whether a message of the caller would be processed now: it is false while the server shuts
    down or cannot reach its store. `storage` is what the caller's tasks,
    memories and idempotency keys take.
    """
    owner = owner_of(state, caller)
    running = await state.store.running_owners(owner.swarm)
    use = await state.shares.use(owner)
    return {
        "swarm": {"name": state.template.name, "status": "ready"},
        "active_users": len(running),
        "user_mail_ready": not (state.draining or state.pool.degraded),
        "user_task_running": owner in running,
        "storage": {
            "bytes": use.bytes,
            "max_bytes": state.config.limits.max_stored_bytes or None,
            "tasks": use.tasks,
            "open_tasks": use.open_tasks,
        },
    }


def _health(state: ServerState) -> GetHealthResponse:
    return {
        "status": state.health.status,
        "swarm_name": state.template.name,
        "timestamp": state.health.set_at,
    }

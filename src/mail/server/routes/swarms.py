"""The swarm that is served, and the registry of others: ``/swarms…``."""

import asyncio
import logging
from collections import Counter
from typing import Annotated, Any, Final

from fastapi import Depends, Path, Query
from pydantic import BeforeValidator, Field
from starlette.requests import Request
from starlette.responses import JSONResponse

from mail.auth.callers import Caller, check_caller_id
from mail.errors import UnknownSwarm
from mail.net.endpoints import cleaned, token_variable
from mail.net.registry import SwarmRegistry
from mail.net.signatures import KEYS_PATH
from mail.net.types import (
    DeleteSwarmResponse,
    GetRegistryResponse,
    GetSwarmGraphResponse,
    GetSwarmsDumpResponse,
    GetSwarmsResponse,
    GetWellKnownResponse,
    GraphSwarm,
    PostSwarmsDiscoverResponse,
    PostSwarmsLoadResponse,
    PostSwarmsResponse,
    RegisteredSwarm,
    SwarmEndpoint,
)
from mail.server.bodies import RequestBody
from mail.server.deps import ADMIN, PUBLIC, Administrator, IdempotencyKey, Person, State
from mail.server.idempotency import answered_once
from mail.server.openapi import errors
from mail.server.routing import MAILRouter
from mail.server.state import ServerState, owner_of
from mail.version import get_protocol_version

_MOST_URLS: Final = 20
_MOST_SHOWN: Final = 200

router = MAILRouter("swarms")
_log = logging.getLogger("mail.server")

PathName = Annotated[str, Path(description="The name of the swarm.")]


def _text_or_object(value: object) -> object:
    if not isinstance(value, str | dict | None):
        raise ValueError("must be text or an object")  # noqa: TRY004 - pydantic wants it
    return value


class SwarmIn(RequestBody):
    """A swarm to serve from now on."""

    definition: Annotated[
        str,
        Field(
            alias="json",
            min_length=1,
            description="The definition of one swarm, as the text of a JSON object.",
        ),
    ]


class RegistrationIn(RequestBody):
    """Another swarm."""

    name: Annotated[
        str,
        Field(
            min_length=1,
            max_length=256,
            description="Its name: no white space, `@` or `:`.",
            examples=["swarm-beta"],
        ),
    ]
    base_url: Annotated[
        str,
        Field(
            min_length=1,
            max_length=2048,
            description="The address of its server, `http` or `https`.",
            examples=["https://beta.example"],
        ),
    ]
    auth_token: Annotated[
        Annotated[str, Field(max_length=4096)] | None,
        Field(
            description="What this server authenticates with there, or "
            "`${SWARM_AUTH_TOKEN_<NAME>}` for the variable in its environment that holds it."
        ),
    ] = None
    metadata: Annotated[
        dict[str, Any] | None,
        Field(description="A small object to store with it, which `GET /swarms` shows."),
    ] = None
    public_key: Annotated[
        Any,
        BeforeValidator(
            _text_or_object,
            json_schema_input_type=Annotated[str, Field(min_length=1, max_length=64)]
            | dict[str, Any]
            | None,
        ),
        Field(
            description="The key with which it must sign its mail: an Ed25519 key as a JSON Web "
            "Key, or the thumbprint of one that its server shows. All that its server shows now "
            "by default."
        ),
    ] = None
    volatile: Annotated[
        bool | None,
        Field(description="Forget it when the server stops: by default, if it is new."),
    ] = None


class DiscoveryIn(RequestBody):
    """Servers to ask."""

    discovery_urls: Annotated[
        list[Annotated[str, Field(min_length=1, max_length=2048)]],
        Field(
            fail_fast=True,
            min_length=1,
            max_length=_MOST_URLS,
            description="The addresses of MAIL servers.",
            examples=[["https://beta.example"]],
        ),
    ]


@router.get("/swarms/dump", dependencies=[Depends(ADMIN)])
async def dump_swarm(state: State) -> GetSwarmsDumpResponse:
    """Write the names of the swarm and of its agents to the server's log, at level INFO."""
    template = state.template
    names = ", ".join(repr(agent.name) for agent in template.agents)
    _log.info("the swarm is %r; its agents are %s", template.name, names)
    return {"status": "dumped", "swarm_name": template.name}


@router.post("/swarms/load")
@answered_once(of_server=True)
async def load_swarm_from_json(
    request: Request, state: State, caller: Administrator, body: SwarmIn, key: IdempotencyKey = None
) -> PostSwarmsLoadResponse:
    """Replace the swarm that is served, until the next restart.

    The definition is checked entirely before anything changes. Instances that are working finish on
    the old swarm; everybody else gets the new one with the next request.
    """
    template = await state.load(body.definition)
    _log.info("the swarm is %r from now on", template.name)
    return {"status": "success", "swarm_name": template.name}


@router.get("/swarm/graph")
async def get_swarm_graph(state: State, caller: Person) -> GetSwarmGraphResponse:
    """Get the agents of the served swarm, who may write to whom, and what they are doing.

    Users see who is in a turn for them and how much of their mail waits; administrators see that
    of all callers, and other swarms that are not public.
    """
    template, everything = state.template, caller.role == "admin"
    owner = None if everything else owner_of(state, caller)
    lengths = await state.store.queue_lengths(template.name, owner)
    reading = Counter(state.pool.turns_at_work(template.name, None if everything else caller))
    turns = Counter(agent for agent, _ in reading.elements())
    queues: dict[str, dict[str, int]] = {}
    for agent_name, tier, waiting in lengths:
        if (left := waiting - reading[agent_name, tier]) > 0:  # what is read waits no more
            queues.setdefault(agent_name, {})[str(tier)] = left
    registry = state.registry
    known = registry.get_all_endpoints() if everything else registry.get_public_endpoints()
    others = [one for one in known.values() if one["swarm_name"] != registry.local_swarm_name]
    return {
        "swarm_name": template.name,
        "entrypoint": template.entrypoint,
        "scope": "all" if everything else "own",
        "agents": [
            {
                "name": agent.name,
                "comm_targets": list(agent.comm_targets),
                "enable_entrypoint": agent.enable_entrypoint,
                "enable_interswarm": agent.enable_interswarm,
                "can_complete_tasks": agent.can_complete_tasks,
                "turns": turns[agent.name],
                "queues": queues.get(agent.name, {}),
            }
            for agent in template.agents[:_MOST_SHOWN]
        ],
        "agent_count": len(template.agents),
        "participants": [each["name"] for each in template.participants[:_MOST_SHOWN]],
        "swarms": [_seen(one) for one in others[:_MOST_SHOWN]],
    }


@router.get("/swarms", dependencies=[Depends(PUBLIC)])
async def list_swarms(state: State) -> GetSwarmsResponse:
    """List the public swarms that the server knows."""
    found = state.registry.get_public_endpoints().values()
    return {"swarms": [cleaned(endpoint) for endpoint in found]}


@router.get(KEYS_PATH, dependencies=[Depends(PUBLIC)])
async def introduce_server(state: State) -> GetWellKnownResponse:
    """Get the keys with which the server signs its mail to other swarms.

    Whoever registers the swarm keeps them, and asks for signatures by them from then on.
    """
    registry = state.registry
    keys = registry.access.keys
    return {
        "protocol_version": get_protocol_version(),
        "swarm_name": registry.local_swarm_name,
        "base_url": registry.local_base_url,
        "keys": [] if keys is None else keys.public,
    }


@router.get("/swarms/registry", dependencies=[Depends(ADMIN)])
async def read_registry(state: State) -> GetRegistryResponse:
    """List all swarms that the server knows, and those that are proposed."""
    registry = state.registry
    return {
        "swarms": [_described(registry, one) for one in registry.get_all_endpoints().values()],
        "proposed": list(registry.get_proposed_swarms().values()),
    }


@router.post("/swarms", response_model=PostSwarmsResponse)
@answered_once(of_server=True)
async def register_swarm(
    request: Request,
    state: State,
    caller: Administrator,
    body: RegistrationIn,
    key: IdempotencyKey = None,
) -> JSONResponse:
    """Register another swarm, or register it anew: what is left out stays as it is.

    A server that does not answer yet is inactive until it does; one that answers as another swarm's
    is refused. Loopback addresses may be named. A volatile entry lives in the memory of this
    server; any other is kept in the registry's file, which holds no token but names the variable
    that does.
    """
    return await _register(state, caller, body)


@router.post("/swarms/register", response_model=PostSwarmsResponse)
@answered_once(of_server=True)
async def register_swarm_too(
    request: Request,
    state: State,
    caller: Administrator,
    body: RegistrationIn,
    key: IdempotencyKey = None,
) -> JSONResponse:
    """Register another swarm: the same as `POST /swarms`."""
    return await _register(state, caller, body)


@router.post("/swarms/discover")
@answered_once(of_server=True)
async def discover_swarms(
    request: Request,
    state: State,
    caller: Administrator,
    body: DiscoveryIn,
    key: IdempotencyKey = None,
) -> PostSwarmsDiscoverResponse:
    """Ask servers which swarms they list, and propose those that are new.

    Nothing is registered before it is accepted.
    """
    result = await state.registry.discover_swarms(body.discovery_urls)
    return {
        "proposed": result.found,
        "problems": [{"field": where, "problem": why} for where, why in result.problems],
    }


@router.post("/swarms/{name:path}/accept", response_model=PostSwarmsResponse, responses=errors(404))
@answered_once(of_server=True)
async def accept_swarm(
    request: Request,
    state: State,
    caller: Administrator,
    name: PathName,
    key: IdempotencyKey = None,
) -> JSONResponse:
    """Register a swarm that was proposed, for good."""
    await state.registry.accept_swarm(name)
    return _registered(caller, name)


@router.delete("/swarms/{name:path}", responses=errors(400, 404))
async def unregister_swarm(
    state: State,
    caller: Administrator,
    name: PathName,
    cancel_tasks: Annotated[bool, Query(description="Cancel the tasks that it has open.")] = False,
) -> DeleteSwarmResponse:
    """Forget another swarm, or that it was proposed.

    Tasks that it has open here go on, and nobody gets their answers, unless they are cancelled.
    """
    if name == state.registry.local_swarm_name:
        raise UnknownSwarm(f"'{name}' is this server's own swarm and stays registered")
    tasks = await state.federation.open_tasks(check_caller_id(name), cancel=cancel_tasks)
    removed = await asyncio.to_thread(state.registry.unregister_swarm, name)
    if not removed and not (tasks and cancel_tasks):
        raise UnknownSwarm(f"no swarm '{name[:64]}' is registered or proposed")
    cancelled = tasks if cancel_tasks else 0
    told = (caller.role, caller.id, name, cancelled)
    _log.info("%s '%s' removed the swarm %r, and cancelled %d of its tasks", *told)
    return {"status": "removed", "swarm_name": name, "open_tasks": tasks - cancelled}


async def _register(state: ServerState, caller: Caller, body: RegistrationIn) -> JSONResponse:
    await state.registry.register_swarm(
        body.name,
        body.base_url,
        body.auth_token,
        body.metadata,
        volatile=body.volatile,
        public_key=body.public_key,
    )
    return _registered(caller, body.name)


def _registered(caller: Caller, name: str) -> JSONResponse:
    _log.info("%s '%s' registered the swarm %r", caller.role, caller.id, name)
    answer: PostSwarmsResponse = {"status": "registered", "swarm_name": name}
    return JSONResponse(answer)


def _seen(endpoint: SwarmEndpoint) -> GraphSwarm:
    last = endpoint["last_seen"]
    return {
        "swarm_name": endpoint["swarm_name"],
        "is_active": endpoint["is_active"],
        "latency": endpoint["latency"],
        "last_seen": None if last is None else last.isoformat(),
    }


def _described(registry: SwarmRegistry, endpoint: SwarmEndpoint) -> RegisteredSwarm:
    name = endpoint["swarm_name"]
    is_peer = name != registry.local_swarm_name
    return {
        **cleaned(endpoint),
        "public": endpoint["public"],
        "volatile": endpoint["volatile"],
        "token_variable": token_variable(name) if is_peer else None,
        "has_token": registry.get_resolved_auth_token(name) is not None,
    }

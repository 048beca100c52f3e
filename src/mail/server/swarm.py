"""The swarm that a server serves: loaded once, tried at the start, instantiated per caller."""

import asyncio
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from mail.auth.callers import Caller
from mail.clock import SystemClock
from mail.config.server import (
    ServerConfig,
    SwarmConfig,
    base_url,
    resolve_swarms_file,
    serves_example,
)
from mail.core.call_context import ModelRules
from mail.core.runtime.settings import News, Quota, RuntimeSettings, TurnLimit
from mail.db.blobs import Blobs
from mail.db.store import Store
from mail.errors import ConfigError, MAILError, ProtocolError, StoreLocked
from mail.llm.provider_env import ModelUse
from mail.llm.request import Endpoint
from mail.llm.resolve import is_scripted
from mail.net.outbox import PeerGateway
from mail.redaction import redact_foreign
from mail.server.bodies import MAX_VALUES, parse_object
from mail.server.instances import Served
from mail.server.state import ServerState, step_limit
from mail.swarms_json.references import ReferencePolicy, RemoteParameters

if TYPE_CHECKING:
    from mail.api import MAILAgent, MAILSwarm, MAILSwarmTemplate

T = TypeVar("T")
Ring = Callable[[Collection[str]], None]
BlobsOf = Callable[[str], Blobs]


@dataclass(frozen=True)
class Shared:
    """What the instances of all callers share. Every part may be left out.

    Attributes:
        turns: The limit of turns at work.
        gateway: The way to other swarms.
        ring: Wakes participants that wait for letters.
        news: What the webhook is told.
        quota: What callers may store.
    """

    turns: TurnLimit | None = None
    gateway: PeerGateway = field(default_factory=PeerGateway)
    ring: Ring | None = None
    news: News | None = None
    quota: Quota | None = None


_NOBODY: Final = Caller("user", "nobody")
_RECENT_EVENTS: Final = 64
_TASK_BYTES: Final = 256 * 1024 * 1024
_HISTORY_BYTES: Final = 16 * 1024 * 1024
_RESULT_BYTES: Final = 1024 * 1024
"""Also of the arguments of a call."""
_REPLY_BYTES: Final = 4 * 1024 * 1024
"""Of each task at work; the newest mail is quoted when a task must end unfinished."""
_SLICE_SECONDS: Final = 0.005
_NO_TOKEN: Final = "no-token"  # noqa: S105 - stands for a caller's while the factories are tried


async def open_swarm(
    config: ServerConfig,
    store: Store,
    template: "MAILSwarmTemplate | None" = None,
    shared: Shared | None = None,
    blobs: BlobsOf | None = None,
) -> Served:
    """Load the swarm, and build it once without starting it, so that mistakes show at the start.

    Args:
        config: Settings.
        store: Where the instances keep their state; it need not be open yet.
        template: The swarm; the one that the settings name when None.
        shared: What all instances share.
        blobs: Leads to the contents of files that come with letters, for a swarm's name.

    Raises:
        ConfigError: the swarm cannot be found or built.
    """
    with _explained(f"swarm '{config.swarm.name}'"):
        if template is not None:
            return _tried(config, template, store, shared, blobs)
        with _in_file(config.swarm):
            # In a thread, because references may lead to slow modules and URLs.
            found = await asyncio.to_thread(_load, config.swarm)
            return _tried(config, found, store, shared, blobs)


async def read_swarm(
    config: ServerConfig,
    store: Store,
    text: str,
    shared: Shared | None = None,
    blobs: BlobsOf | None = None,
) -> Served:
    """Read a swarm that came over the network, and build it once, as at the start.

    Args:
        config: Settings: its references lead only to what ``remote_imports`` allows.
        store: Where the instances keep their state.
        text: The definition of one swarm, a JSON object.
        shared, blobs: As for `open_swarm`.

    Raises:
        ProtocolError: it is not such an object, or the definition is wrong; the text says where.
    """
    try:
        with _explained("the swarm"):
            return await asyncio.to_thread(_read, config, store, text, shared, blobs)
    except (ProtocolError, ConfigError) as error:
        raise _bad_definition(error) from error


async def load_swarm(state: ServerState, text: str) -> "MAILSwarmTemplate":
    """Serve another swarm from now on, until the next restart; one after the other.

    Nothing changes before it has been checked entirely. Instances at work finish on the swarm that
    they were made of. Tasks that an earlier process left unfinished in the swarm are taken up.

    Args:
        state: The server.
        text: The definition; see `read_swarm`.

    Raises:
        ProtocolError: as `read_swarm`, or another server has the swarm.
        ShuttingDown: the server stops.
    """
    async with state.loading:
        served = await read_swarm(
            state.config,
            state.store,
            text,
            Shared(state.turns, state.gateway, state.bells.ring, state.news, state.shares),
            state.blobs_of,
        )
        new = served.template
        try:
            state.registry.check_not_peer(new.name)
            # Or two servers would work on the tasks of one swarm.
            await state.store.claim_swarm(new.name)
            await asyncio.to_thread(
                state.registry.replace_local_swarm,
                new.name,
                new.description,
                new.keywords,
                new.public,
            )
        except (ProtocolError, StoreLocked) as error:
            raise _bad_definition(error) from error
        await state.serve(served)
    return new


def _bad_definition(error: MAILError) -> ProtocolError:
    return ProtocolError(str(error), [{"field": "json", "problem": str(error)}])


@contextmanager
def _explained(what: str) -> Iterator[None]:
    try:
        yield
    except MAILError:
        raise
    except Exception as error:  # the factories and modules that a swarm names raise anything
        reason = f"{type(error).__name__}: {redact_foreign(str(error))}"
        raise ConfigError(f"{what} cannot be built: {reason}") from error


@contextmanager
def _in_file(swarm: SwarmConfig) -> Iterator[None]:
    """Name the swarms file in what is said to be wrong with its swarm."""
    try:
        yield
    except ConfigError as error:
        text, file = str(error), str(resolve_swarms_file(swarm))
        if serves_example(swarm):
            missing = f"there is no {swarm.source} in {Path.cwd()}"
            text = f"{missing}, and the packaged example cannot be used: {text}"
        elif file not in text:
            text = f"{file}: {text}"
        raise ConfigError(text) from error


def _tried(
    config: ServerConfig,
    template: "MAILSwarmTemplate",
    store: Store,
    shared: Shared | None,
    blobs: BlobsOf | None,
) -> Served:
    template.enable_teams = template.enable_teams or config.teams.enabled
    build = _builder(config, template, store, shared, blobs)
    swarm = build(_NOBODY, _NO_TOKEN)
    uses = tuple(filter(None, map(_model_use, swarm.agents)))

    async def make(caller: Caller, token: str) -> "MAILSwarm":
        agents = await _in_slices(template.make_agents(_instance_params(token)))
        return build(caller, token, agents)

    return Served(template, make, any(use.use_proxy for use in uses), uses)


async def _in_slices(items: Iterable[T]) -> list[T]:
    """Return what takes long to make, and let others have the event loop now and then."""
    made = []
    pause = time.monotonic() + _SLICE_SECONDS
    for item in items:
        made.append(item)
        if time.monotonic() >= pause:
            await asyncio.sleep(0)
            pause = time.monotonic() + _SLICE_SECONDS
    return made


def _instance_params(token: str) -> dict[str, str]:
    return {"user_token": token}


def _model_use(agent: "MAILAgent") -> ModelUse | None:
    """Return which provider's model an agent asks, as it or its factory says."""

    def said(name: str, otherwise: Any) -> Any:
        value = agent.agent_params.get(name)
        return getattr(agent.function, name, otherwise) if value is None else value

    llm, use_proxy = str(said("llm", "")), bool(said("use_proxy", False))
    own_model = agent.agent_params.get("model") is not None
    if own_model or is_scripted(llm) or not (llm or use_proxy):
        return None
    endpoint = Endpoint(str(said("api_base", "")), str(said("api_key", "")))
    return ModelUse(agent.name, llm, agent.tool_format, use_proxy, endpoint)


def _read(
    config: ServerConfig,
    store: Store,
    text: str,
    shared: Shared | None,
    blobs: BlobsOf | None,
) -> Served:
    from mail.api import MAILSwarmTemplate

    what = "the swarm definition in 'json'"
    entry = parse_object(text.encode(), MAX_VALUES, what)
    swarm = config.swarm
    models = ModelRules(tuple(swarm.remote_providers), tuple(swarm.remote_api_bases))
    policy = ReferencePolicy(
        imports=tuple(swarm.remote_imports),
        parameters=RemoteParameters(tuple(swarm.remote_agent_params), models),
    )
    template = MAILSwarmTemplate.from_swarms_json(cast("Any", entry), references=policy)
    return _tried(config, template, store, shared, blobs)


def _load(swarm: SwarmConfig) -> "MAILSwarmTemplate":
    from mail.api import MAILSwarmTemplate

    file = resolve_swarms_file(swarm)
    if not file.is_file():
        raise ConfigError(
            f"{swarm.place('source')}: swarms file '{swarm.source}' not found in {Path.cwd()}; "
            "correct the name, or start the server in the folder that has it"
        )
    return MAILSwarmTemplate.from_swarm_json_file(swarm.name, file)


def _builder(
    config: ServerConfig,
    template: "MAILSwarmTemplate",
    store: Store,
    shared: Shared | None,
    blobs: BlobsOf | None,
) -> "Callable[..., MAILSwarm]":
    shared = shared or Shared()
    settings, clock = _runtime_settings(config, template, shared), SystemClock()

    def build(
        caller: Caller, token: str, agents: "Sequence[MAILAgent] | None" = None
    ) -> "MAILSwarm":
        return template.instantiate(
            _instance_params(token),
            caller.id,
            caller.role,
            base_url(config),
            config.swarm.registry_file,
            config.settings.print_llm_streams,
            store=store,
            settings=settings,
            clock=clock,
            agents=agents,
            swarm_registry=shared.gateway.registry,
            gateway=shared.gateway,
            ring=shared.ring,
            blobs=blobs,
        )

    return build


def _runtime_settings(
    config: ServerConfig, template: "MAILSwarmTemplate", shared: Shared
) -> RuntimeSettings:
    expose = config.federation.expose
    return RuntimeSettings(
        max_steps=step_limit(config, template),
        task_token_limit=config.settings.task_token_limit,
        task_cost_limit=config.settings.task_cost_limit,
        task_byte_limit=_TASK_BYTES,
        max_history_bytes=_HISTORY_BYTES,
        max_result_bytes=_RESULT_BYTES,
        max_argument_bytes=_RESULT_BYTES,
        max_reply_bytes=_REPLY_BYTES,
        dynamic_ctx_ratio=config.settings.dynamic_ctx_ratio,
        max_concurrent_turns=config.limits.max_running_tasks or None,
        turn_limit=shared.turns,
        news=shared.news,
        quota=shared.quota,
        shutdown_grace=config.limits.shutdown_grace,
        recent_events=_RECENT_EVENTS,
        exposed=None if expose is None else frozenset(expose),
        recent_tasks=0,  # for code beside the runtime; routes read the store
    )

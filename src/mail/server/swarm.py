"""The swarm that a server serves: loaded once, tried at the start, instantiated per caller."""

import asyncio
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
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
from mail.errors import ConfigError, MAILError, ProtocolError
from mail.llm.provider_env import ModelUse
from mail.llm.request import Endpoint
from mail.llm.resolve import is_scripted
from mail.net.outbox import PeerGateway
from mail.redaction import redact_foreign
from mail.server.bodies import MAX_VALUES, parse_object
from mail.server.instances import Served
from mail.swarms_json.references import ReferencePolicy, RemoteParameters

if TYPE_CHECKING:
    from mail.api import MAILAgent, MAILSwarm, MAILSwarmTemplate

T = TypeVar("T")


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


@dataclass(kw_only=True, eq=False)
class SwarmBuilder:
    """Makes what a server serves, and knows what the instances of all callers share.

    Attributes:
        config: Settings.
        store: The store of the instances' state; it need not be open yet.
        turns: The limit of turns at work.
        gateway: The way to other swarms.
        ring: Wakes participants that wait for letters.
        news: The events that the webhook is told.
        quota: The limit on callers' storage.
        blobs: Leads to the contents of files that come with letters, for a swarm's name.
    """

    config: ServerConfig
    store: Store
    turns: TurnLimit | None = None
    gateway: PeerGateway = field(default_factory=PeerGateway)
    ring: Callable[[Collection[str]], None] | None = None
    news: News | None = None
    quota: Quota | None = None
    blobs: Callable[[str], Blobs] | None = None

    async def open(self, template: "MAILSwarmTemplate | None" = None) -> Served:
        """Load the swarm, and build it once without starting it, so that mistakes show at once.

        Args:
            template: The swarm; the one that the settings name when None.

        Raises:
            ConfigError: the swarm cannot be found or built.
        """
        with _explained(f"swarm '{self.config.swarm.name}'"):
            if template is not None:
                return self._tried(template)
            with _in_file(self.config.swarm):
                # In a thread, because references may lead to slow modules and URLs.
                return self._tried(await asyncio.to_thread(_load, self.config.swarm))

    async def read(self, text: str) -> Served:
        """Read a swarm that came over the network, and build it once, as at the start.

        Its references lead only to what ``remote_imports`` allows.

        Args:
            text: The definition of one swarm, a JSON object.

        Raises:
            ProtocolError: it is not such an object, or the definition is wrong; the text says
                where.
        """
        try:
            with _explained("the swarm"):
                return await asyncio.to_thread(lambda: self._tried(_read(self.config.swarm, text)))
        except (ProtocolError, ConfigError) as error:
            raise bad_definition(error) from error

    def _tried(self, template: "MAILSwarmTemplate") -> Served:
        template.enable_teams = template.enable_teams or self.config.teams.enabled
        settings, clock = self._settings(template), SystemClock()

        def build(
            caller: Caller, token: str, agents: "Sequence[MAILAgent] | None" = None
        ) -> "MAILSwarm":
            return template.instantiate(
                {"user_token": token},
                caller.id,
                caller.role,
                base_url(self.config),
                self.config.swarm.registry_file,
                self.config.settings.print_llm_streams,
                store=self.store,
                settings=settings,
                clock=clock,
                agents=agents,
                swarm_registry=self.gateway.registry,
                gateway=self.gateway,
                ring=self.ring,
                blobs=self.blobs,
            )

        async def make(caller: Caller, token: str) -> "MAILSwarm":
            return build(
                caller, token, await _in_slices(template.make_agents({"user_token": token}))
            )

        tried = build(_NOBODY, _NO_TOKEN)
        uses = tuple(filter(None, map(_model_use, tried.agents)))
        needs_token = any(use.use_proxy for use in uses)
        if self.store.shared and not needs_token:  # others have no caller's token
            settings = replace(settings, queue_after=self.config.limits.max_running_tasks or None)
        return Served(template, make, needs_token, uses)

    def _settings(self, template: "MAILSwarmTemplate") -> RuntimeSettings:
        expose = self.config.federation.expose
        return RuntimeSettings(
            max_steps=step_limit(self.config, template),
            task_token_limit=self.config.settings.task_token_limit,
            task_cost_limit=self.config.settings.task_cost_limit,
            task_byte_limit=_TASK_BYTES,
            max_history_bytes=_HISTORY_BYTES,
            max_result_bytes=_RESULT_BYTES,
            max_argument_bytes=_RESULT_BYTES,
            max_reply_bytes=_REPLY_BYTES,
            dynamic_ctx_ratio=self.config.settings.dynamic_ctx_ratio,
            max_concurrent_turns=self.config.limits.max_running_tasks or None,
            turn_limit=self.turns,
            news=self.news,
            quota=self.quota,
            shutdown_grace=self.config.limits.shutdown_grace,
            recent_events=_RECENT_EVENTS,
            exposed=None if expose is None else frozenset(expose),
            recent_tasks=0,  # for code beside the runtime; routes read the store
        )


def bad_definition(error: MAILError) -> ProtocolError:
    """Return the refusal of a definition that came over the network."""
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


def _read(swarm: SwarmConfig, text: str) -> "MAILSwarmTemplate":
    from mail.api import MAILSwarmTemplate

    what = "the swarm definition in 'json'"
    entry = parse_object(text.encode(), MAX_VALUES, what)
    models = ModelRules(tuple(swarm.remote_providers), tuple(swarm.remote_api_bases))
    policy = ReferencePolicy(
        imports=tuple(swarm.remote_imports),
        parameters=RemoteParameters(tuple(swarm.remote_agent_params), models),
    )
    return MAILSwarmTemplate.from_swarms_json(cast("Any", entry), references=policy)


def _load(swarm: SwarmConfig) -> "MAILSwarmTemplate":
    from mail.api import MAILSwarmTemplate

    file = resolve_swarms_file(swarm)
    if not file.is_file():
        raise ConfigError(
            f"{swarm.place('source')}: swarms file '{swarm.source}' not found in {Path.cwd()}; "
            "correct the name, or start the server in the folder that has it"
        )
    return MAILSwarmTemplate.from_swarm_json_file(swarm.name, file)


def step_limit(config: ServerConfig, template: "MAILSwarmTemplate") -> int:
    """Return how many messages one run of a task may process: the swarm says, else the server."""
    limit: int | None = template.task_message_limit
    return config.settings.task_message_limit if limit is None else limit

"""The swarm that a server serves: loaded once, tried at the start, instantiated per caller."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mail.config.server import ServerConfig, SwarmConfig, base_url
from mail.core.runtime.settings import RuntimeSettings
from mail.db.base import Store
from mail.errors import ConfigError, MAILError
from mail.server.instances import InstancePool, SwarmFactory
from mail.server.state import step_limit
from mail.utils.callers import Caller

if TYPE_CHECKING:
    from mail.api import MAILSwarm, MAILSwarmTemplate

__all__ = ["open_swarm"]

_NOBODY: Final = Caller("user", "nobody")
_NO_TOKEN: Final = "no-token"  # noqa: S105 - stands for a caller's while the factories are tried


async def open_swarm(
    config: ServerConfig, store: Store, template: "MAILSwarmTemplate | None" = None
) -> tuple["MAILSwarmTemplate", InstancePool]:
    """Load the swarm, and build it once without starting it, so that mistakes show at the start.

    Args:
        config: Settings.
        store: Where the instances keep their state; it need not be open yet.
        template: The swarm; the one that the settings name when None.

    Returns:
        The template, and the pool of its instances.

    Raises:
        ConfigError: the swarm cannot be found or built.
    """
    try:
        # In a thread, because references may lead to slow modules and URLs.
        found = await asyncio.to_thread(_load, config.swarm) if template is None else template
        make = _factory(config, found, store)
        needs_token = any(agent.agent_params.get("use_proxy") for agent in found.agents)
        make(_NOBODY, _NO_TOKEN if needs_token else "")
    except MAILError:
        raise
    except Exception as error:  # the factories and modules that a swarm names raise anything
        reason = f"{type(error).__name__}: {error}"
        raise ConfigError(f"swarm '{config.swarm.name}' cannot be built: {reason}") from error
    pool = InstancePool(
        make,
        max_instances=config.limits.max_instances,
        idle_seconds=config.limits.instance_idle,
        needs_token=needs_token,
    )
    return found, pool


def _load(swarm: SwarmConfig) -> "MAILSwarmTemplate":
    from mail.api import MAILSwarmTemplate

    if not Path(swarm.source).is_file():
        raise ConfigError(
            f"swarms file '{swarm.source}' not found in {Path.cwd()}; name one with --swarm-source "
            "or [server.swarm] source, or start the server where it is"
        )
    return MAILSwarmTemplate.from_swarm_json_file(swarm.name, swarm.source)


def _factory(config: ServerConfig, template: "MAILSwarmTemplate", store: Store) -> SwarmFactory:
    settings = RuntimeSettings(
        max_steps=step_limit(config, template),
        task_token_limit=config.settings.task_token_limit,
        task_cost_limit=config.settings.task_cost_limit,
        dynamic_ctx_ratio=config.settings.dynamic_ctx_ratio,
        max_concurrent_turns=config.limits.max_concurrent_turns,
        shutdown_grace=config.limits.shutdown_grace,
    )

    def make_swarm(caller: Caller, token: str) -> "MAILSwarm":
        return template.instantiate(
            {"user_token": token},
            caller.id,
            caller.role,
            base_url(config),
            config.swarm.registry_file,
            config.settings.print_llm_streams,
            store=store,
            settings=settings,
        )

    return make_swarm

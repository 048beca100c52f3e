"""The end of a swarm: agent functions that hold connections let go of them."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from mail.api.agents import MAILAgent

__all__ = ["close_agents"]

_log = logging.getLogger(__name__)


async def close_agents(agents: Sequence[MAILAgent]) -> None:
    """Await ``aclose()`` of every agent function that has one; failures are only logged."""
    closers: list[Callable[[], Awaitable[None]]] = [
        close for agent in agents if callable(close := getattr(agent.function, "aclose", None))
    ]
    ended = await asyncio.gather(*(close() for close in closers), return_exceptions=True)
    for failure in ended:
        if isinstance(failure, BaseException):
            _log.warning("an agent's connections could not be closed", exc_info=failure)

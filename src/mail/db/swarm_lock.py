"""Who may work on a swarm's tasks: one server at a time."""

from collections.abc import Callable
from typing import NamedTuple

__all__ = ["SwarmClaim"]


class SwarmClaim(NamedTuple):
    """What a server wants of a store that several processes can open.

    Attributes:
        swarm: The swarm that it serves. Another server that claims it in the same database is
            refused.
        lost: Called once, from any thread, when another server has the swarm after the database
            was away. From then on the store refuses to write.
    """

    swarm: str
    lost: Callable[[], None]

"""Scripts that play the example agents: each swarm answers simple questions without a provider.

A script keeps no state: it reads its conversation anew, as a model does. There is a module for each
example; the names here are those of the first one, a supervisor with two workers, and of its
relatives ``swarm-alpha`` and ``swarm-beta``, which have one worker each and ask the other swarm's.
"""

from mail.examples.scripts.team import (
    ALPHA_SUPERVISOR,
    BETA_SUPERVISOR,
    MATH,
    SUPERVISOR,
    WEATHER,
)

__all__ = ["ALPHA_SUPERVISOR", "BETA_SUPERVISOR", "MATH", "SUPERVISOR", "WEATHER"]

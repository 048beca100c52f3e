"""Scripts that play the example agents: each swarm answers simple questions without a provider.

A script keeps no state: it reads its conversation anew, as a model does. There is a module for each
example; the three names here are those of the first one, a supervisor with two workers.
"""

from mail.examples.scripts.team import MATH, SUPERVISOR, WEATHER

__all__ = ["MATH", "SUPERVISOR", "WEATHER"]

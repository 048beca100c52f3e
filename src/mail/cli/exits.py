"""The exit codes of ``mail``. Scripts may rely on them."""

from typing import Final

__all__ = ["DONE", "FAILED", "INTERRUPTED", "NO_ANSWER", "PAUSED", "USAGE"]

DONE: Final = 0
FAILED: Final = 1
"""It was tried and did not work: refused by the server, a task that failed."""

USAGE: Final = 2
"""The command line or the configuration is wrong; nothing was tried."""

PAUSED: Final = 3
"""The task waits for the results of breakpoint calls."""

NO_ANSWER: Final = 4
"""The server did not answer: not reachable, or not in time."""

INTERRUPTED: Final = 130
"""Ctrl-C."""

"""The exit codes of ``mail``. Scripts may rely on them."""

from typing import Final

__all__ = ["DONE", "FAILED", "INTERRUPTED", "NO_ANSWER", "PAUSED", "USAGE"]

DONE: Final = 0
FAILED: Final = 1
"""The command failed: the server rejected it, or the task failed."""

USAGE: Final = 2
"""The command line or the configuration is invalid; nothing was attempted."""

PAUSED: Final = 3
"""The task is paused and waits for results of breakpoint calls."""

NO_ANSWER: Final = 4
"""The server cannot be reached, or did not respond in time."""

INTERRUPTED: Final = 130
"""Interrupted with Ctrl-C."""

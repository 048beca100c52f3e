"""What is said of an agent that failed, to the log and to whoever asked."""

import logging

from mail.core.runtime.turn import Turn

__all__ = ["note_failure"]

logger = logging.getLogger(__name__)


def note_failure(turn: Turn, reason: str) -> str:
    """Log that a turn's agent failed, and return the reason with the agent's name in it."""
    known = {"agent": turn.agent, "task_id": turn.task.task_id, "reason": reason}
    logger.warning("agent failed", extra=known)
    if f"agent '{turn.agent}'" in reason:
        return reason
    return f"agent '{turn.agent}' failed: {reason}"

"""What an agent's model was shown, and what it must never see."""

from mail.testing.models import RecordingModel
from mail.testing.swarms import ScriptedSwarm

__all__ = ["assert_not_shown", "assert_shown", "shown_to"]


def shown_to(swarm: ScriptedSwarm, agent: str) -> list[str]:
    """Return every text that an agent was shown, each once: its prompt, mail and tool results."""
    return _model(swarm, agent).shown


def assert_shown(swarm: ScriptedSwarm, agent: str, text: str) -> None:
    """Check that an agent was shown a text, as it is or as mail shows it (escaped).

    Raises:
        AssertionError: it was not; the message lists what it was shown.
    """
    if not _holding(swarm, agent, text):
        listing = "\n---\n".join(shown_to(swarm, agent)) or "(nothing)"
        raise AssertionError(f"agent '{agent}' was not shown {text!r}, but:\n{listing}")


def assert_not_shown(swarm: ScriptedSwarm, agent: str, text: str) -> None:
    """Check that an agent was never shown a text.

    Raises:
        AssertionError: it was; the message has the place.
    """
    found = _holding(swarm, agent, text)
    if found:
        raise AssertionError(f"agent '{agent}' was shown {text!r}:\n{found[0]}")


def _holding(swarm: ScriptedSwarm, agent: str, text: str) -> list[str]:
    from xml.sax.saxutils import escape

    forms = {text, escape(text)}
    return [seen for seen in shown_to(swarm, agent) if any(form in seen for form in forms)]


def _model(swarm: ScriptedSwarm, agent: str) -> RecordingModel:
    if agent not in swarm.models:
        raise AssertionError(f"there is no agent '{agent}' in the swarm, but {list(swarm.models)}")
    return swarm.models[agent]

"""Requests for thinking, and the cases in which Claude cannot be asked."""

from collections.abc import Sequence
from typing import Any, Final

from mail.core.agents import ToolChoice
from mail.llm.history import Replied, Said
from mail.llm.profiles import NUMBERS, WAYS, Forced, Profile
from mail.llm.request import Wire
from mail.llm.settings import LLMSettings
from mail.llm.tools import choice_name

_ASKED: Final = ("adaptive", "thinking_budget")

THINKING: Final = frozenset({"thinking", "redacted_thinking"})
"""The kinds of block in which Claude thinks."""


def forced_by(choice: ToolChoice, profile: Profile) -> Forced | None:
    """Return how a model is made to follow a tool choice; None if the choice forces nothing."""
    if choice in ("auto", "none"):
        return None
    return profile.forced_any if choice_name(choice) is None else profile.forced_named


def may_think(choice: ToolChoice, exchanges: Sequence[Said | Replied], profile: Profile) -> bool:
    """Tell whether a model can be asked to think in a call.

    Args:
        choice: The call's tool choice; some models cannot think where they are forced.
        exchanges: The history.
        profile: The facts about the model.
    """
    if profile.effort_via not in _ASKED:
        return False
    if forced_by(choice, profile) == "off":
        return False
    if not profile.signed or profile.effort_via == "adaptive":
        return True
    if profile.send_back == "never":
        return not _last_message(exchanges)  # what it began with is not sent
    return began_with_thinking(exchanges, profile.wire)


def thinking_arguments(
    settings: LLMSettings, profile: Profile, *, least: int = 1
) -> dict[str, Any]:
    """Return the arguments that ask for thinking; none if nothing asks for it.

    Args:
        settings: The settings of the agent.
        profile: The facts about the model. One that adapts decides itself how long it
            thinks: it takes an effort in place of a budget, and shows what it thinks only when it
            is told to.
        least: The smallest budget that the provider takes.
    """
    if profile.effort_via == "adaptive":
        return _adaptive_arguments(settings.effort, profile)
    if settings.effort == "none":
        return {}
    if settings.thinking_budget is None:
        return {}
    budget = max(settings.thinking_budget, least, profile.least_budget)
    if profile.largest_budget is not None:
        budget = min(budget, profile.largest_budget)
    if settings.max_tokens is not None and settings.max_tokens <= budget:
        return {}  # no room for an answer
    thinking = {"type": "enabled", "budget_tokens": budget}
    return {"thinking": thinking, "max_tokens": settings.cap_beside(budget)}


def _adaptive_arguments(effort: str | None, profile: Profile) -> dict[str, Any]:
    """Return what is asked of a model that adapts.

    What it thought before is bound to the conversation before that, which a summary or another
    prompt changes. Each call says that such thoughts are to be dropped: else it would be refused.
    """
    if effort == "none" and profile.thinks != "always":
        return {}
    thinking: dict[str, Any] = {"type": "adaptive", "display": "summarized"}
    if profile.block_binding:
        thinking["block_binding"] = {"prefix_mismatch_behavior": profile.block_binding}
    elif effort is None:
        return {}
    asked = {"thinking": thinking}
    return asked if effort is None else {**asked, "reasoning_effort": profile.nearest(effort)}


def effort_arguments(settings: LLMSettings, profile: Profile) -> dict[str, Any]:
    """Return the arguments of a chat call that tell a model its effort, if one is asked for."""
    if settings.effort is None or profile.effort_via == "none":
        return {}
    if settings.effort == "none" and "none" not in profile.efforts and profile.thinks != "always":
        return {}
    place, _, path = profile.effort_via.partition(":")
    value: Any = profile.nearest(settings.effort)
    if not path:
        return {"reasoning_effort": value}
    *outer, name = path.split(".")
    if name.endswith(NUMBERS):
        value = settings.thinking_budget
    for key in reversed([place, *outer, name]):
        value = {key: value}
    return dict(value)


def effort_note(settings: LLMSettings, profile: Profile) -> str | None:
    """Return a line for the log if a model gets another effort than was asked for."""
    asked = settings.effort
    if asked is None:
        return None
    responses = profile.wire == "responses"
    if responses and profile.thinks == "no":
        if asked == "none":
            return None
        return (
            f"the model is not known to think, so '{asked}' is not sent; if it does, set 'thinks'"
        )
    ways = ("none", *WAYS[profile.wire])
    if profile.effort_via.partition(":")[0] not in ways[1:]:
        why, hint = "the model takes no effort", ""
        if profile.effort_via not in ways:
            why = f"the format {profile.wire} has no 'effort_via' '{profile.effort_via}'"
            hint = f"; set it to '{ways[1]}'"
        return f"{why}, so '{asked}' is not sent{hint}"
    counted = profile.effort_via == "thinking_budget" or profile.effort_via.endswith(NUMBERS)
    sent = profile.nearest(asked)
    if counted or sent == asked or (asked == "none" and profile.thinks in ("no", "asked")):
        return None
    return f"the model does not take the effort '{asked}', so it gets '{sent}'"


def began_with_thinking(exchanges: Sequence[Said | Replied], wire: Wire) -> bool:
    """Tell whether the assistant's turn that goes on began with thinking, or none goes on.

    Claude with a budget refuses to think in a turn that began without it.

    Args:
        exchanges: The history.
        wire: The format in which it is sent; the thinking of replies in others is lost.
    """
    message = _last_message(exchanges)
    if not message:
        return True
    if message[0].wire != wire:
        return False
    entry = message[0].entries[0]
    blocks = entry.get("content" if wire == "anthropic" else "thinking_blocks")
    return isinstance(blocks, list) and bool(blocks) and blocks[0].get("type") in THINKING


def _last_message(exchanges: Sequence[Said | Replied]) -> list[Replied]:
    """Return the replies of the assistant's last message, if its turn goes on.

    Replies with nothing between them go out as one message.
    """
    replies: list[Replied] = []
    for exchange in exchanges:
        if isinstance(exchange, Replied):
            replies = [exchange] if replies and replies[-1].calls else [*replies, exchange]
        elif replies and not replies[-1].calls:
            replies = []
    return replies

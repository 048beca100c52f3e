"""Limits of a model call: thinking, output, time."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Annotated, Any, Final

from pydantic import Field

from mail.errors import ConfigError

EFFORTS: Final = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
"""The values of ``reasoning_effort``, the least first."""

EFFORT_BUDGETS: Final[Mapping[str, int]] = MappingProxyType(
    {"minimal": 2000, "low": 4000, "medium": 8000, "high": 16000, "xhigh": 24000, "max": 28000}
)
"""Thinking tokens for each ``reasoning_effort`` but ``none``, the least first."""

SAMPLING: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "temperature": Annotated[float, Field(ge=0)],
        "top_p": Annotated[float, Field(ge=0, le=1)],
        "top_k": int,
        "seed": int,
        "frequency_penalty": float,
        "presence_penalty": float,
        "stop": list[str] | str,
    }
)
"""Sampling: parameters of agents, and arguments of calls, with their types."""

_FOR_BUDGETS: Final = ("minimal", "low", "medium", "high")
_ROOM_FOR_ANSWER: Final = 4000


@dataclass(frozen=True, slots=True, kw_only=True)
class LLMSettings:
    """The settings of a call, beside its messages.

    ``timeout`` is the longest silence of the provider in seconds, ``deadline`` the longest a call
    may take with all its retries; None is as long as the model needs. ``sampling`` are arguments
    of the provider's for how it chooses words, such as ``temperature``.
    """

    reasoning_effort: str | None = None
    thinking_budget: int | None = None
    max_tokens: int | None = None
    timeout: float | None = None
    deadline: float | None = None
    sampling: Mapping[str, Any] = field(default_factory=dict)

    @property
    def effort(self) -> str | None:
        """The effort asked for, or else the one that the thinking budget amounts to."""
        if self.reasoning_effort is not None or self.thinking_budget is None:
            return self.reasoning_effort
        within = [name for name in _FOR_BUDGETS if EFFORT_BUDGETS[name] <= self.thinking_budget]
        return within[-1] if within else _FOR_BUDGETS[0]

    def cap_beside(self, budget: int) -> int:
        """Return the most tokens of a whole reply whose thinking has a budget."""
        return budget + _ROOM_FOR_ANSWER if self.max_tokens is None else self.max_tokens

    @classmethod
    def resolve(
        cls,
        reasoning_effort: str | None = None,
        thinking_budget: int | None = None,
        max_tokens: int | None = None,
        timeout: float | None = None,
        deadline: float | None = None,
        sampling: Mapping[str, Any] = MappingProxyType({}),
    ) -> "LLMSettings":
        """Fill in what follows from what is given.

        An effort without a budget gets the budget of `EFFORT_BUDGETS` (kept below a given
        ``max_tokens``), for models that take one; ``none`` gets none.

        Raises:
            ConfigError: an unknown effort, a number of tokens that is no whole number above 0, a
                time that is no number above 0, or a budget that leaves no tokens for the answer.
        """
        _check_times(timeout=timeout, deadline=deadline)
        if reasoning_effort is not None and reasoning_effort not in EFFORTS:
            known = ", ".join(EFFORTS)
            raise ConfigError(f"reasoning_effort '{reasoning_effort}' is not one of {known}")
        _check_tokens(thinking_budget=thinking_budget, max_tokens=max_tokens)
        if thinking_budget is not None:
            if max_tokens is not None and max_tokens <= thinking_budget:
                raise ConfigError(
                    f"max_tokens ({max_tokens}) must be above thinking_budget ({thinking_budget})"
                )
        elif reasoning_effort is not None and reasoning_effort != "none":
            thinking_budget = EFFORT_BUDGETS[reasoning_effort]
            if max_tokens is not None and max_tokens <= thinking_budget:
                thinking_budget = max_tokens // 2 or None
        return cls(
            reasoning_effort=reasoning_effort,
            thinking_budget=thinking_budget,
            max_tokens=max_tokens,
            timeout=timeout,
            deadline=deadline,
            sampling={name: value for name, value in sampling.items() if value is not None},
        )


def _check_tokens(**given: object) -> None:
    for name, value in given.items():
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int):
            raise ConfigError(f"{name} must be a whole number of tokens, got {value!r}")
        if value < 1:
            raise ConfigError(f"{name} must be at least 1, got {value}")


def _check_times(**given: Any) -> None:
    for name, value in given.items():
        if value is None:
            continue
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not 0 < float(value) < float("inf"):
            raise ConfigError(f"{name} must be a number of seconds above 0, got {value!r}")

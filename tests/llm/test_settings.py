"""Effort, budget and max_tokens."""

from typing import Any

import pytest

from mail.errors import ConfigError
from mail.llm.settings import EFFORT_BUDGETS, LLMSettings


@pytest.mark.parametrize(("effort", "budget"), EFFORT_BUDGETS.items())
def test_effort_sets_a_budget_and_room_for_the_answer(effort: str, budget: int) -> None:
    settings = LLMSettings.resolve(effort)
    assert (settings.thinking_budget, settings.max_tokens) == (budget, None)
    assert settings.cap_beside(budget) == budget + 4000


def test_no_effort_sets_no_budget() -> None:
    assert LLMSettings.resolve("none").thinking_budget is None


def test_an_explicit_budget_wins_over_the_effort() -> None:
    settings = LLMSettings.resolve("high", 3000, 6000)
    assert (settings.reasoning_effort, settings.thinking_budget, settings.max_tokens) == (
        "high",
        3000,
        6000,
    )


def test_a_budget_that_follows_from_the_effort_stays_below_max_tokens() -> None:
    assert LLMSettings.resolve("high", None, 8000).thinking_budget == 4000


def test_nothing_given_asks_for_nothing() -> None:
    assert LLMSettings.resolve() == LLMSettings()


@pytest.mark.parametrize(
    ("values", "text"),
    [
        (("extreme",), "'extreme' is not one of none, minimal, low, medium, high, xhigh, max"),
        ((None, 4000, 4000), "must be above thinking_budget"),
        ((None, 0), "thinking_budget must be at least 1"),
        ((None, None, -1), "max_tokens must be at least 1"),
        ((["low"],), "is not one of none"),
        ((None, True), "thinking_budget must be a whole number of tokens, got True"),
        ((None, None, "5000"), "max_tokens must be a whole number of tokens, got '5000'"),
        ((None, None, 12.5), "max_tokens must be a whole number of tokens, got 12.5"),
    ],
)
def test_wrong_settings_say_what_is_wrong(values: tuple[Any, ...], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        LLMSettings.resolve(*values)


def test_times_are_taken_over_and_checked() -> None:
    settings = LLMSettings.resolve(timeout=5.0, deadline=30.0)
    assert (settings.timeout, settings.deadline) == (5.0, 30.0)
    with pytest.raises(ConfigError, match="timeout must be a number of seconds above 0"):
        LLMSettings.resolve(timeout=0.0)


@pytest.mark.parametrize("seconds", ["30", True, float("nan"), float("inf"), -1])
def test_a_time_is_a_number(seconds: Any) -> None:
    for name in ("timeout", "deadline"):
        with pytest.raises(ConfigError, match=f"{name} must be a number of seconds above 0"):
            LLMSettings.resolve(**{name: seconds})

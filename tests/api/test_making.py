"""What a builder reads when an agent's parameters are wrong."""

from collections.abc import Callable
from typing import Any

import pytest

from mail import MAILAgentTemplate
from mail.errors import ConfigError
from mail.factories import (
    LiteLLMActionAgentFunction,
    LiteLLMAgentFunction,
    LiteLLMSupervisorFunction,
)


class Trader(LiteLLMSupervisorFunction):
    def __init__(self, *, rate: float, **params: Any) -> None:
        super().__init__(**params)
        self.rate = rate


def searching(**params: Any) -> LiteLLMActionAgentFunction:
    return LiteLLMActionAgentFunction(**params)


def greeting(*, greeting_text: str, **params: Any) -> LiteLLMAgentFunction:
    return LiteLLMAgentFunction(**params)


def refuse(factory: Callable[..., Any], **params: Any) -> str:
    given = {"llm": "openai/gpt-5-mini", "system": "Be kind.", **params}
    template = MAILAgentTemplate("boss", factory, ["worker"], [], given)
    with pytest.raises(ConfigError) as error:
        template.instantiate({"user_token": "the-callers-token"})
    assert "the-callers-token" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize(
    "factory", [LiteLLMAgentFunction, LiteLLMActionAgentFunction, LiteLLMSupervisorFunction]
)
@pytest.mark.parametrize(
    ("wrong", "meant"), [("max_token", "max_tokens"), ("timeut", "timeout"), ("wholly_other", "")]
)
def test_a_misspelt_parameter_gets_a_suggestion_and_its_own_factorys_name(
    factory: Callable[..., Any], wrong: str, meant: str
) -> None:
    text = refuse(factory, **{wrong: 5})
    hint = f". Did you mean '{meant}'?" if meant else ""
    assert text == (
        "factory of agent 'boss' does not take the agent's parameters: "
        f"{factory.__name__} has no parameter '{wrong}'{hint}"
    )


def test_suggestions_know_the_parameters_of_wrappers() -> None:
    assert "searching has no parameter 'max_token'. Did you mean" in refuse(searching, max_token=1)
    text = refuse(Trader, rate=1.0, rating=2)
    assert text.endswith("Trader has no parameter 'rating'")  # rate itself was given
    text = refuse(greeting, greeting_text="Hi", reasoning_efort="low")
    assert text.endswith(
        "greeting has no parameter 'reasoning_efort'. Did you mean 'reasoning_effort'?"
    )
    text = refuse(greeting, greting_text="Hi")
    assert text.endswith("greeting has no parameter 'greting_text'. Did you mean 'greeting_text'?")


def by_position(name: str, /, **params: Any) -> Any:
    raise AssertionError


def test_what_no_keyword_reaches_is_missing() -> None:
    assert refuse(by_position).endswith(
        "'name' parameter is positional only, but was passed as a keyword"
    )


def test_a_callable_without_a_signature_can_be_misused_too() -> None:
    assert "factory of agent 'boss' failed: TypeError (see the log, reference " in refuse(int)
    assert "factory of agent 'boss' does not take" in refuse(type("Nothing", (), {}))


@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({"use_proxy": "false"}, "use_proxy must be true or false"),
        ({"max_tokens": "5000"}, "max_tokens must be a whole number of tokens"),
        ({"reasoning_effort": "extreme"}, "reasoning_effort 'extreme' is not one of"),
        ({"model": "openai/gpt-5"}, "pass the name of a model as llm"),
    ],
)
def test_a_wrong_value_names_the_agent(params: dict[str, Any], text: str) -> None:
    told = refuse(LiteLLMSupervisorFunction, **params)
    assert told.startswith("agent 'boss': ")
    assert told.count("agent 'boss'") == 1
    assert text in told


def test_a_factory_of_ones_own_need_not_name_its_agent() -> None:
    def strict(**params: Any) -> Any:
        raise ConfigError("the moon is not full")

    assert refuse(strict) == "agent 'boss': the moon is not full"

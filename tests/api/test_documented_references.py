"""References as the documents write them: a prompt without prefix, an import by its function."""

from typing import Any

import pytest
from mail.examples.analyst_dummy.prompts import SYSPROMPT
from mail.examples.math_dummy.actions import calculate_expression, calculate_expression_action

from mail import MAILSwarmTemplate
from mail.errors import ConfigError
from mail.swarms_json.references import ReferencePolicy

FUNCTION = "python::mail.examples.math_dummy.actions:calculate_expression"
ENTRY = {
    "name": "calculate_expression",
    "description": "Evaluate an expression.",
    "parameters": {"type": "object", "properties": {"expression": {"type": "string"}}},
    "function": FUNCTION,
}


def swarm(system: str = "You count.", **fields: Any) -> dict[str, Any]:
    return {
        "name": "office",
        "version": "1.0.0",
        "entrypoint": "clerk",
        "agents": [
            {
                "name": "clerk",
                "factory": "mail.factories:LiteLLMActionAgentFunction",
                "comm_targets": [],
                "enable_entrypoint": True,
                "can_complete_tasks": True,
                "actions": ["calculate_expression"],
                "agent_params": {"llm": "openai/gpt-5-mini", "system": system},
            }
        ],
        **fields,
    }


def made(definition: dict[str, Any], references: ReferencePolicy | None = None) -> Any:
    options = {} if references is None else {"references": references}
    return MAILSwarmTemplate.from_swarms_json(definition, **options)


@pytest.mark.parametrize("prefix", ["", "python::"])
def test_a_prompt_is_imported_with_and_without_its_prefix(prefix: str) -> None:
    system = f"{prefix}mail.examples.analyst_dummy.prompts:SYSPROMPT"
    template = made(swarm(system, actions=[ENTRY]))
    assert template.agents[0].agent_params["system"] == SYSPROMPT


@pytest.mark.parametrize("text", ["note: be kind", "Be brief.", "clerk:HELLO", "a.b: c", ""])
def test_other_prompts_are_texts(text: str) -> None:
    template = made(swarm(text, actions=[ENTRY]))
    assert template.agents[0].agent_params["system"] == text


def test_a_prompt_that_is_not_there_is_an_error_with_the_closest_name() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'SYSPROMPT'"):
        made(swarm("mail.examples.analyst_dummy.prompts:SYSPROMT", actions=[ENTRY]))


def test_a_prompt_from_elsewhere_is_imported_from_listed_modules_only() -> None:
    definition = swarm("mail.examples.analyst_dummy.prompts:SYSPROMPT", actions=[ENTRY])
    allowed = ("mail.factories", "mail.examples.math_dummy")
    with pytest.raises(ConfigError, match="analyst_dummy"):
        made(definition, ReferencePolicy(imports=allowed))


def test_an_import_may_name_the_function_of_an_entry() -> None:
    template = made(swarm(actions=[ENTRY], action_imports=[FUNCTION.removeprefix("python::")]))
    [action] = template.actions
    assert (action.description, action.callback) == (ENTRY["description"], calculate_expression)


def test_an_import_may_name_the_function_that_an_action_wraps() -> None:
    template = made(swarm(actions=[], action_imports=[FUNCTION]))
    assert template.actions == [calculate_expression_action]

"""The signatures of the documents: each parameter by its name, in its place, with its default."""

import ast
import inspect
import re
from pathlib import Path
from typing import Any

import pytest

from mail.client import MAILClient
from tests.documents.test_names import find

DOCS = Path(__file__).parents[2] / "docs"

SIGNATURES = {
    "mail.client:MAILClient": "base_url, api_key=None, session=None, config=None",
    "mail.client:MAILClient.post_message": "message, entrypoint=None, show_events=False",
    "mail.client:MAILClient.post_message_stream": "message, entrypoint=None",
    "mail.client:MAILClient.get_task": "task_id",
    "mail.client:MAILClient.debug_post_responses": (
        "input, tools, instructions=None, previous_response_id=None, tool_choice=None, "
        "parallel_tool_calls=None"
    ),
    "mail.api:MAILAction": "name, description, parameters, function",
    "mail.api:MAILAction.from_pydantic_model": "model, function_str, name=None, description=None",
    "mail.api:MAILAction.from_swarm_json": "json_str",
    "mail.api:MAILAction.to_tool_dict": "style='responses'",
    "mail.api:MAILAction.to_pydantic_model": "for_tools=False",
    "mail.factories:MAILAgentFunction": (
        "name, comm_targets, tools, enable_entrypoint=False, enable_interswarm=False, "
        "can_complete_tasks=False, tool_format='responses', exclude_tools=None"
    ),
    "mail.factories:ActionAgentFunction": (
        "name, comm_targets, tools, enable_entrypoint=False, enable_interswarm=False, "
        "can_complete_tasks=False, tool_format='responses', exclude_tools=None"
    ),
    "mail.factories:SupervisorFunction": (
        "name, comm_targets, tools, can_complete_tasks=True, enable_entrypoint=False, "
        "enable_interswarm=False, tool_format='responses', exclude_tools=None"
    ),
    "mail.factories:LiteLLMAgentFunction": (
        "name, comm_targets, tools, llm, system='', user_token='', enable_entrypoint=False, "
        "enable_interswarm=False, can_complete_tasks=False, tool_format='responses', "
        "exclude_tools=None, reasoning_effort=None, thinking_budget=None, max_tokens=None, "
        "memory=True, use_proxy=None, stream_tokens=False, print_llm_streams=True, "
        "_debug_include_mail_tools=True, default_tool_choice=None"
    ),
    "mail.factories:LiteLLMActionAgentFunction": (
        "name, comm_targets, tools, llm, system, user_token='', enable_entrypoint=False, "
        "enable_interswarm=False, can_complete_tasks=False, tool_format='responses', "
        "exclude_tools=None, reasoning_effort=None, thinking_budget=None, max_tokens=None, "
        "memory=True, use_proxy=None, _debug_include_mail_tools=True, stream_tokens=False, "
        "print_llm_streams=True, default_tool_choice=None"
    ),
    "mail.factories:LiteLLMSupervisorFunction": (
        "name, comm_targets, tools, llm, system='', user_token='', can_complete_tasks=True, "
        "enable_entrypoint=False, enable_interswarm=False, tool_format='responses', "
        "exclude_tools=None, reasoning_effort=None, thinking_budget=None, max_tokens=None, "
        "memory=True, use_proxy=None, _debug_include_mail_tools=True, stream_tokens=False, "
        "print_llm_streams=True, default_tool_choice=None"
    ),
    "mail.stdlib.openai:OpenAIResponsesAgentFunction": (
        "name, comm_targets, model, tools, enable_entrypoint=False, enable_interswarm=False, "
        "can_complete_tasks=False, tool_format=None, exclude_tools=None"
    ),
    "mail.stdlib.openai:OpenAIResponsesSupervisorFunction": (
        "name, comm_targets, model, tools, can_complete_tasks=True, enable_entrypoint=False, "
        "enable_interswarm=False, tool_format=None, exclude_tools=None"
    ),
    "mail.core.tools:create_request_tool": "targets, enable_interswarm=False, style='completions'",
    "mail.core.tools:create_response_tool": "targets, enable_interswarm=False, style='completions'",
    "mail.core.tools:create_interrupt_tool": (
        "targets, enable_interswarm=False, style='completions'"
    ),
    "mail.core.tools:create_broadcast_tool": "style='completions'",
    "mail.core.tools:create_interswarm_broadcast_tool": "style='completions'",
    "mail.core.tools:create_swarm_discovery_tool": "style='completions'",
    "mail.core.tools:create_acknowledge_broadcast_tool": "style='completions'",
    "mail.core.tools:create_ignore_broadcast_tool": "style='completions'",
    "mail.core.tools:create_await_message_tool": "style='completions'",
    "mail.core.tools:create_help_tool": "style='completions'",
    "mail.core.tools:create_task_complete_tool": "style='completions'",
    "mail.core.tools:create_mail_tools": "targets, enable_interswarm=False, style='completions'",
    "mail.core.tools:create_supervisor_tools": (
        "targets, can_complete_tasks=True, enable_interswarm=False, style='completions', "
        "_debug_include_intraswarm=True"
    ),
    "mail.core.tools:pydantic_function_tool": "model",
    "mail.core.tools:_make_tools": "tools",
    "mail:MAILSwarm.run_continuous": "action_override=None",
    "mail.core.runtime:MAILRuntime.run_continuous": "action_override=None",
    "mail.store:get_langmem_store": "",
    "mail.utils.auth:login": "api_key",
    "mail.utils.auth:get_token_info": "token",
    "mail.utils.auth:caller_is_admin": "request",
    "mail.utils.parsing:read_python_string": "string",
    "mail.utils.parsing:read_url_string": "string, raise_on_error=False",
}
"""Callable to what the documents say of it."""


def _documented(text: str) -> list[tuple[str, Any]]:
    """Read a parameter list into names and defaults; ``...`` stands for no default."""
    node = ast.parse(f"def f({text}): ...").body[0]
    assert isinstance(node, ast.FunctionDef)
    names = [argument.arg for argument in node.args.args]
    defaults = [ast.literal_eval(value) for value in node.args.defaults]
    return [*zip(names, [...] * (len(names) - len(defaults)) + defaults, strict=True)]


@pytest.mark.parametrize("path", SIGNATURES)
def test_a_documented_signature_is_the_real_one(path: str) -> None:
    found = find(path)
    parameters = [one for one in inspect.signature(found).parameters.values() if one.name != "self"]
    documented = _documented(SIGNATURES[path])
    for (name, default), real in zip(documented, parameters, strict=False):
        assert real.name == name
        assert real.kind in (real.POSITIONAL_ONLY, real.POSITIONAL_OR_KEYWORD)
        if default is not ...:
            assert real.default == default, name
    assert len(parameters) >= len(documented)
    rest = parameters[len(documented) :]
    assert all(one.default is not one.empty or one.kind >= one.VAR_POSITIONAL for one in rest)


def _client_calls() -> list[tuple[str, str]]:
    """Return the calls that docs/client.md shows with their parameters, as (method, parameters)."""
    page = (DOCS / "client.md").read_text("utf-8")
    spans = re.findall(r"`(\w+)\(([^`()]*)\)`", page)
    return [(name, text) for name, text in spans if hasattr(MAILClient, name)]


def test_the_client_page_shows_the_real_parameters() -> None:
    calls = _client_calls()
    assert len(calls) > 10
    for name, text in calls:
        real = list(inspect.signature(getattr(MAILClient, name)).parameters)[1:]
        shown = [part.split("=")[0].strip() for part in text.split(",")]
        shown = [part for part in shown if part.isidentifier()]
        assert shown == [one for one in real if one in shown], name


def test_earlier_names_are_accepted_and_both_at_once_are_not() -> None:
    assert MAILClient(url="http://localhost:1").base_url == "http://localhost:1"
    with pytest.raises(TypeError, match="not both"):
        MAILClient("http://localhost:1", url="http://localhost:2")
    with pytest.raises(TypeError, match="missing argument 'base_url'"):
        MAILClient()


async def test_a_message_needs_a_text_under_one_name() -> None:
    client = MAILClient("http://localhost:1")
    with pytest.raises(TypeError, match="missing argument 'message'"):
        await client.post_message()
    with pytest.raises(TypeError, match="not both"):
        await client.post_message_stream("one", body="two")

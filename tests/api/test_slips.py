"""What a newcomer does wrong in Python, and what the library says to it."""

from collections.abc import Callable
from typing import Any

import pytest

from mail import MAILAction, MAILAgentTemplate, MAILSwarm, MAILSwarmTemplate, action
from mail.core.runtime import RuntimeSettings
from mail.errors import ConfigError, ProtocolError, ShuttingDown
from mail.factories import LiteLLMSupervisorFunction
from tests.api.support import completer, template_of

ACTIVE = {"enable_entrypoint": True, "can_complete_tasks": True}


def _team(**fields: Any) -> MAILSwarmTemplate:
    return MAILSwarmTemplate("team", agents=[template_of(completer)], entrypoint="boss", **fields)


@pytest.fixture
async def swarm() -> Any:
    made = _team().instantiate({}, print_llm_streams=False)
    yield made
    await made.shutdown()


async def dig(args: dict[str, Any]) -> str:
    """Dig a hole."""
    return "a hole"


# --- definitions --------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", ["3", 0, -1, True, 2.5])
def test_a_message_limit_is_a_whole_number_above_zero(limit: Any) -> None:
    with pytest.raises(ConfigError, match=r"task_message_limit must be a whole number above 0"):
        _team(task_message_limit=limit)


@pytest.mark.parametrize("field", ["breakpoint_tools", "exclude_tools", "keywords"])
@pytest.mark.parametrize("value", ["act", [1], None])
def test_one_text_is_no_list(field: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=f"{field} must be"):
        _team(**{field: value})


@pytest.mark.parametrize("params", [None, "token", [("user_token", "x")]])
def test_instance_params_are_a_dictionary(params: Any) -> None:
    for template in (_team(), template_of(completer)):
        with pytest.raises(ConfigError, match="instance_params must be a dictionary"):
            template.instantiate(params)


@pytest.mark.parametrize("user", [3, None])
def test_a_user_id_is_text(user: Any) -> None:
    with pytest.raises(ConfigError, match="user_id must be a string"):
        _team().instantiate({}, user_id=user)


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("max_steps", "3"),
        ("max_steps", 0),
        ("task_token_limit", "3"),
        ("task_token_limit", 2.5),
        ("task_cost_limit", "0.5"),
        ("dynamic_ctx_ratio", "0.5"),
        ("dynamic_ctx_ratio", True),
        ("max_concurrent_turns", 0),
        ("shutdown_grace", "20"),
        ("max_repairs", -1),
        ("stream_buffer", None),
    ],
)
def test_every_setting_is_checked(setting: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=f"{setting} must be"):
        RuntimeSettings(**{setting: value})


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"timeout": "5"}, "timeout of action 'dig' must be a number of seconds above 0"),
        *(({"timeout": value}, "timeout of action 'dig' must be") for value in (True, 0, -1)),
        ({"idempotent": "yes"}, "idempotent of action 'dig' must be True or False, got 'yes'"),
        ({"completes": 1}, "completes of action 'dig' must be True or False, got 1"),
        ({"untrusted": 1}, "untrusted of action 'dig' must be True or False, got 1"),
    ],
)
def test_an_actions_keywords_are_checked(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        MAILAction("dig", "Dig.", {}, dig, **options)


@pytest.mark.parametrize("function", [lambda: "x", lambda a, b: "x", lambda *, a: "x"])
def test_an_actions_function_takes_one_argument(function: Callable[..., str]) -> None:
    with pytest.raises(TypeError, match="function of action 'dig' must accept exactly one argu"):
        MAILAction("dig", "Dig.", {}, function)


@pytest.mark.parametrize("function", [lambda a: "x", lambda a, b=1: "x", lambda *a: "x", str])
def test_more_arguments_may_have_defaults(function: Callable[..., str]) -> None:
    assert MAILAction("dig", "Dig.", {}, function).name == "dig"


def test_the_decorators_name_is_a_keyword() -> None:
    with pytest.raises(TypeError, match=r"takes a function, got str; write @action\(name='dig'\)"):
        action("dig")  # type: ignore[call-overload]


def test_a_dictionary_is_no_model() -> None:
    with pytest.raises(TypeError, match="model must be a subclass of BaseModel"):
        MAILAction.from_pydantic_model(dict, dig)  # type: ignore[arg-type]


def test_a_script_without_a_place_is_asked_for() -> None:
    for llm in ("scripted", "scripted/"):
        params = {"llm": llm}
        agent = MAILAgentTemplate("boss", LiteLLMSupervisorFunction, [], [], params, **ACTIVE)
        with pytest.raises(
            ConfigError, match=r"agent 'boss': llm 'scripted/?' does not name a " "script"
        ):
            agent.instantiate({})


def test_a_factory_cannot_end_the_program() -> None:
    def leave(**params: Any) -> Any:
        raise SystemExit(3)

    agent = MAILAgentTemplate("boss", leave, [], [], {}, **ACTIVE)
    with pytest.raises(ConfigError, match="'boss' tried to exit the program"):
        agent.instantiate({})


def test_a_misspelt_object_gets_a_suggestion() -> None:
    agent = MAILAgentTemplate("boss", "mail.factories:LiteLMSupervisorFunction", [], [], {})
    with pytest.raises(ConfigError, match="mean 'LiteLLMSupervisorFunction'"):
        agent.instantiate({})
    with pytest.raises(ConfigError, match=r"agent_params of agent 'boss'.* mean 'SYSPROMPT'"):
        params = {"system": "python::mail.examples.supervisor.prompts:SISPROMPT"}
        MAILAgentTemplate("boss", LiteLLMSupervisorFunction, [], [], params)


# --- calls --------------------------------------------------------------------------------------


@pytest.mark.parametrize("task_id", [5, b"task", ["task"]])
async def test_a_task_id_is_text(swarm: MAILSwarm, task_id: Any) -> None:
    with pytest.raises(ProtocolError, match="task_id must be a string"):
        await swarm.post_message("hello", task_id=task_id)


@pytest.mark.parametrize("limit", ["a", -1, True, 1.0])
async def test_a_page_has_a_whole_number_of_tasks(swarm: MAILSwarm, limit: Any) -> None:
    with pytest.raises(ProtocolError, match="limit must be a whole number"):
        await swarm.read_tasks(limit=limit)
    with pytest.raises(ProtocolError, match="must be a string"):
        await swarm.read_tasks(cursor=7)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"payload": 3}, "payload must be a string, got int"),
        ({"payload": 0}, "payload must be a string, got int"),
        ({"_llm": 3}, "llm must be a string, got int"),
        ({"_system": 3}, "system must be a string, got int"),
        ({"target": None}, "target must be a string, got NoneType"),
        ({"task_id": 3}, "task_id must be a string, got int"),
        ({"response_targets": 3}, "response_targets must be a list of agent names"),
        ({"response_targets": [3]}, "response_targets must be a list of agent names, got int"),
        ({"dynamic_ctx_ratio": "half"}, "dynamic_ctx_ratio must be between 0 and 1"),
    ],
)
async def test_a_manual_step_is_read_before_it_starts(
    swarm: MAILSwarm, given: dict[str, Any], text: str
) -> None:
    running = swarm.run_continuous(mode="manual")
    with pytest.raises(ValueError, match=text):
        await swarm.manual_step(**{"task_id": "t", "target": "boss", **given})
    running.close()


async def test_a_swarm_that_is_shut_down_says_so() -> None:
    swarm = _team().instantiate({}, print_llm_streams=False)
    await swarm.post_message("hello")
    await swarm.shutdown()
    with pytest.raises(ShuttingDown, match="the swarm is shut down"):
        await swarm.post_message("hello")

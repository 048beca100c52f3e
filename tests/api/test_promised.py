"""The class reference of the user's documents: every parameter, in its place, with its default."""

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from mail import MAILAction, MAILAgent, MAILAgentTemplate, MAILSwarm, MAILSwarmTemplate, action

NEEDED = inspect.Parameter.empty

AGENT = {
    "actions": NEEDED,
    "agent_params": NEEDED,
    "enable_entrypoint": False,
    "enable_interswarm": False,
    "can_complete_tasks": False,
    "tool_format": "responses",
}
POST = {"body": NEEDED, "subject": "New Message", "msg_type": "request", "entrypoint": None}
GRAPH = [
    ("update_from_adjacency_matrix", {"adj": NEEDED}),
    ("get_subswarm", {"names": NEEDED, "name_suffix": NEEDED, "entrypoint": None}),
]
SIGNATURES: list[tuple[Callable[..., Any], dict[str, Any]]] = [
    (
        MAILAction.__init__,
        dict.fromkeys(("name", "description", "parameters", "function"), NEEDED),
    ),
    (
        MAILAction.from_pydantic_model,
        {"model": NEEDED, "function_str": None, "name": None, "description": None},
    ),
    (MAILAction.from_swarm_json, {"json_str": NEEDED}),
    (MAILAction.to_tool_dict, {"style": "responses"}),
    (MAILAction.to_pydantic_model, {"for_tools": False}),
    (MAILAction._build_action_function, {"function": NEEDED}),
    (MAILAction._validate, {}),
    (
        MAILAgent.__init__,
        {"name": NEEDED, "factory": NEEDED, "actions": NEEDED, "function": NEEDED}
        | {"comm_targets": NEEDED}
        | AGENT,
    ),
    (MAILAgent.__call__, {"messages": NEEDED, "tool_choice": "required"}),
    (MAILAgent._to_template, {"names": NEEDED}),
    (MAILAgent._validate, {}),
    (
        MAILAgentTemplate.__init__,
        {"name": NEEDED, "factory": NEEDED, "comm_targets": NEEDED} | AGENT,
    ),
    (MAILAgentTemplate.instantiate, {"instance_params": NEEDED, "additional_exclude_tools": None}),
    (MAILAgentTemplate.from_swarm_json, {"json_str": NEEDED, "actions_by_name": None}),
    (MAILAgentTemplate.from_example, {"name": NEEDED, "comm_targets": NEEDED}),
    (MAILAgentTemplate._top_level_params, {}),
    (MAILAgentTemplate._validate, {}),
    (
        MAILSwarm.__init__,
        dict.fromkeys(("name", "version", "agents", "actions", "entrypoint"), NEEDED)
        | {"user_id": "default", "user_role": "user", "swarm_registry": None}
        | {"enable_interswarm": False, "breakpoint_tools": (), "exclude_tools": ()}
        | {"task_message_limit": None, "description": "", "keywords": ()}
        | {"enable_db_agent_histories": False, "print_llm_streams": True},
    ),
    (
        MAILSwarm.post_message,
        {**POST, "show_events": False, "timeout": 3600.0, "task_id": None, "resume_from": None},
    ),
    (
        MAILSwarm.post_message_stream,
        {**POST, "task_id": None, "timeout": 3600.0, "resume_from": None},
    ),
    (
        MAILSwarm.build_message,
        {"subject": NEEDED, "body": NEEDED, "targets": NEEDED}
        | {"sender_type": "user", "type": "request", "task_id": None},
    ),
    (
        MAILSwarm.submit_message,
        {"message": NEEDED, "timeout": 3600.0, "show_events": False, "resume_from": None},
    ),
    (MAILSwarm.submit_message_nowait, {"message": NEEDED}),
    (
        MAILSwarm.submit_message_stream,
        {"message": NEEDED, "timeout": 3600.0, "resume_from": None},
    ),
    (
        MAILSwarm.run_continuous,
        {"action_override": None, "max_steps": None, "mode": "continuous"},
    ),
    (MAILSwarm.receive_interswarm_message, {"message": NEEDED, "direction": "forward"}),
    (MAILSwarm.send_interswarm_message, {"message": NEEDED, "direction": "forward"}),
    (MAILSwarm.post_interswarm_user_message, {"message": NEEDED}),
    (MAILSwarm.handle_interswarm_response, {"response_message": NEEDED}),
    (MAILSwarm.route_interswarm_message, {"message": NEEDED}),
    (MAILSwarm.get_response_message, {"task_id": NEEDED}),
    (MAILSwarm.get_events, {"task_id": NEEDED}),
    (MAILSwarm.get_task_by_id, {"task_id": NEEDED}),
    *((getattr(MAILSwarm, name), {}) for name in ("shutdown", "get_all_tasks", "_validate")),
    *((getattr(MAILSwarm, name), {}) for name in ("start_interswarm", "stop_interswarm")),
    *((getattr(MAILSwarm, name), {}) for name in ("is_interswarm_running", "await_queue_empty")),
    (MAILSwarm.get_pending_requests, {}),
    (MAILSwarm.load_agent_histories_from_db, {}),
    (MAILSwarm.load_tasks_from_db, {}),
    *((getattr(MAILSwarm, name), expected) for name, expected in GRAPH),
    (
        MAILSwarmTemplate.instantiate,
        {"instance_params": NEEDED, "user_id": "default_user", "user_role": "user"}
        | {"base_url": "http://localhost:8000", "registry_file": None, "print_llm_streams": True},
    ),
    (MAILSwarmTemplate.from_swarms_json, {"swarm_data": NEEDED, "task_message_limit": None}),
    (MAILSwarmTemplate.from_swarm_json, {"json_str": NEEDED, "task_message_limit": None}),
    (
        MAILSwarmTemplate.from_swarm_json_file,
        {"swarm_name": NEEDED, "json_filepath": "swarms.json", "task_message_limit": None},
    ),
    (
        MAILSwarmTemplate.start_server,
        {"port": 8000, "host": "0.0.0.0", "launch_ui": True, "ui_port": 3000, "ui_path": None}  # noqa: S104 - the documented default
        | {"open_browser": True, "server_url": None},
    ),
    (MAILSwarmTemplate._build_adjacency_matrix, {}),
    (MAILSwarmTemplate._validate, {}),
    *((getattr(MAILSwarmTemplate, name), expected) for name, expected in GRAPH),
]


@pytest.mark.parametrize(
    ("function", "promised"), SIGNATURES, ids=[made.__qualname__ for made, _ in SIGNATURES]
)
def test_every_promised_parameter_is_in_its_place(
    function: Callable[..., Any], promised: dict[str, Any]
) -> None:
    found = {
        name: parameter.default
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD and name != "self"
    }
    assert list(found)[: len(promised)] == list(promised)
    assert {name: found[name] for name in promised} == promised
    more = {name: default for name, default in found.items() if name not in promised}
    assert NEEDED not in more.values()  # whatever we add can be left out


def test_the_parameters_of_the_other_two_are_there() -> None:
    found = inspect.signature(MAILSwarmTemplate.__init__).parameters
    promised = ["name", "version", "agents", "actions", "entrypoint", "enable_interswarm"]
    promised += ["breakpoint_tools", "exclude_tools", "task_message_limit", "description"]
    promised += ["keywords", "public", "enable_db_agent_histories"]
    assert list(found)[1 : len(promised) + 1] == promised
    keywords = {"name", "description", "model", "parameters", "style"}
    assert keywords <= inspect.signature(action).parameters.keys()

"""The shapes of ``swarms.json``: what may be in its fields, and what the optional ones default to.

A loaded definition has all fields.
"""

import dataclasses
import re
import warnings
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, Field
from typing_extensions import TypedDict

from mail.config.toml import fits
from mail.core.approvals import Approval
from mail.core.suggest import hinted
from mail.errors import ConfigError
from mail.services.preferences import memories_problem
from mail.swarms_json.fields import spelled
from mail.swarms_json.names import check_action_name, check_agent_name, check_swarm_name
from mail.swarms_json.parameters import check_parameters
from mail.swarms_json.references import is_python_reference

_VARIABLE: Final = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_]*\}")
_SECRET: Final = re.compile(r"auth|cookie|key|password|secret|token", re.IGNORECASE)
_APPROVAL_FIELDS: Final = tuple(field.name for field in dataclasses.fields(Approval))
_NO_REFERENCE: Final = (
    "must be a Python reference such as 'python::module:object'; what a 'url::' fetches is text, "
    "and this is code"
)
_MOST_MEMBERS: Final = 255
"""Beside the lead: with it, as many as a broadcast of the mail desk may have recipients."""


def _check_variables(values: dict[str, str]) -> dict[str, str]:
    for name, value in values.items():
        if not name.isprintable() or not value.isprintable():
            raise ValueError(f"must have texts of one line as its values; see {name[:64]!r}")
        if _SECRET.search(name) and not _VARIABLE.search(value):
            raise ValueError(
                f"has a secret in {name[:64]!r}; name an environment variable in its place, "
                "such as '${GITHUB_TOKEN}'"
            )
    return values


def _check_approval(value: dict[str, Any]) -> dict[str, Any]:
    """Check an approval but for what its ``describe`` leads to."""
    for name in value:
        if name not in _APPROVAL_FIELDS:
            raise ValueError(hinted(f"has an unknown field {name[:64]!r}", name, _APPROVAL_FIELDS))
    if value.get("describe") is not None and not is_python_reference(value["describe"]):
        raise ValueError(f"has a 'describe' that {_NO_REFERENCE}")
    try:
        Approval(**{name: each for name, each in value.items() if name != "describe"})
    except ConfigError as error:
        raise ValueError(f"is wrong: {str(error).removeprefix('approval: ')}") from None
    return value


def _check_memories(values: dict[str, Any]) -> dict[str, Any]:
    if problem := memories_problem(values):
        raise ValueError(problem)
    return values


_Flag = Annotated[bool, Field(default=False)]
_Text = Annotated[str, Field(default="")]
_Filled = Annotated[str, fits(str.strip, "must not be empty")]
_Names = Annotated[list[_Filled], Field(default_factory=list, fail_fast=True)]
_Code = Annotated[str, fits(is_python_reference, _NO_REFERENCE)]
_Variables = Annotated[
    dict[str, str], AfterValidator(_check_variables), Field(default_factory=dict)
]
_Command = Annotated[
    list[str],
    fits(
        lambda parts: parts and parts[0].strip() and "\0" not in "".join(parts),
        "must be a program and its arguments",
    ),
]
_Address = Annotated[
    str, fits(re.compile(r"https?://[^\s/]+\S*").fullmatch, "must be an http or https address")
]
_ServerName = Annotated[
    str,
    fits(
        re.compile(r"(?!.*__)[A-Za-z0-9_-]{1,32}").fullmatch,
        "must have a name of 1 to 32 letters, digits, '-' or '_', without '__'",
    ),
]
_Approval = Annotated[dict[str, Any], AfterValidator(_check_approval)]

ToolFormat = Literal["completions", "responses"]


class SwarmsJSONAction(TypedDict):
    """An action: its JSON Schema and the Python function behind it.

    ``idempotent``, ``timeout`` (seconds, None for no limit), ``completes``, ``untrusted`` and
    ``approval`` are as in ``MAILAction``.
    """

    name: Annotated[str, AfterValidator(check_action_name)]
    description: _Filled
    parameters: dict[str, Any]
    function: _Code
    idempotent: _Flag
    timeout: Annotated[float | None, Field(default=None, gt=0, allow_inf_nan=False)]
    completes: _Flag
    untrusted: _Flag
    approval: Annotated[_Approval | None, Field(default=None)]


class SwarmsJSONAgent(TypedDict):
    """An agent; ``actions`` are names of actions of the swarm."""

    name: Annotated[str, AfterValidator(check_agent_name)]
    factory: _Code
    comm_targets: Annotated[list[_Filled], Field(fail_fast=True)]
    agent_params: dict[str, Any]
    enable_entrypoint: _Flag
    enable_interswarm: _Flag
    can_complete_tasks: _Flag
    tool_format: Annotated[ToolFormat, Field(default="responses")]
    actions: _Names
    exclude_tools: _Names


class SwarmsJSONParticipant(TypedDict):
    """A participant: one who is no agent of the swarm, and has a mailbox there."""

    name: str
    description: _Text


class SwarmsJSONTeam(TypedDict):
    """A team: the names of its lead and its other members, agents or participants."""

    id: str
    lead: str
    members: Annotated[list[_Filled], Field(min_length=1, max_length=_MOST_MEMBERS)]


class SwarmsJSONMCPServer(TypedDict):
    """An MCP server: a ``command``, or a ``url``; ``${NAME}`` in its secrets is a variable.

    ``tools`` are the names of those that agents may have, None for all.
    """

    command: Annotated[_Command | None, Field(default=None)]
    env: _Variables
    url: Annotated[_Address | None, Field(default=None)]
    headers: _Variables
    tools: Annotated[list[_Filled] | None, Field(default=None)]
    timeout_seconds: Annotated[float, Field(default=30.0, gt=0, allow_inf_nan=False)]
    optional: _Flag


def _check_server(server: SwarmsJSONMCPServer) -> SwarmsJSONMCPServer:
    if (server["command"] is None) == (server["url"] is None):
        raise ValueError("must have either a 'command' or a 'url'")
    if server["env"] if server["command"] is None else server["headers"]:
        raise ValueError("has 'env' only with a 'command', and 'headers' only with a 'url'")
    return server


def _check_action(action: SwarmsJSONAction) -> SwarmsJSONAction:
    check_parameters(action["name"], action["parameters"])
    return action


def _check_agent(agent: SwarmsJSONAgent) -> SwarmsJSONAgent:
    if "tool_format" in agent["agent_params"]:
        warnings.warn(
            f"'tool_format' inside agent_params of agent '{agent['name']}' is deprecated and "
            "ignored; set it on the agent itself",
            DeprecationWarning,
            stacklevel=5,
        )
    return agent


Action = Annotated[
    SwarmsJSONAction, spelled("action", SwarmsJSONAction), AfterValidator(_check_action)
]
Agent = Annotated[SwarmsJSONAgent, spelled("agent", SwarmsJSONAgent), AfterValidator(_check_agent)]
_Participant = Annotated[SwarmsJSONParticipant, spelled("participant", SwarmsJSONParticipant)]
_Team = Annotated[SwarmsJSONTeam, spelled("team", SwarmsJSONTeam)]
_Server = Annotated[
    SwarmsJSONMCPServer, spelled("MCP server", SwarmsJSONMCPServer), AfterValidator(_check_server)
]


class SwarmsJSONSwarm(TypedDict):
    """A swarm; ``action_imports`` are Python references to ready-made actions."""

    name: Annotated[str, AfterValidator(check_swarm_name)]
    version: str
    entrypoint: str
    agents: Annotated[list[Agent], Field(fail_fast=True)]
    actions: Annotated[list[Action], Field(fail_fast=True)]
    action_imports: Annotated[list[_Code], Field(default_factory=list, fail_fast=True)]
    enable_interswarm: _Flag
    breakpoint_tools: _Names
    exclude_tools: _Names
    description: _Text
    keywords: _Names
    public: _Flag
    enable_db_agent_histories: _Flag
    participants: Annotated[list[_Participant], Field(default_factory=list, max_length=1000)]
    mcp_servers: Annotated[dict[_ServerName, _Server], Field(default_factory=dict)]
    teams: Annotated[list[_Team], Field(default_factory=list, max_length=1000)]
    approvals: Annotated[dict[str, _Approval], Field(default_factory=dict)]
    memories: Annotated[
        dict[str, str], AfterValidator(_check_memories), Field(default_factory=dict)
    ]


Swarm = Annotated[SwarmsJSONSwarm, spelled("swarm", SwarmsJSONSwarm)]


class SwarmsJSONFile(TypedDict):
    """A loaded file: its swarms by position. The file itself is the bare list."""

    swarms: list[SwarmsJSONSwarm]

"""The shapes of ``swarms.json`` after loading: every optional field has its default."""

from typing import Any, Literal

from typing_extensions import TypedDict

ToolFormat = Literal["completions", "responses"]


class SwarmsJSONAction(TypedDict):
    """An action: its JSON Schema and the Python function behind it.

    ``idempotent``, ``timeout`` (seconds, None for no limit), ``completes``, ``untrusted`` and
    ``approval`` are as in ``MAILAction``.
    """

    name: str
    description: str
    parameters: dict[str, Any]
    function: str
    idempotent: bool
    timeout: float | None
    completes: bool
    untrusted: bool
    approval: dict[str, Any] | None


class SwarmsJSONAgent(TypedDict):
    """An agent; ``actions`` are names of actions of the swarm."""

    name: str
    factory: str
    comm_targets: list[str]
    agent_params: dict[str, Any]
    enable_entrypoint: bool
    enable_interswarm: bool
    can_complete_tasks: bool
    tool_format: ToolFormat
    actions: list[str]
    exclude_tools: list[str]


class SwarmsJSONParticipant(TypedDict):
    """A participant: one who is no agent of the swarm, and has a mailbox there."""

    name: str
    description: str


class SwarmsJSONTeam(TypedDict):
    """A team: the names of its lead and its other members, agents or participants."""

    id: str
    lead: str
    members: list[str]


class SwarmsJSONMCPServer(TypedDict):
    """An MCP server: a ``command``, or a ``url``; ``${NAME}`` in its secrets is a variable.

    ``tools`` are the names of those that agents may have, None for all.
    """

    command: list[str] | None
    env: dict[str, str]
    url: str | None
    headers: dict[str, str]
    tools: list[str] | None
    timeout_seconds: float
    optional: bool


class SwarmsJSONSwarm(TypedDict):
    """A swarm; ``action_imports`` are Python references to ready-made actions."""

    name: str
    version: str
    entrypoint: str
    agents: list[SwarmsJSONAgent]
    actions: list[SwarmsJSONAction]
    action_imports: list[str]
    enable_interswarm: bool
    breakpoint_tools: list[str]
    exclude_tools: list[str]
    description: str
    keywords: list[str]
    public: bool
    enable_db_agent_histories: bool
    participants: list[SwarmsJSONParticipant]
    mcp_servers: dict[str, SwarmsJSONMCPServer]
    teams: list[SwarmsJSONTeam]
    approvals: dict[str, dict[str, Any]]
    memories: dict[str, str]


class SwarmsJSONFile(TypedDict):
    """A loaded file: its swarms by position. The file itself is the bare list."""

    swarms: list[SwarmsJSONSwarm]

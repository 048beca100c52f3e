"""The table of MAIL's own tools: name, arguments, audience and description of each.

A new tool is an entry here, a handler in `mail.core.runtime.handlers` and a page in ``help/``.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from mail.core.schema import problems_of
from mail.core.teams import DEFAULT_WAIT, MAX_WAIT, Priority
from mail.core.tools.call import problem_of_arguments
from mail.errors import ToolError

Audience = Literal["agent", "supervisor"]

MAX_DISCOVERY_URLS: Final = 16
"""The number of servers that one call may ask for their swarms."""


class _Arguments(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class SendArgs(_Arguments):
    """Arguments of the tools that write to one agent."""

    target: str = Field(min_length=1, description="The name of the agent to write to.")
    subject: str = Field(description="What the message is about, in a few words.")
    body: str = Field(description="The message itself.")


class BroadcastArgs(_Arguments):
    """Arguments of ``send_broadcast``."""

    subject: str = Field(description="What the message is about, in a few words.")
    body: str = Field(description="The message itself.")
    targets: list[str] | None = Field(
        default=None, description="The agents to inform; leave empty to inform the whole swarm."
    )


class InterswarmBroadcastArgs(_Arguments):
    """Arguments of ``send_interswarm_broadcast``."""

    subject: str = Field(description="What the message is about, in a few words.")
    body: str = Field(description="The message itself.")
    target_swarms: list[str] = Field(
        default_factory=list,
        description="The swarms to inform; leave empty to inform all that are active.",
    )


class DiscoverArgs(_Arguments):
    """Arguments of ``discover_swarms``."""

    discovery_urls: list[str] = Field(
        min_length=1,
        max_length=MAX_DISCOVERY_URLS,
        description="The base addresses of MAIL servers, such as https://mail.example.org.",
    )


class AcknowledgeArgs(_Arguments):
    """Arguments of ``acknowledge_broadcast``."""

    note: str | None = Field(
        default=None, description="Optional note, stored with the broadcast in your own memory."
    )


class IgnoreArgs(_Arguments):
    """Arguments of ``ignore_broadcast``."""

    reason: str | None = Field(
        default=None, description="Optional reason for the server's log; nobody else sees it."
    )


class AwaitArgs(_Arguments):
    """Arguments of ``await_message``."""

    reason: str | None = Field(
        default=None, description="Optional: what you are waiting for; shown in the task's events."
    )


_Urgency = Annotated[
    Priority, BeforeValidator(lambda given: "urgent" if given == "urgent" else "normal")
]


class _TeammateArguments(_Arguments):
    team_id: str = Field(min_length=1, alias="teamId", description="The team's id.")


class TeammateMessageArgs(_TeammateArguments):
    """Arguments of ``teammate_message``."""

    to: str = Field(min_length=1, description="The name of the teammate, or lead for the lead.")
    message: str = Field(min_length=1, description="The message itself.")
    priority: _Urgency = Field(
        default="normal", description="urgent interrupts the teammate; normal does not."
    )
    wait_for_reply: bool = Field(
        default=False,
        alias="waitForReply",
        description="Stop until the teammate has replied; the reply is the result of this call.",
    )
    timeout_seconds: float = Field(
        default=DEFAULT_WAIT,
        ge=0,
        allow_inf_nan=False,
        alias="timeoutSeconds",
        description="How long to wait for the reply.",
        json_schema_extra={"maximum": MAX_WAIT},
    )


class TeammateBroadcastArgs(_TeammateArguments):
    """Arguments of ``teammate_broadcast``."""

    message: str = Field(min_length=1, description="The message itself.")
    priority: _Urgency = Field(
        default="normal", description="urgent interrupts the teammates; normal does not."
    )
    exclude_self: bool = Field(
        default=False,
        alias="excludeSelf",
        description="Leave yourself out; otherwise you get a copy, unless you are the lead.",
    )


class LetterReceiptsArgs(_Arguments):
    """Arguments of ``letter_receipts``."""

    participant: str | None = Field(
        default=None, description="Optional: only messages to this participant."
    )
    unanswered_for: float | None = Field(
        default=None,
        ge=0,
        le=10**9,
        allow_inf_nan=False,
        description="Optional: only messages that for so many seconds nobody has acknowledged or "
        "answered.",
    )
    limit: int = Field(default=5, ge=1, le=50, description="The maximum number of receipts.")


class ReadAttachmentArgs(_Arguments):
    """Arguments of ``read_attachment``."""

    file_id: str = Field(min_length=1, description="The file's id, or its mail://files address.")
    offset: int = Field(default=0, ge=0, description="The byte to begin at.")
    max_bytes: int = Field(
        default=10_000, ge=1, le=50_000, description="The maximum number of bytes."
    )


class SendAttachmentArgs(_Arguments):
    """Arguments of ``send_attachment``."""

    target: str = Field(min_length=1, description="The participant to write to.")
    subject: str = Field(description="What the message is about, in a few words.")
    body: str = Field(description="The message itself.")
    file_id: str = Field(min_length=1, description="A file that came with a message to you.")


HelpTopic = Literal[
    "send_request",
    "send_response",
    "send_broadcast",
    "send_interrupt",
    "acknowledge_broadcast",
    "ignore_broadcast",
    "await_message",
    "task_complete",
    "teammate_message",
    "teammate_broadcast",
    "letter_receipts",
]


class HelpArgs(_Arguments):
    """Arguments of ``help``."""

    get_summary: bool = Field(default=True, description="Include an overview of MAIL.")
    get_identity: bool = Field(default=False, description="Include your own name and addresses.")
    get_tool_help: list[HelpTopic] = Field(
        default_factory=list, description="The tools to explain in detail."
    )
    get_full_protocol: bool = Field(
        default=False, description="Include the full protocol specification, which is long."
    )


class SearchMemoryArgs(_Arguments):
    """Arguments of ``search_memory``."""

    query: str = Field(description="The words to search for in your memory.")
    limit: int = Field(default=5, ge=1, le=50, description="The maximum number of results.")


class TaskCompleteArgs(_Arguments):
    """Arguments of ``task_complete``."""

    finish_message: str = Field(description="The final answer, exactly as the caller will read it.")


class ToolSpec(NamedTuple):
    """One tool of the catalogue.

    Attributes:
        name: Its name for models; ``help/<name>.md`` explains it, and the table of
            `mail.core.runtime.handlers` has its handler.
        model: Its arguments.
        audience: The agents that are offered it: all with targets, or supervisors only.
        description: Its description for models.
        extra: Whether agents get it beside the documented set of ``create_mail_tools``.
        recalls: Whether its result holds what others have written.
        interswarm: Whether it is for agents with ``enable_interswarm`` only.
        team: Whether it is offered to members of teams only.
        letters: Whether it is offered to agents only that may write to participants.
        files: Whether it is offered only to agents to whom participants write.
    """

    name: str
    model: type[BaseModel]
    audience: Audience
    description: str
    extra: bool = False
    recalls: bool = False
    interswarm: bool = False
    team: bool = False
    letters: bool = False
    files: bool = False


_SPECS: Final = (
    ToolSpec(
        "send_request",
        SendArgs,
        "agent",
        "Ask another agent to do something. Its answer arrives as a new message.",
    ),
    ToolSpec(
        "send_response",
        SendArgs,
        "agent",
        "Answer another agent's request.",
    ),
    ToolSpec(
        "send_interrupt",
        SendArgs,
        "supervisor",
        "Interrupt another agent and tell it what to do instead.",
    ),
    ToolSpec(
        "send_broadcast",
        BroadcastArgs,
        "supervisor",
        "Send one message to several agents, without asking for an answer.",
    ),
    ToolSpec(
        "send_interswarm_broadcast",
        InterswarmBroadcastArgs,
        "supervisor",
        "Send one message to other swarms, without asking for an answer.",
        interswarm=True,
    ),
    ToolSpec(
        "discover_swarms",
        DiscoverArgs,
        "supervisor",
        "Ask MAIL servers which swarms they list, so that you can write to them.",
        recalls=True,
        interswarm=True,
    ),
    ToolSpec(
        "acknowledge_broadcast",
        AcknowledgeArgs,
        "agent",
        "Store the broadcast you have just received in your memory, without answering it.",
    ),
    ToolSpec(
        "ignore_broadcast",
        IgnoreArgs,
        "agent",
        "Discard the broadcast you have just received, without storing or answering it.",
    ),
    ToolSpec(
        "await_message",
        AwaitArgs,
        "agent",
        "End your turn and wait for a message that is still to come.",
    ),
    ToolSpec(
        "help",
        HelpArgs,
        "agent",
        "Get an explanation of MAIL and its tools in your next message.",
    ),
    ToolSpec(
        "search_memory",
        SearchMemoryArgs,
        "agent",
        "Search the broadcasts you have acknowledged earlier.",
        extra=True,
        recalls=True,
    ),
    ToolSpec(
        "teammate_message",
        TeammateMessageArgs,
        "agent",
        "Send a direct message to a specific teammate in your team.",
        team=True,
    ),
    ToolSpec(
        "teammate_broadcast",
        TeammateBroadcastArgs,
        "agent",
        "Send a message to all active teammates in your team.",
        team=True,
    ),
    ToolSpec(
        "letter_receipts",
        LetterReceiptsArgs,
        "agent",
        "See whether your messages to participants outside the swarm were read and answered.",
        recalls=True,
        letters=True,
    ),
    ToolSpec(
        "read_attachment",
        ReadAttachmentArgs,
        "agent",
        "Read a text file that came with a message of a participant.",
        recalls=True,
        files=True,
    ),
    ToolSpec(
        "send_attachment",
        SendAttachmentArgs,
        "agent",
        "Write to a participant, and hand on a file that came with a message to you.",
        files=True,
    ),
    ToolSpec(
        "task_complete",
        TaskCompleteArgs,
        "supervisor",
        "End the task with its final answer. Call this once, when all work is done.",
    ),
)

CATALOGUE: Final[Mapping[str, ToolSpec]] = {spec.name: spec for spec in _SPECS}


MAIL_TOOL_NAMES: Final[list[str]] = [
    "send_request",
    "send_response",
    "send_interrupt",
    "send_broadcast",
    "task_complete",
    "await_message",
    "help",
]
"""The tools that show in an agent's visible history (``spec/``, chapter on tools)."""

TEXT_TOOL: Final = "text_output"
"""The call that stands for plain text in a model's reply."""

BUILTIN_TOOLS: Final = frozenset(
    {
        "web_search_call",
        "code_interpreter_call",
        "file_search_call",
        "image_generation_call",
        "mcp_call",
        "server_tool_use",
    }
)
"""Tools that a provider runs itself: they are logged and need no result."""

PASSIVE: Final = BUILTIN_TOOLS | {TEXT_TOOL}
"""A model's words or deeds without a call of a tool of its agent."""

A = TypeVar("A", bound=BaseModel)


def check_usable(name: str, arguments: Mapping[str, Any]) -> None:
    """Refuse what stands in the place of arguments that no tool can be called with.

    Raises:
        ToolError: see `mail.core.tools.call.problem_of_arguments`.
    """
    if problem := problem_of_arguments(name, arguments):
        raise ToolError(problem)


def parse_arguments(name: str, arguments: dict[str, Any], model: type[A]) -> A:
    """Read the arguments of a tool call; unknown ones are ignored, null means the default.

    They are usable, see `check_usable`.

    Raises:
        ToolError: they do not fit; the text names each argument and its problem.
    """
    try:
        return model.model_validate(arguments)
    except ValidationError:
        given = {key: value for key, value in arguments.items() if value is not None}
    try:
        return model.model_validate(given)
    except ValidationError as error:
        problems = "; ".join(f"{item['field']}: {item['problem']}" for item in problems_of(error))
        raise ToolError(f"invalid arguments for '{name}': {problems}") from None

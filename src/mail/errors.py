"""The one exception tree. Classes carry data; HTTP status codes live in the server's own table."""

from collections.abc import Sequence
from typing import Final

MISDIRECTED: Final = "misdirected"
"""The code of `Misdirected`."""

UNKNOWN_TASK: Final = "unknown_task"
"""The code of `UnknownTask`."""


class MAILError(Exception):
    """Base of every error that MAIL raises on purpose.

    ``code`` is its name in answers that programs have to tell apart; None for all others. ``text``
    is what an error says that is raised without a text of its own; where it has places for
    arguments (``{0}``), the error is raised with these.
    """

    code: str | None = None
    text = ""

    def __init__(self, *args: object) -> None:
        if self.text and (not args or "{0" in self.text):
            args = (self.text.format(*args),)
        super().__init__(*args)


class NotFound(MAILError):
    """The named thing does not exist, or the caller may not see it."""


class Conflict(MAILError):
    """The request does not fit the present state."""


class ProtocolError(MAILError, ValueError):
    """Something breaks the protocol; ``problems`` lists each fault as ``{"field", "problem"}``."""

    def __init__(self, message: str, problems: Sequence[dict[str, str]] = ()) -> None:
        super().__init__(message)
        self.problems = tuple(problems)


class Misdirected(ProtocolError):
    """Mail between swarms came to a server that does not serve the swarm it is for."""

    code = MISDIRECTED


class AddressError(ProtocolError):
    """An address or contributor string that cannot be read."""


class ConfigError(MAILError, ValueError):
    """A setting, swarm definition or environment variable is wrong; the text says where."""


class WrongReference(ConfigError, TypeError):
    """A reference in a definition leads to an object of another kind than is needed there."""


class TaskError(MAILError, ValueError):
    """A request about a task cannot be honoured; nothing was started or changed."""


class UnknownTask(NotFound, TaskError):
    """No task of this owner has that id."""

    code = UNKNOWN_TASK

    def __init__(self, task_id: str) -> None:
        super().__init__(f"task '{task_id}' not found")
        self.task_id = task_id


class UnknownAgent(TaskError):
    """No agent of the swarm has that name."""


class TaskPaused(Conflict, TaskError):
    """The task waits for the results of breakpoint tool calls."""

    def __init__(self, task_id: str, open_calls: Sequence[str]) -> None:
        listing = ", ".join(f"'{call}'" for call in open_calls)
        super().__init__(
            f"task '{task_id}' is paused on breakpoint tool calls {listing}; answer them with "
            "resume_from='breakpoint_tool_call', or at /approvals, where those that only wait for "
            "a person's consent can be accepted"
        )
        self.task_id, self.open_calls = task_id, tuple(open_calls)


class TaskRunning(Conflict, TaskError):
    """The task is at work, so it cannot be deleted; or it is just being deleted."""


class TaskTaken(Conflict, TaskError):
    """Another swarm's task has the id of another one of its tasks."""


class BreakpointError(TaskError):
    """A breakpoint result that names no open call, or is not shaped like a result."""

    def __init__(self, message: str, open_calls: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.open_calls = tuple(open_calls)


class AlreadyAnswered(Conflict, BreakpointError):
    """The breakpoint call already has a result; it is not run twice."""


class ApprovalError(TaskError):
    """An answer that has no valid form, that is not allowed, or whose arguments do not fit."""


class ApprovalClosed(Conflict, TaskError):
    """The call was answered before, its time is up, or its task has ended.

    ``status`` is that of the approval.
    """

    def __init__(self, status: str) -> None:
        super().__init__(f"the call takes no answer any more: {status}")
        self.status = status
        self.problems = [{"field": "status", "problem": status}]


class NotSetAside(NotFound, TaskError):
    """The task has no mail of that number that was set aside."""

    text = "task '{0}' has no mail {1} that was set aside"


class RetryRefused(Conflict, TaskError):
    """Mail that was set aside is not tried again: it could lead to nothing."""


class UnknownApproval(NotFound, TaskError):
    """There is no such approval, or it is not for who asks."""

    text = "no such approval"


class DeskError(MAILError, ValueError):
    """A request about letters or threads cannot be honoured; nothing was changed."""


class UnknownFile(NotFound, DeskError):
    """There is no such file, or it is not for who asks."""

    text = "no such file"


class UnknownLetter(NotFound, DeskError):
    """There is no such letter, or it is not for the eyes of who asks."""

    text = "no such message"


class UnknownThread(NotFound, DeskError):
    """There is no such thread, or who asks is not in it."""

    text = "no such thread"


class RequestReused(Conflict, DeskError):
    """A sender has used the request id for another letter, or another file."""

    text = (
        "the request id was used for a different request; repeat that one unchanged, or use a "
        "new id"
    )


class UnknownMemory(NotFound, ValueError):
    """The caller has no memory of that name, and the swarm declares none."""

    text = "no such memory; PUT makes one"


class MemoryConflict(Conflict, ValueError):
    """A memory was changed meanwhile; nothing was stored."""

    text = "the memory was changed meanwhile; read it again"


class TeamError(MAILError, ValueError):
    """A message to a team or a teammate cannot be sent. The texts are a part of the tools."""


class TeamsDisabled(TeamError):
    """The swarm's teams are switched off."""

    text = "Teams are not enabled."


class UnknownTeam(NotFound, TeamError):
    """The swarm has no team with that id."""

    text = "Team not found."


class NotOfTeam(TeamError):
    """The sender is not in that team."""

    text = "You are not a member of this team."


class UnknownTeammate(NotFound, TeamError):
    """Nobody else in the team has that name."""

    text = 'Teammate "{0}" not found.'


class WaitCycle(Conflict, TeamError):
    """Members of a team would wait for the replies of one another for ever."""

    def __init__(self, names: Sequence[str]) -> None:
        path = " -> ".join(names)
        super().__init__(
            f"The wait would close a cycle: {path}. Send the message without waitForReply."
        )


class TaskFailed(MAILError):
    """A run ended in failure. ``task_id`` names the task, the text is the reason."""

    def __init__(self, reason: str, task_id: str) -> None:
        super().__init__(reason)
        self.task_id = task_id


class BudgetExceeded(TaskFailed):
    """The task has used up a budget (tokens or money), so no further model call is made for it."""


class TaskTimeout(TaskFailed):
    """The caller stopped waiting; the task itself continues."""


class ShuttingDown(MAILError):
    """The runtime is shutting down; accepted work is kept and continues after the next start."""

    def __init__(self, task_id: str | None = None) -> None:
        super().__init__(
            "the swarm is shut down or shutting down; accepted work continues when it is started "
            "again"
        )
        self.task_id = task_id


class AgentError(MAILError):
    """An agent function returned something that is not an agent's answer."""


class StepFailed(AgentError):
    """A manual step ended without an answer. The agent's buffered mail is kept."""

    def __init__(self, reason: str, task_id: str, agent: str) -> None:
        super().__init__(reason)
        self.task_id = task_id
        self.agent = agent


class ModelError(MAILError):
    """A model call failed for good; the text is the provider's reason, without secrets.

    ``most_attempts`` is how often a call that fails like this is tried at most, if less than usual,
    ``model`` the model's name where it is known.
    """

    model = ""

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        retry_after: float | None = None,
        most_attempts: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after = retry_after
        self.most_attempts = most_attempts


class ToolError(MAILError, ValueError):
    """A tool call that cannot be carried out; the text tells the agent what to change."""


class StoreError(MAILError):
    """The store could not do its work. Nothing of the failed commit is visible."""


class StoreConflict(StoreError):
    """The delivery that a turn was about to consume was already consumed."""


class ClaimLost(StoreConflict):
    """Another process has taken up the task; nothing of the commit is stored."""

    text = "another server works on task '{0}' by now; try again in a moment"


class TaskElsewhere(StoreError):
    """Another process is at work on the task."""

    def __init__(self, task_id: str) -> None:
        super().__init__(f"another server is at work on task '{task_id}'; try again in a moment")
        self.task_id = task_id


class KeyTaken(StoreConflict):
    """The owner has already used the idempotency key; nothing of the commit is stored."""

    text = "the idempotency key is already in use"


class MailTaken(StoreConflict):
    """Mail of a peer was taken before under the same id; nothing of the commit is stored."""

    text = "the message has been taken before"


class DeskConflict(StoreConflict):
    """Letters or members of a thread do not fit what is stored; nothing of the commit is."""


class StoreFull(StoreError):
    """There is no room for a file; nothing was stored."""


class StoreLocked(StoreError):
    """Another process owns the store."""


class PeerUnreachable(MAILError, RuntimeError):
    """The server of another swarm does not answer, or not as a MAIL server; nothing was changed.

    ``problems`` are those of a `ProtocolError`.
    """

    def __init__(self, message: str, problems: Sequence[dict[str, str]] = ()) -> None:
        super().__init__(message)
        self.problems = tuple(problems)


class UnknownSwarm(NotFound, ValueError):
    """The registry has no swarm, or no proposal, of that name."""


class UnknownToken(NotFound):
    """No access token's hash begins like that."""


class UnknownMail(NotFound):
    """No mail for another swarm has that number."""

    text = "no mail {0} waits for delivery"


class UnknownWebhook(NotFound):
    """No message to the webhook has that number."""

    text = "no message {0} waits for the webhook"


class OutboxConflict(Conflict):
    """Mail for another swarm is in no state in which it is retried, or discarded."""


class RoutingError(MAILError, ValueError):
    """Mail could not be handed to another swarm, or taken from one.

    ``status`` is what the other server answered, ``detail`` what it said, and ``told`` its code for
    the error, if it gave one; ``status`` is None when no answer arrived, or nothing was asked.
    ``retry_after`` is the number of seconds after which it wants to be asked again, if it said so.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        detail: str = "",
        told: str = "",
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.detail = detail
        self.told = told
        self.retry_after = retry_after

    @property
    def is_permanent(self) -> bool:
        """Tell whether the same mail would be refused again."""
        return self.status in range(400, 500) and self.status not in (408, 425, 429)


class PortInUse(MAILError, OSError):
    """Something else listens on a port, or the address is not this machine's."""


class AuthError(MAILError):
    """Base of the errors about a caller's credentials."""


class Unauthenticated(AuthError):
    """No credentials, or credentials that the authority does not accept."""


class Forbidden(AuthError):
    """The credentials are valid, but the role is not allowed to do this."""


class AuthUnavailable(AuthError):
    """The external authority did not answer, or its answer was invalid."""


class ClientError(MAILError):
    """Base of the errors that a MAIL client raises."""


class ClientHTTPError(ClientError, RuntimeError):
    """The request failed; ``status`` is None when no answer arrived.

    ``task_id`` names the task where the server does. ``retry_after`` is the number of seconds after
    which the server wants to be asked again, if it said so.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        detail: object = None,
        task_id: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.detail = detail
        self.task_id = task_id
        self.retry_after = retry_after


class ClientDecodeError(ClientError, ValueError):
    """The answer is not the JSON or event stream it should be."""

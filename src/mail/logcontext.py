"""On whose behalf the program is at work, for the lines that it logs meanwhile.

A context variable, so that every line written in a request, a task or an agent's turn can tell
which, also those of other libraries. Whoever begins such work says so here; the handlers of
`mail.logs.setup` add it to their lines. Nothing is formatted before a line is written.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar, Token
from typing import Final, NamedTuple


class LogContext(NamedTuple):
    """The identifiers that a log line carries; "" for those that do not apply.

    Attributes:
        request_id: The HTTP request; of a turn, the newest request that drove its task.
        task_id: The task.
        agent: The agent whose turn it is.
        caller_role, caller_id: Who owns the task or makes the request.
    """

    request_id: str = ""
    task_id: str = ""
    agent: str = ""
    caller_role: str = ""
    caller_id: str = ""


NOBODY: Final = LogContext()
"""Work of the program's own."""

_context: ContextVar[LogContext] = ContextVar("mail_log_context", default=NOBODY)


def current() -> LogContext:
    """Return what is known where this is called."""
    return _context.get()


def begin(context: LogContext) -> Token[LogContext]:
    """Set everything for the running asyncio task or thread, and return what `end` takes."""
    return _context.set(context)


def end(token: Token[LogContext]) -> None:
    """Go back to how it was before `begin`.

    A coroutine that nobody finished is closed wherever it happens to be collected, in a context of
    somebody else's: there is nothing to go back to.
    """
    try:  # noqa: SIM105 - every request and every turn ends here
        _context.reset(token)
    except ValueError:
        pass


def note(**known: str) -> None:
    """Add what was found out on the way; it holds until whoever began the work ends it."""
    _context.set(_context.get()._replace(**known))


@contextmanager
def bound(**known: str) -> Iterator[None]:
    """Add something for the length of a ``with`` block."""
    token = begin(_context.get()._replace(**known))
    try:
        yield
    finally:
        end(token)

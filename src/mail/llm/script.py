"""A small language for scripted models.

A script is a list of rules, or a function from a `ScriptView` to steps::

    SUPERVISOR = [
        when(mail_from="weather").then(
            lambda view: call("task_complete", finish_message=view.body)
        ),
        when(sender_type="user", body="weather in (?P<city>[A-Z]\\\\w+)").then(
            lambda view: call(
                "send_request", target="weather", subject="Weather", body=view.match["city"]
            )
        ),
        otherwise(call("task_complete", finish_message="I can only talk about the weather.")),
    ]

The first rule that fits is the model's reply.
"""

import inspect
import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from mail.core.suggest import hinted
from mail.errors import ConfigError, ModelError
from mail.llm.script_view import ScriptView


@dataclass(frozen=True, slots=True)
class Say:
    """Text; with ``delay``, so many seconds pass before each word."""

    text: str
    delay: float | None = None


@dataclass(frozen=True, slots=True)
class Think:
    """Reasoning, which belongs to the call that follows."""

    text: str
    delay: float | None = None


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call: arguments as a dict, or as the very text that the model writes."""

    name: str
    arguments: dict[str, Any] | str


@dataclass(frozen=True, slots=True)
class Fail:
    """The model call fails like this."""

    reason: str
    status: int | None = None
    retry_after: float | None = None


_SENDER_TYPES: Final = ("user", "agent", "system", "admin")

Step = Say | Think | Call | Fail
Steps = Step | str | Iterable[Step | str]
Maker = Callable[[ScriptView], Steps | Awaitable[Steps]]


def say(text: str, *, delay: float | None = None) -> Say:
    """Reply with text, word by word if there is a delay (seconds)."""
    return Say(text, delay)


def think(text: str, *, delay: float | None = None) -> Think:
    """Think aloud before what follows."""
    return Think(text, delay)


def call(tool: str, /, **arguments: Any) -> Call:
    """Call a tool."""
    return Call(tool, arguments)


def call_text(tool: str, arguments: str) -> Call:
    """Call a tool with this text as its arguments, be it JSON or not."""
    return Call(tool, arguments)


def fail(reason: str, *, status: int | None = None, retry_after: float | None = None) -> Fail:
    """Let the model call fail with `mail.errors.ModelError`."""
    return Fail(reason, status, retry_after)


@dataclass(frozen=True, slots=True)
class Rule:
    """A condition, and the steps to reply with where it holds."""

    condition: Callable[[ScriptView], bool]
    steps: tuple[Step | str | Maker, ...]


Script = Maker | Sequence[Rule]


@dataclass(frozen=True, slots=True)
class Unfinished:
    """The condition of a rule that has no steps yet, as `when` returns it."""

    condition: Callable[[ScriptView], bool]

    def then(self, *steps: Step | str | Maker) -> Rule:
        """Complete the rule: steps, text to say, or functions of the view that give either."""
        return Rule(self.condition, steps)


def when(  # noqa: PLR0913 - one optional keyword per thing that can be asked
    *,
    mail_from: str | Collection[str] | None = None,
    sender_type: str | None = None,
    subject: str | None = None,
    body: str | None = None,
    tool_result: str | None = None,
    result: str | None = None,
    forced: str | None = None,
    system: str | None = None,
    model: str | None = None,
    check: Callable[[ScriptView], bool] | None = None,
) -> Unfinished:
    """Begin a rule; all given conditions must hold.

    Args:
        mail_from: The sender of the newest mail, or several names.
        sender_type: ``user``, ``agent``, ``system`` or ``admin``.
        subject: A regular expression, searched in the newest mail's subject.
        body: A regular expression, searched in its body; the match is ``view.match``.
        tool_result: A tool that gave a result since the agent's last reply.
        result: A regular expression, searched in such results.
        forced: The tool that the caller forces.
        system: A regular expression, searched in the system prompt.
        model: A regular expression, searched in the model's name.
        check: Any other condition.

    Raises:
        ConfigError: a pattern is no regular expression, or there is no such type of senders.
    """
    _check_patterns(subject=subject, body=body, result=result, system=system, model=model)
    if sender_type is not None and sender_type not in _SENDER_TYPES:
        text = f"sender_type of when(…) is {sender_type!r}, not one of {', '.join(_SENDER_TYPES)}"
        raise ConfigError(hinted(text, str(sender_type), _SENDER_TYPES))
    senders = {mail_from} if isinstance(mail_from, str) else mail_from

    def fits(view: ScriptView) -> bool:
        return (
            (senders is None or view.sender in senders)
            and sender_type in (None, view.mail.sender_type)
            and forced in (None, view.forced)
            and _found(subject, view.subject)
            and _found(system, view.system)
            and _found(model, view.model)
            and (body is None or _matches(body, view.body, view))
            and (tool_result is result is None or _has_result(view, tool_result, result or ""))
            and (check is None or check(view))
        )

    return Unfinished(fits)


def _found(pattern: str | None, text: str) -> bool:
    return pattern is None or re.search(pattern, text, re.DOTALL) is not None


def _matches(pattern: str, text: str, view: ScriptView) -> bool:
    view.match = re.search(pattern, text, re.DOTALL)
    return view.match is not None


def _has_result(view: ScriptView, tool: str | None, pattern: str) -> bool:
    results = [each.content for each in view.new_results if tool in (None, each.tool)]
    return any(not pattern or _matches(pattern, each, view) for each in results)


def _check_patterns(**patterns: str | None) -> None:
    for name, pattern in patterns.items():
        if pattern is None:
            continue
        if not isinstance(pattern, str):
            raise ConfigError(f"{name} of when(…) must be a string, got {type(pattern).__name__}")
        try:
            re.compile(pattern, re.DOTALL)
        except re.error as error:
            raise ConfigError(
                f"{name} of when(…) is not a regular expression: {error}: {pattern!r}"
            ) from None


def otherwise(*steps: Step | str | Maker) -> Rule:
    """A rule that always fits."""
    return when().then(*steps)


async def run_script(script: Script, view: ScriptView) -> list[Step]:
    """Return the steps that a script replies with.

    Raises:
        ModelError: no rule fits.
        ConfigError: a function of the script returns no steps.
    """
    if callable(script):
        return await _made(script, view)
    for rule in script:
        view.match = None
        if rule.condition(view):
            steps: list[Step] = []
            for step in rule.steps:
                steps.extend(await _made(step, view) if callable(step) else _listed(step))
            return steps
    mail = view.mail
    raise ModelError(
        f"the script has no rule for mail from '{mail.sender}' with subject '{mail.subject}'"
    )


async def _made(maker: Maker, view: ScriptView) -> list[Step]:
    made = maker(view)
    steps: Any = await made if inspect.isawaitable(made) else made
    if not isinstance(steps, str | Say | Think | Call | Fail | Iterable):
        name = getattr(maker, "__name__", type(maker).__name__)
        got = "None" if steps is None else type(steps).__name__
        raise ConfigError(
            f"'{name}' of the script returned {got} in place of steps, such as call(…) or text"
        )
    return _listed(steps)


def _listed(steps: Steps) -> list[Step]:
    if isinstance(steps, str):
        return [Say(steps)]
    if isinstance(steps, Say | Think | Call | Fail):
        return [steps]
    return [Say(step) if isinstance(step, str) else step for step in steps]

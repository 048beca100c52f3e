"""What callers may send: strict models, and one reader for them.

A field that is null counts as absent. Unknown fields are ignored, but named in a warning, so that
a misspelt option is found (ruling 1). Wrong types are 400 with one entry per field (ruling 2).
"""

import difflib
import logging
import re
from collections.abc import Iterable
from typing import Annotated, Any, Final, Literal, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    ValidationError,
    field_validator,
    model_validator,
)
from starlette.requests import Request

from mail.core.schema import TaskId, problems_of
from mail.core.suggest import did_you_mean
from mail.errors import ProtocolError
from mail.server.jsonbody import body_of, parse_object

__all__ = [
    "MAX_TIMEOUT_SECONDS",
    "MSG_TYPES",
    "HealthIn",
    "MessageIn",
    "MessageOptions",
    "SwarmIn",
    "TaskIn",
    "read_body",
]

MAX_TIMEOUT_SECONDS: Final = 3600.0
MAX_SUBJECT: Final = 1024
MSG_TYPES: Final = ("request", "response", "broadcast", "interrupt")
RESUME_FROM: Final = ("user_response", "breakpoint_tool_call")
UNSEEN: Final = r"\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff"
"""A class of characters: control, and what is invisible or turns the writing direction."""
_UNSEEN: Final = re.compile(f"[{UNSEEN}]")
_SHOWN_FIELDS: Final = 10
_SHOWN_OF_NAME: Final = 64
_VALUE_ERROR: Final = "Value error, "
_FORBIDDEN: Final = "Extra inputs are not permitted"

_log = logging.getLogger("mail.server")


class _Body(BaseModel):
    """A request body: strict types, null means absent, unknown fields are dropped."""

    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _null_is_absent(cls, values: Any) -> Any:
        if isinstance(values, dict):
            return {name: value for name, value in values.items() if value is not None}
        return values


B = TypeVar("B", bound=_Body)


def _whole(value: object) -> object:
    """Take 3.0 for 3: to JSON they are the same number."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


class MessageOptions(_Body):
    """``kwargs`` of ``POST /message``: the only options that reach the engine.

    ``max_steps`` can lower the server's limit, not raise it. ``breakpoint_tool_caller`` is taken
    for the sake of older clients; the call ids say whose calls they are.
    """

    model_config = ConfigDict(extra="forbid")

    max_steps: Annotated[int, Field(ge=1), BeforeValidator(_whole)] | None = None
    breakpoint_tool_call_result: Any = None
    breakpoint_tool_caller: str | None = None
    timeout: Annotated[float, Field(gt=0, le=MAX_TIMEOUT_SECONDS)] = MAX_TIMEOUT_SECONDS


class MessageIn(_Body):
    """``POST /message``. ``message`` is the old name of ``body`` (ruling 1)."""

    body: str = ""
    message: str = ""
    subject: Annotated[str, Field(max_length=MAX_SUBJECT)] = ""
    msg_type: str = "request"
    entrypoint: str = ""
    show_events: StrictBool = False
    stream: StrictBool = False
    stream_tokens: StrictBool = False
    task_id: TaskId | None = None
    resume_from: Literal["user_response", "breakpoint_tool_call"] | None = None
    options: Annotated[MessageOptions, Field(alias="kwargs")] = MessageOptions()

    @field_validator("msg_type", mode="after")
    @classmethod
    def _known_type(cls, value: str) -> str:
        return _one_of(value or "request", MSG_TYPES, "invalid message type")

    @field_validator("resume_from", mode="before")
    @classmethod
    def _known_resume(cls, value: Any) -> Any:
        return _one_of(value, RESUME_FROM, "unknown value") if isinstance(value, str) else value

    @field_validator("entrypoint", mode="after")
    @classmethod
    def _stripped(cls, value: str) -> str:
        return value.strip()

    @model_validator(mode="after")
    def _complete(self) -> "MessageIn":
        if self.resume_from and self.task_id is None:
            raise ValueError("task_id is required with resume_from")
        if self.resume_from == "breakpoint_tool_call":
            if self.options.breakpoint_tool_call_result is None:
                raise ValueError("kwargs.breakpoint_tool_call_result is required")
        elif not self.text.strip():
            raise ValueError("no message provided: body must not be empty")
        return self

    @property
    def text(self) -> str:
        """The message's body, under whichever name it came."""
        return self.body or self.message


class TaskIn(_Body):
    """``GET /task``."""

    task_id: TaskId


class HealthIn(_Body):
    """``POST /health``."""

    status: Annotated[str, Field(min_length=1, max_length=256)]

    @field_validator("status", mode="after")
    @classmethod
    def _printable(cls, value: str) -> str:
        if not value.strip() or _UNSEEN.search(value):
            raise ValueError("must be printable text: not blank, no control characters")
        return value


class SwarmIn(_Body):
    """``POST /swarms/load``."""

    definition: Annotated[str, Field(alias="json", min_length=1)]


async def read_body(request: Request, model: type[B]) -> B:
    """Read a request's JSON body.

    Raises:
        ProtocolError: it is not a JSON object or does not fit the model.
        BodyTooLarge: it is larger than the server takes.
    """
    values = parse_object(await body_of(request))
    try:
        body = model.model_validate(values)
    except ValidationError as error:
        problems = [
            item | {"problem": _unknown_option(item) or item["problem"].removeprefix(_VALUE_ERROR)}
            for item in problems_of(error)
        ]
        text = "; ".join(f"{item['field']}: {item['problem']}" for item in problems[:5])
        raise ProtocolError(f"invalid request: {text}", problems) from None
    known = {field.alias or name for name, field in model.model_fields.items()}
    unknown = sorted(values.keys() - known)
    if unknown:
        _log.warning("%s: unknown fields ignored: %s", request.url.path, _names(unknown))
    return body


def _unknown_option(problem: dict[str, str]) -> str | None:
    """Tell what to write in place of an option that there is not; None for other problems."""
    if problem["problem"] != _FORBIDDEN:
        return None
    name = problem["field"].rpartition(".")[2][:_SHOWN_OF_NAME]
    known = list(MessageOptions.model_fields)
    return f"unknown option '{name}'; allowed are {', '.join(known)}.{did_you_mean(name, known)}"


def _one_of(value: str, known: Iterable[str], problem: str) -> str:
    names = list(known)
    if value in names:
        return value
    close = difflib.get_close_matches(value[:64], names, n=1)
    hint = f"did you mean '{close[0]}'?" if close else f"one of {', '.join(names)}"
    raise ValueError(f"{problem} {value[:64]!r}; {hint}")


def _names(unknown: list[str]) -> str:
    shown = ", ".join(repr(name[:64]) for name in unknown[:_SHOWN_FIELDS])
    more = len(unknown) - _SHOWN_FIELDS
    return f"{shown} and {more} more" if more > 0 else shown

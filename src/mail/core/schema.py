"""Validation of untrusted messages at the boundary, by compiled adapters."""

import re
from collections.abc import Hashable, Iterable, Mapping
from contextlib import suppress
from functools import cache
from typing import Annotated, Any, Final, NotRequired, TypeVar, cast

from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    WithJsonSchema,
    with_config,
)
from pydantic_core import from_json, to_json
from typing_extensions import TypedDict

from mail.core.wire import (
    ID_FIELDS,
    MAIL_MESSAGE_TYPES,
    MAILBroadcast,
    MAILInterrupt,
    MAILInterswarmMessage,
    MAILMessage,
    MAILRequest,
    MAILResponse,
    MessageKind,
)
from mail.errors import ProtocolError

_PAYLOADS: dict[str, type] = {
    "request": MAILRequest,
    "response": MAILResponse,
    "broadcast": MAILBroadcast,
    "interrupt": MAILInterrupt,
    "broadcast_complete": MAILBroadcast,
}
MAX_ID = 256
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")
_HALF = re.compile("[\ud800-\udfff]")
T = TypeVar("T")


def check_task_id(task_id: str) -> str:
    """Return a valid task id unchanged: 1 to 256 characters, none of them control (MAIL-DATA-1).

    Raises:
        ProtocolError: it is no text, empty, too long or holds a control character.
    """
    return _check_id(task_id, "task_id")


def _check_id(value: str, name: str, prefix: str = "") -> str:
    if not isinstance(value, str):
        raise _fault(f"must be a string, got {type(value).__name__}", name, prefix)
    if not 1 <= len(value) <= MAX_ID:
        raise _fault(f"must have 1 to {MAX_ID} characters, got {len(value)}", name, prefix)
    if value.isascii() and value.isprintable():  # as most
        return value
    if _CONTROL.search(value):
        raise _fault("must not contain control characters", name, prefix)
    if _HALF.search(value):
        raise _fault("must not contain half of a surrogate pair", name, prefix)
    return value


def check_text(value: str, name: str) -> None:
    """Check that a part of a message is text which can be written as UTF-8.

    Raises:
        ProtocolError: it is not.
    """
    if not isinstance(value, str):
        raise _fault(f"must be a string, got {type(value).__name__}", name, "")
    try:
        value.isascii() or value.encode()
    except UnicodeEncodeError:
        raise _fault("must not contain half of a surrogate pair", name, "") from None


def _fault(problem: str, name: str, prefix: str) -> ProtocolError:
    field = f"{prefix}.{name}" if prefix else name
    return ProtocolError(f"{name} {problem}", [{"field": field, "problem": problem}])


_MISSING: Final = "is missing"
_OBJECT: Final = "must be an object"
_LIST: Final = "must be a list"
_INTEGER: Final = "must be an integer"
_NUMBER: Final = "must be a number"
_BOOLEAN: Final = "must be true or false"
_PROBLEMS: Final[Mapping[str, str]] = {
    "bool_parsing": _BOOLEAN,
    "bool_type": _BOOLEAN,
    "dict_type": _OBJECT,
    "enum": "must be {expected}",
    "extra_forbidden": "is not known",
    "finite_number": "must be a finite number",
    "float_parsing": _NUMBER,
    "float_type": _NUMBER,
    "greater_than": "must be greater than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "int_from_float": _INTEGER,
    "int_parsing": _INTEGER,
    "int_parsing_size": "has too many digits",
    "int_type": _INTEGER,
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be at most {le}",
    "list_type": _LIST,
    "literal_error": "must be {expected}",
    "mapping_type": _OBJECT,
    "missing": _MISSING,
    "model_attributes_type": _OBJECT,
    "model_type": _OBJECT,
    "string_pattern_mismatch": "must match the pattern {pattern}",
    "string_too_long": "must have at most {max_length} characters",
    "string_too_short": "must have at least {min_length} characters",
    "string_type": "must be a string",
    "string_unicode": "must be a string without half characters",
    "too_long": "must have at most {max_length} entries",
    "too_short": "must have at least {min_length} entries",
    "tuple_type": _LIST,
}
"""The faults of values, by pydantic's names for them."""
_PREFIXES: Final = ("Value error, ", "Assertion failed, ")

TaskId = Annotated[
    str,
    AfterValidator(check_task_id),
    WithJsonSchema(
        {
            "type": "string",
            "minLength": 1,
            "maxLength": MAX_ID,
            "pattern": r"^[^\x00-\x1f\x7f-\x9f]+$",
        }
    ),
]


@with_config(ConfigDict(strict=True, extra="ignore"))
class _Wrapper(TypedDict):
    id: str
    timestamp: str
    message: dict[str, Any]
    msg_type: str


@with_config(ConfigDict(extra="ignore"))
class _InterswarmWrapper(TypedDict):
    message_id: str
    source_swarm: str
    target_swarm: str
    timestamp: str
    payload: dict[str, Any]
    msg_type: MessageKind
    task_owner: str
    task_contributors: Annotated[list[str], Field(fail_fast=True)]
    auth_token: NotRequired[str | None]
    metadata: NotRequired[dict[str, Any] | None]


@cache
def _compiled(shape: Hashable) -> TypeAdapter[Any]:
    return TypeAdapter(cast("type[Any]", shape))


def problems_of(error: ValidationError, prefix: str = "") -> list[dict[str, str]]:
    """Turn a pydantic error into ``[{"field", "problem"}]`` without echoing the input."""
    return problems_in(error.errors(include_url=False, include_input=False), prefix)


def problems_in(errors: Iterable[Mapping[str, Any]], prefix: str = "") -> list[dict[str, str]]:
    """Turn the entries of a pydantic error into ``[{"field", "problem"}]``."""
    return [
        {
            "field": ".".join([prefix, *map(str, item["loc"])]).strip(".") or "(body)",
            "problem": problem_text(item),
        }
        for item in errors
    ]


def problem_text(item: Mapping[str, Any]) -> str:
    """Return what an entry of a pydantic error says, in words that follow a field's name.

    Errors that validators raise keep their own words.
    """
    if item.get("input", item) is None:  # a null counts as absent
        return _MISSING
    limits = {name: _shown(value) for name, value in item.get("ctx", {}).items()}
    if limits.get("min_length") == 1:
        return "must not be empty"
    with suppress(KeyError):  # a validator's own error may have a name of pydantic's
        return _PROBLEMS[item["type"]].format_map(limits)
    text = str(item["msg"])
    for prefix in _PREFIXES:
        text = text.removeprefix(prefix)
    return text


def _shown(value: object) -> object:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _validated(shape: type[T], value: object, prefix: str = "") -> T:
    try:
        checked: T = _compiled(cast("Hashable", shape)).validate_python(value)
    except ValidationError as error:
        problems = problems_of(error, prefix)
        text = "; ".join(f"{item['field']}: {item['problem']}" for item in problems[:5])
        raise ProtocolError(f"invalid MAIL message: {text}", problems) from None
    return checked


def _check_payload(kind: str, payload: object, prefix: str) -> Any:
    checked: Any = _validated(_PAYLOADS[kind], payload, prefix)
    for name in ("task_id", ID_FIELDS[kind]):
        _check_id(checked[name], name, prefix)
    recipients = checked.get("recipients", [checked.get("recipient")])
    if not recipients:
        raise _fault("must name at least one recipient", "recipients", prefix)
    for party in (checked["sender"], *recipients):
        if not party["address"]:
            raise _fault("must not be empty", "address", prefix)
    return checked


def _as_json(message: T, free_form: object) -> T:
    """Return a message as store and wire will give it back.

    Half of a surrogate pair cannot be written anywhere. Only free-form fields can hold what comes
    back changed (a tuple) or cannot be read again (infinity, nesting without end).
    """
    try:
        if not free_form:
            to_json(message)
            return message
        # Two levels to spare: the message is also read as a part of its event.
        return cast("T", from_json(to_json([[message]]), allow_inf_nan=False)[0][0])
    except ValueError as error:
        text = f"invalid MAIL message: it cannot be serialised as JSON: {str(error)[:200]}"
        raise ProtocolError(text) from None


def parse_message(value: object) -> MAILMessage:
    """Validate a message of any type; unknown fields are dropped.

    Raises:
        ProtocolError: with one problem per wrong field.
    """
    wrapper = _validated(_Wrapper, value)
    kind = wrapper["msg_type"]
    if kind not in MAIL_MESSAGE_TYPES:
        raise ProtocolError(
            f"invalid message type: {kind!r}; expected one of {', '.join(MAIL_MESSAGE_TYPES)}"
        )
    message: MAILMessage = {
        "id": _check_id(wrapper["id"], "id"),
        "timestamp": wrapper["timestamp"],
        "message": _check_payload(kind, wrapper["message"], "message"),
        "msg_type": kind,  # type: ignore[typeddict-item]  # the line above proved it
    }
    return _as_json(message, message["message"].get("routing_info"))


def parse_interswarm_message(value: object) -> MAILInterswarmMessage:
    """Validate mail from another swarm; it may lack token and metadata (MAIL-ROUTE-1).

    Raises:
        ProtocolError: with one problem per wrong field.
    """
    wrapper = _validated(_InterswarmWrapper, value)
    _check_id(wrapper["message_id"], "message_id")
    for name in ("source_swarm", "target_swarm", "task_owner"):
        if not wrapper[name]:
            raise _fault("must not be empty", name, "")
    payload = _check_payload(wrapper["msg_type"], wrapper["payload"], "payload")
    message = cast("MAILInterswarmMessage", {**wrapper, "payload": payload})
    return _as_json(message, payload.get("routing_info") or message.get("metadata"))

"""Validation of untrusted messages at the boundary, by compiled adapters."""

import re
from collections.abc import Hashable
from functools import cache
from typing import Annotated, Any, TypeVar, cast

from pydantic import AfterValidator, ConfigDict, TypeAdapter, ValidationError, with_config
from typing_extensions import TypedDict

from mail.core.wire import (
    MAIL_MESSAGE_TYPES,
    InterswarmKind,
    MAILBroadcast,
    MAILInterrupt,
    MAILInterswarmMessage,
    MAILMessage,
    MAILRequest,
    MAILResponse,
)
from mail.errors import ProtocolError

__all__ = ["TaskId", "check_task_id", "parse_interswarm_message", "parse_message", "problems_of"]

_PAYLOADS: dict[str, type] = {
    "request": MAILRequest,
    "response": MAILResponse,
    "broadcast": MAILBroadcast,
    "interrupt": MAILInterrupt,
    "broadcast_complete": MAILBroadcast,
}
_ID_FIELDS = {
    "request": "request_id",
    "response": "request_id",
    "broadcast": "broadcast_id",
    "interrupt": "interrupt_id",
    "broadcast_complete": "broadcast_id",
}

MAX_TASK_ID = 256
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")
T = TypeVar("T")


def check_task_id(task_id: str) -> str:
    """Return a valid task id unchanged (ruling 7: 1 to 256 characters, none of them control).

    Raises:
        ProtocolError: it is empty, too long or holds a control character.
    """
    if not 1 <= len(task_id) <= MAX_TASK_ID:
        raise ProtocolError(f"task_id must have 1 to {MAX_TASK_ID} characters, got {len(task_id)}")
    if _CONTROL.search(task_id):
        raise ProtocolError("task_id must not contain control characters")
    return task_id


TaskId = Annotated[str, AfterValidator(check_task_id)]


@with_config(ConfigDict(strict=True, extra="ignore"))
class _Wrapper(TypedDict):
    id: str
    timestamp: str
    message: dict[str, Any]
    msg_type: str


@with_config(ConfigDict(strict=True, extra="ignore"))
class _InterswarmWrapper(TypedDict):
    msg_type: InterswarmKind


@cache
def _compiled(shape: Hashable) -> TypeAdapter[Any]:
    return TypeAdapter(cast("type[Any]", shape))


def problems_of(error: ValidationError, prefix: str = "") -> list[dict[str, str]]:
    """Turn a pydantic error into ``[{"field", "problem"}]`` without echoing the input."""
    return [
        {
            "field": ".".join([prefix, *map(str, item["loc"])]).strip(".") or "(body)",
            "problem": item["msg"],
        }
        for item in error.errors(include_url=False, include_input=False, include_context=False)
    ]


def _validated(shape: type[T], value: object, prefix: str = "") -> T:
    try:
        checked: T = _compiled(cast(Hashable, shape)).validate_python(value)
    except ValidationError as error:
        problems = problems_of(error, prefix)
        text = "; ".join(f"{item['field']}: {item['problem']}" for item in problems[:5])
        raise ProtocolError(f"invalid MAIL message: {text}", problems) from None
    return checked


def _check_payload(kind: str, payload: object, prefix: str) -> Any:
    checked: Any = _validated(_PAYLOADS[kind], payload, prefix)
    check_task_id(checked["task_id"])
    if not checked[_ID_FIELDS[kind]]:
        raise ProtocolError(f"invalid MAIL message: {prefix}.{_ID_FIELDS[kind]} must not be empty")
    recipients = checked.get("recipients", [checked.get("recipient")])
    if not recipients:
        raise ProtocolError(f"invalid MAIL message: {prefix}.recipients must name somebody")
    for party in (checked["sender"], *recipients):
        if not party["address"]:
            raise ProtocolError(f"invalid MAIL message: {prefix}: an address must not be empty")
    return checked


def parse_message(value: object) -> MAILMessage:
    """Validate a message of any type; unknown fields are dropped.

    Raises:
        ProtocolError: with one problem per wrong field.
    """
    wrapper = _validated(_Wrapper, value)
    kind = wrapper["msg_type"]
    if kind not in MAIL_MESSAGE_TYPES:
        raise ProtocolError(
            f"invalid message type: {kind!r}; one of {', '.join(MAIL_MESSAGE_TYPES)}"
        )
    message: MAILMessage = {
        "id": wrapper["id"],
        "timestamp": wrapper["timestamp"],
        "message": _check_payload(kind, wrapper["message"], "message"),
        "msg_type": kind,  # type: ignore[typeddict-item]  # the line above proved it
    }
    return message


def parse_interswarm_message(value: object) -> MAILInterswarmMessage:
    """Validate mail from another swarm; a missing or null token and metadata are fine (ruling 21).

    Raises:
        ProtocolError: with one problem per wrong field.
    """
    kind = _validated(_InterswarmWrapper, value)["msg_type"]
    checked = _validated(MAILInterswarmMessage, value)
    checked["payload"] = _check_payload(kind, checked["payload"], "payload")
    return checked

"""The frozen, typed view of a message that everything inside the runtime uses."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from pydantic_core import CoreSchema, core_schema, from_json, to_json

from mail.core.addresses import MAILAddress
from mail.core.render import recipients_of, render_mail
from mail.core.wire import ID_FIELDS, MAILMessage, MessageKind

NO_REPLY: Final = "no_reply"
"""The note, among the routing info, of a message whose sender waits for no answer."""

_SINGLE = frozenset({"request", "response"})
_NO_SUBJECTS = frozenset({"", "New Message", "Task Request"})  # the latter of the Responses API
_LONGEST_TITLE = 120
_READ_FOR_TITLE = 1000


class Envelope(NamedTuple):
    """A validated message.

    ``ref`` is the payload's own id: request, broadcast or interrupt id, whichever the kind has.
    ``file_id`` is a file for the participants who get it; no message from elsewhere has one.
    """

    id: str
    timestamp: str
    kind: MessageKind
    task_id: str
    ref: str
    sender: MAILAddress
    recipients: tuple[MAILAddress, ...]
    subject: str
    body: str
    sender_swarm: str | None = None
    recipient_swarms: tuple[str, ...] = ()
    routing_info: Mapping[str, Any] = MappingProxyType({})
    file_id: str = ""

    @classmethod
    def __get_pydantic_core_schema__(cls, kind: object, handler: object) -> CoreSchema:
        """Have it written and read as `to_json` and `from_json` do."""
        written = core_schema.plain_serializer_function_ser_schema(cls.to_json)
        return core_schema.no_info_after_validator_function(
            cls.from_json, core_schema.str_schema(), serialization=written
        )

    @classmethod
    def from_wire(cls, message: MAILMessage) -> "Envelope":
        """Read a message that `mail.core.schema.parse_message` has accepted."""
        payload: Any = message["message"]
        kind = message["msg_type"]
        swarms = payload.get("recipient_swarms")
        if swarms is None:
            swarms = [payload["recipient_swarm"]] if payload.get("recipient_swarm") else []
        return cls(
            id=message["id"],
            timestamp=message["timestamp"],
            kind=kind,
            task_id=payload["task_id"],
            ref=payload[ID_FIELDS[kind]],
            sender=payload["sender"],
            recipients=tuple(recipients_of(payload)),
            subject=payload["subject"],
            body=payload["body"],
            sender_swarm=payload.get("sender_swarm"),
            recipient_swarms=tuple(swarms),
            routing_info=payload.get("routing_info") or {},
        )

    @classmethod
    def from_json(cls, text: str) -> "Envelope":
        """Read a message that `to_json` wrote."""
        return cls.from_wire(from_json(text))

    @property
    def title(self) -> str:
        """The title of a task that begins with the message: its subject, else its first words."""
        named = self.body if self.subject.strip() in _NO_SUBJECTS else self.subject
        words = " ".join(named[:_READ_FOR_TITLE].split())
        return words if len(words) <= _LONGEST_TITLE else f"{words[: _LONGEST_TITLE - 1]}…"

    @property
    def wants_answer(self) -> bool:
        """Tell whether its sender may wait for an answer."""
        return self.kind != "broadcast" and not self.routing_info.get(NO_REPLY)

    def to_wire(self) -> MAILMessage:
        """Return the documented dictionary; optional fields are left out, never null."""
        payload: dict[str, Any] = {
            "task_id": self.task_id,
            ID_FIELDS[self.kind]: self.ref,
            "sender": dict(self.sender),
        }
        if self.kind in _SINGLE:
            payload["recipient"] = dict(self.recipients[0])
        else:
            payload["recipients"] = [dict(recipient) for recipient in self.recipients]
        payload["subject"] = self.subject
        payload["body"] = self.body
        if self.sender_swarm is not None:
            payload["sender_swarm"] = self.sender_swarm
        if self.recipient_swarms:
            if self.kind in _SINGLE:
                payload["recipient_swarm"] = self.recipient_swarms[0]
            else:
                payload["recipient_swarms"] = list(self.recipient_swarms)
        payload["routing_info"] = dict(self.routing_info)
        return {
            "id": self.id,
            "timestamp": self.timestamp,
            "message": payload,  # type: ignore[typeddict-item]  # the kind chose the fields above
            "msg_type": self.kind,
        }

    def sent_at(self, timestamp: str) -> "Envelope":
        """Return the message as it is sent at a time; `_replace` takes twice as long."""
        return Envelope(self.id, timestamp, *self[2:])

    def to_entry(self) -> dict[str, Any]:
        """Return the message as the chat entry that its recipient reads."""
        return render_mail(self.timestamp, self.sender, self.recipients, self.subject, self.body)

    def to_json(self, body: str | None = None, wire: MAILMessage | None = None) -> str:
        """Return the wire form as compact JSON.

        Args:
            body: The body in JSON, if it is there.
            wire: The wire form, if it is there.
        """
        wire = wire or self.to_wire()
        if body is None:
            return to_json(wire).decode()
        rest = to_json({**wire, "message": {**wire["message"], "body": ""}}).decode()
        before, _, after = rest.partition('"body":""')  # no text has quotes that are not escaped
        return f'{before}"body":{body}{after}'

"""Messages as the XML text that models read. Every value is escaped (MAIL-TURN-1)."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from mail.core.addresses import MAILAddress
from mail.core.pieces import sliced
from mail.core.wire import MAILInterswarmMessage, MAILMessage, MAILPayload

__all__ = [
    "buffered_mail",
    "build_body_xml",
    "build_interswarm_mail_xml",
    "build_mail_xml",
    "mail_xml_parts",
    "recipients_of",
    "render_mail",
    "xml_text",
]

_ILLEGAL_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_SPECIAL = re.compile("[^\t\n\x20-%'-;=?-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_NOT_IN_TAG = re.compile("[^A-Za-z0-9._À-ÖØ-öø-ÿ-]")  # what every XML parser takes in a name
_TYPES = {kind: f'type="{kind}"' for kind in ("admin", "agent", "user", "system")}
_ENTITIES = {"\r": "&#13;"}  # a parser would turn a bare carriage return into a line feed


def _text(value: str) -> str:
    if _SPECIAL.search(value) is None:  # most values; four times as fast
        return value
    return escape(_ILLEGAL_XML.sub("", value), _ENTITIES)


def xml_text(value: str) -> str:
    """Return a value as it stands in the XML."""
    return _text(value)


def _type(address: MAILAddress) -> str:
    kind = address["address_type"]
    return _TYPES.get(kind) or f"type={quoteattr(kind)}"


def _utc(timestamp: str) -> str:
    if timestamp.endswith("+00:00"):
        return timestamp
    try:
        return datetime.fromisoformat(timestamp).astimezone(UTC).isoformat()
    except (ValueError, OverflowError):  # no date, or one at the end of the calendar
        return timestamp


def recipients_of(payload: MAILPayload) -> list[MAILAddress]:
    """Return a payload's recipients as a list, whichever field holds them."""
    fields: Any = payload
    return list(fields["recipients"]) if "recipients" in fields else [fields["recipient"]]


def render_mail(
    timestamp: str, sender: MAILAddress, to: Iterable[MAILAddress], subject: str, body: str
) -> dict[str, str]:
    """Render the parts of a message as a chat entry; see `build_mail_xml`."""
    return {"role": "user", "content": "".join(_mail_parts(timestamp, sender, to, subject, body))}


def _mail_parts(
    timestamp: str, sender: MAILAddress, to: Iterable[MAILAddress], subject: str, body: str
) -> Iterator[str]:
    addresses = "\n".join(
        f"<address {_type(address)}>{_text(address['address'])}</address>" for address in to
    )
    yield (
        "\n<incoming_message>\n"
        f"<timestamp>{_text(_utc(timestamp))}</timestamp>\n"
        f"<from {_type(sender)}>{_text(sender['address'])}</from>\n"
        f"<to>\n{addresses}\n</to>\n"
        f"<subject>{_text(subject)}</subject>\n"
        "<body>"
    )
    for part in sliced(body):
        yield _text(part)
    yield "</body>\n</incoming_message>\n"


def build_mail_xml(message: MAILMessage, is_manual: bool = False) -> dict[str, str]:
    """Render a message as a chat entry ``{"role": "user", "content": <XML>}``.

    The text holds one ``incoming_message`` element with timestamp (UTC), sender, recipients,
    subject and body, each on its own line. No value can open or close an element. With
    ``is_manual`` the text is the bare body, as a manual step composes it.
    """
    if is_manual:
        return {"role": "user", "content": message["message"]["body"]}
    return {"role": "user", "content": "".join(mail_xml_parts(message))}


def mail_xml_parts(message: MAILMessage) -> Iterator[str]:
    """Yield the text of `build_mail_xml` piece by piece."""
    payload = message["message"]
    return _mail_parts(
        message["timestamp"],
        payload["sender"],
        recipients_of(payload),
        payload["subject"],
        payload["body"],
    )


def buffered_mail(sender: MAILAddress, to: Sequence[MAILAddress], body: str, *, group: bool) -> str:
    """Render a message that waited for a manual step, as one element of the step's text.

    Args:
        sender: Who wrote it.
        to: Its recipients; the element is ``public_message`` when the first of them is all.
        body: What it says; its subject is not shown.
        group: Name the recipients of a private message, too (they are several).
    """
    public = bool(to) and to[0]["address"] == "all"
    tag = "public_message" if public else "private_message"
    names = ", ".join(_text(address["address"]) for address in to)
    line = f"<to>{names}</to>\n" if group and not public else ""
    return f"<{tag}>\n<from>{_text(sender['address'])}</from>\n{line}{_text(body)}\n</{tag}>"


def build_interswarm_mail_xml(message: MAILInterswarmMessage) -> dict[str, str]:
    """Render mail from another swarm; its sender is always shown as an agent."""
    payload = message["payload"]
    sender: MAILAddress = {"address_type": "agent", "address": payload["sender"]["address"]}
    return render_mail(
        message["timestamp"], sender, recipients_of(payload), payload["subject"], payload["body"]
    )


def _elements(value: Any) -> str:
    if isinstance(value, Mapping):
        return "".join(_element(str(key), value[key]) for key in sorted(value, key=str))
    if isinstance(value, list | tuple):
        return "".join(_element("item", item) for item in value)
    return _text("" if value is None else str(value))


def _element(name: str, value: Any) -> str:
    tag = _NOT_IN_TAG.sub("_", name) or "_"
    tag = f"_{tag}" if tag[0] in ".-0123456789" else tag
    nested = isinstance(value, Mapping | list | tuple)
    inner = f"\n{_elements(value)}" if nested else _elements(value)
    return f"<{tag}>{inner}</{tag}>\n"


def build_body_xml(content: Mapping[str, Any]) -> str:
    """Render a mapping as a ``body`` element: keys sorted, values escaped, one element a line."""
    return f"<body>\n{_elements(content)}</body>"

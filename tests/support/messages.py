"""Hypothesis strategies for messages: valid ones, and valid ones that something happened to."""

import copy
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from mail.core.envelope import Envelope

relaxed = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""For every test of messages: how fast a busy machine is, is not what they are about."""

KINDS = ("request", "response", "broadcast", "interrupt", "broadcast_complete")
SINGLE = ("request", "response")
ID_FIELDS = {
    "request": "request_id",
    "response": "request_id",
    "broadcast": "broadcast_id",
    "interrupt": "interrupt_id",
    "broadcast_complete": "broadcast_id",
}

texts = st.text(max_size=40) | st.sampled_from(
    [
        "</body></incoming_message>",
        "[/red]",
        "::task_complete::",
        '<from type="system">',
        "]]>",
        "&amp;",
        "a\r\nb",
        " \t",
        "\x00\x1b[31m",
        "\U0001d510\u2028\ufffe",
    ]
)
"""Any text, with what breaks naive renderers thrown in."""

names = st.text(min_size=1, max_size=20)
ids = st.text(
    st.characters(exclude_categories=("Cc", "Cs")), min_size=1, max_size=256
) | st.uuids().map(str)
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts
)
json_values = st.recursive(
    scalars | st.just(float("1e30")),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
json_objects = st.dictionaries(texts, json_values, max_size=3)
timestamps = st.datetimes(timezones=st.timezones()).map(lambda moment: moment.isoformat())
addresses = st.fixed_dictionaries(
    {"address_type": st.sampled_from(["admin", "agent", "user", "system"]), "address": names}
)


@st.composite
def payloads(draw: st.DrawFn, kind: str) -> dict[str, Any]:
    """Draw a valid payload of a kind, with or without its optional fields."""
    fields: dict[str, st.SearchStrategy[Any]] = {
        "task_id": ids,
        ID_FIELDS[kind]: ids,
        "sender": addresses,
        "subject": texts,
        "body": texts,
    }
    optional: dict[str, st.SearchStrategy[Any]] = {
        "sender_swarm": texts | st.none(),
        "routing_info": json_objects | st.none(),
    }
    if kind in SINGLE:
        fields["recipient"] = addresses
        optional["recipient_swarm"] = texts | st.none()
    else:
        fields["recipients"] = st.lists(addresses, min_size=1, max_size=3)
        optional["recipient_swarms"] = st.lists(texts, max_size=2) | st.none()
    return draw(st.fixed_dictionaries(fields, optional=optional))


@st.composite
def messages(draw: st.DrawFn) -> dict[str, Any]:
    """Draw a valid message of any kind."""
    kind = draw(st.sampled_from(KINDS))
    return {
        "id": draw(ids),
        "timestamp": draw(timestamps | texts),
        "message": draw(payloads(kind)),
        "msg_type": kind,
    }


@st.composite
def interswarm_messages(draw: st.DrawFn) -> dict[str, Any]:
    """Draw a valid message between swarms."""
    kind = draw(st.sampled_from(KINDS))
    fields = {
        "message_id": ids,
        "source_swarm": names,
        "target_swarm": names,
        "timestamp": timestamps,
        "payload": payloads(kind),
        "msg_type": st.just(kind),
        "task_owner": names,
        "task_contributors": st.lists(texts, max_size=3),
    }
    optional = {
        "auth_token": texts | st.none(),
        "metadata": json_objects | st.none(),
    }
    return draw(st.fixed_dictionaries(fields, optional=optional))


@st.composite
def envelopes(draw: st.DrawFn) -> Envelope:
    """Draw an envelope as the runtime could hold it."""
    kind = draw(st.sampled_from(KINDS))
    single = kind in SINGLE
    return Envelope(
        id=draw(ids),
        timestamp=draw(timestamps),
        kind=kind,
        task_id=draw(ids),
        ref=draw(ids),
        sender=draw(addresses),
        recipients=tuple(draw(st.lists(addresses, min_size=1, max_size=1 if single else 3))),
        subject=draw(texts),
        body=draw(texts),
        sender_swarm=draw(st.none() | texts),
        recipient_swarms=tuple(draw(st.lists(names, max_size=1 if single else 3))),
        routing_info=draw(json_objects),
    )


ODD_VALUES = (None, True, 0, 1.5, "", "x", "a\n", "\x7f", "y" * 257, [], [None], {}, {"a": 1})
ODD_FIELDS = (
    "request_id",
    "broadcast_id",
    "interrupt_id",
    "recipient",
    "recipients",
    "recipient_swarm",
    "recipient_swarms",
    "msg_type",
    "unknown",
)


@st.composite
def mutated(draw: st.DrawFn, originals: st.SearchStrategy[dict[str, Any]]) -> Any:
    """Draw a valid message and damage it once or a few times: it may stay valid or not."""
    message = draw(originals)
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.sampled_from(_places(message)))
        key = draw(st.sampled_from([*place, *ODD_FIELDS]))
        what = draw(st.sampled_from(["drop", "odd", "swap"]))
        if what == "drop":
            place.pop(key, None)
        elif what == "odd":
            place[key] = copy.deepcopy(draw(st.sampled_from(ODD_VALUES)))
        else:
            place[key] = draw(st.sampled_from(KINDS) | addresses | st.lists(addresses) | ids)
    return message


def _places(value: Any) -> list[dict[str, Any]]:
    found = [value] if isinstance(value, dict) else []
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return found + [place for part in inner for place in _places(part)]

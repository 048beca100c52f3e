"""Mail that another swarm delivers: whose word counts for what, and whose task it is about.

A peer speaks for itself alone, and about tasks that it takes part in; everything it claims is held
against what is stored (MAIL-ROUTE-11 to MAIL-ROUTE-17 in ``spec/SPEC.md``). At the end: what
operators may do with mail for other swarms.
"""

import re
from collections.abc import Sized
from datetime import datetime
from typing import Any, Final, NamedTuple, cast

from pydantic_core import from_json, to_json

from mail.core.addresses import parse_agent_address, parse_task_contributor
from mail.core.interswarm import (
    INBOX_AGE,
    MAX_CONTRIBUTORS,
    PEER_ROLE,
    PeerControl,
    PeerMail,
    local_task_id,
    unwrap,
)
from mail.core.schema import MAX_ID
from mail.core.wire import MAILInterswarmMessage
from mail.db.records import OutboxChange, OutboxRow, Owner
from mail.db.store import Store
from mail.errors import (
    Forbidden,
    Misdirected,
    OutboxConflict,
    ProtocolError,
    UnknownMail,
    UnknownTask,
)

MAX_SUBJECT: Final = 4096
MAX_RECIPIENTS: Final = 256
_MAX_ADDRESS: Final = 2 * MAX_ID + 1
_MAX_PARTY: Final = 4 * MAX_ID
"""Characters of ``role:id@swarm``."""
_MAX_HINTS: Final = 16 * 1024
"""Bytes of ``routing_info``."""
_SHOWN: Final = 64
_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f]")


# --- what it says -------------------------------------------------------------------------------


def check_peer_mail(message: MAILInterswarmMessage, peer: str, swarm: str) -> None:
    """Check that a peer speaks for itself, to this swarm, in measure.

    Args:
        message: The wrapper, which `mail.core.schema.parse_interswarm_message` has accepted.
        peer: The swarm that has sent it, as its token says.
        swarm: The local swarm.

    Raises:
        Forbidden: it claims to come from another swarm.
        ProtocolError: anything else.
    """
    source, target = message["source_swarm"], message["target_swarm"]
    if source != peer:
        raise Forbidden(f"this token speaks for the swarm '{peer}', not for {_shown(source)}")
    if target != swarm:
        problem = f"this server's swarm is '{swarm}', not {_shown(target)}"
        raise _wrong("target_swarm", problem, Misdirected)
    if len(message["timestamp"]) > _SHOWN:
        raise _wrong("timestamp", "must be a time as RFC 3339 writes it")
    payload: Any = message["payload"]
    _check_addresses(payload, peer, swarm)
    if len(payload["subject"]) > MAX_SUBJECT:
        raise _wrong("payload.subject", f"must not have more than {MAX_SUBJECT} characters")
    for field in ("sender_swarm", "recipient_swarm"):
        _check_name(payload.get(field) or "", f"payload.{field}", MAX_ID)
    swarms = payload.get("recipient_swarms") or ()
    _check_number(swarms, "payload.recipient_swarms", MAX_RECIPIENTS)
    for name in swarms:
        _check_name(name, "payload.recipient_swarms", MAX_ID)
    check_hints(payload.get("routing_info"), "message.payload.routing_info")
    _check_parties(message)


def _check_addresses(payload: Any, peer: str, swarm: str) -> None:
    """Check that an agent of the peer writes to agents, one of them here."""
    sender = payload["sender"]
    if sender["address_type"] != "agent":
        problem = f"must be an agent of '{peer}', not of the type '{sender['address_type']}'"
        raise _wrong("payload.sender", problem)
    _check_name(sender["address"], "payload.sender.address", _MAX_ADDRESS)
    name, place = parse_agent_address(sender["address"])
    if not name or place not in (None, peer):
        raise _wrong("payload.sender", f"must be an agent of '{peer}'")
    recipients = payload.get("recipients") or [payload.get("recipient")]
    _check_number(recipients, "payload.recipients", MAX_RECIPIENTS)
    for one in recipients:
        if one["address_type"] != "agent":
            raise _wrong("payload.recipients", "must be agents")
        _check_name(one["address"], "payload.recipients", _MAX_ADDRESS)
    places = [parse_agent_address(one["address"])[1] for one in recipients]
    if not any(place in (None, swarm) for place in places):
        raise _wrong("payload.recipients", f"none of them is in the swarm '{swarm}'")


def _check_parties(message: MAILInterswarmMessage) -> None:
    """Check whose task it is said to be, and who is said to take part."""
    contributors = message["task_contributors"]
    if len(contributors) > MAX_CONTRIBUTORS:
        raise _wrong(
            "task_contributors",
            f"a task has at most {MAX_CONTRIBUTORS} contributors, and this one {len(contributors)}",
        )
    for field, parties in (
        ("task_owner", [message["task_owner"]]),
        ("task_contributors", contributors),
    ):
        for party in parties:
            _check_name(party, field, _MAX_PARTY)
            try:
                parse_task_contributor(party)
            except ProtocolError as error:
                raise _wrong(field, str(error)) from None


def _check_number(names: Sized, field: str, most: int) -> None:
    if len(names) > most:
        raise _wrong(field, f"must not be more than {most}")


def _check_name(name: str, field: str, most: int) -> None:
    if len(name) > most:
        raise _wrong(field, f"must not have more than {most} characters")
    if _CONTROL.search(name):
        raise _wrong(field, "must not contain control characters")


def _wrong(field: str, problem: str, kind: type[ProtocolError] = ProtocolError) -> ProtocolError:
    text = f"invalid interswarm message: {field}: {problem}"
    return kind(text, [{"field": f"message.{field}", "problem": problem}])


def check_hints(routing_info: object, field: str) -> None:
    """Refuse routing information that is too long; ``field`` names it.

    Raises:
        ProtocolError: it is.
    """
    if len(to_json(routing_info)) > _MAX_HINTS:
        problem = f"must not be longer than {_MAX_HINTS} bytes"
        raise ProtocolError(f"{field}: {problem}", [{"field": field, "problem": problem}])


def _shown(name: str) -> str:
    return repr(name[:_SHOWN])


# --- where it goes ------------------------------------------------------------------------------


class Place(NamedTuple):
    """The destination of a peer's mail: the owner of the task here, and its local id."""

    owner: Owner
    task_id: str
    opens: bool = False


async def find_place(
    store: Store, swarm: str, message: MAILInterswarmMessage, peer: str, *, may_open: bool
) -> Place:
    """Find out whose task a peer's mail is for; nothing but the id is taken from the peer.

    Args:
        store: The store of the tasks.
        swarm: The local swarm.
        message: The wrapper, which `check_peer_mail` has accepted.
        peer: The swarm that has sent it.
        may_open: Whether it may open a task.

    Raises:
        UnknownTask: the peer takes part in no such task, whether or not there is one.
    """
    wire_id, task_owner = message["payload"]["task_id"], message["task_owner"]
    task_id = local_task_id(wire_id, task_owner)
    home = parse_task_contributor(task_owner)
    is_ours = home.swarm == swarm
    places = [Place(Owner(swarm, home.role, home.id), wire_id)] if is_ours else []
    for party in map(parse_task_contributor, message["task_contributors"]):
        if party.swarm == swarm and party.role == PEER_ROLE:
            places.append(Place(Owner(swarm, PEER_ROLE, party.id), task_id))
    found = [
        place
        for place in dict.fromkeys(places)
        if await _takes_part(store, peer, place, task_owner)
    ]
    # The peer has opened one of them itself; else it may answer what any of them has asked.
    found.sort(key=lambda place: place.owner != Owner(swarm, PEER_ROLE, peer))
    if len(found) > 1 and message["msg_type"] == "response":
        ref = cast(Any, message["payload"])["request_id"]
        for place in found:
            mail = await store.task_outbox(place.owner, place.task_id)
            if any((row.peer, row.ref) == (peer, ref) for row in mail):
                return place
    if found:
        return found[0]
    if not may_open or is_ours:
        raise UnknownTask(wire_id)
    return Place(Owner(swarm, PEER_ROLE, peer), task_id, opens=True)


async def _takes_part(store: Store, peer: str, place: Place, task_owner: str) -> bool:
    """Tell whether a task is there, is whose it is said to be, and concerns the peer."""
    row = await store.load_task(place.owner, place.task_id)
    if row is None or row.task_owner != task_owner:
        return False
    if peer in row.remote_swarms or place.owner == Owner(place.owner.swarm, PEER_ROLE, peer):
        return True
    # Its answer may be here before it is recorded that the question was delivered.
    mail = await store.task_outbox(place.owner, place.task_id)
    return any(row.peer == peer for row in mail)


def opened(message: MAILInterswarmMessage, peer: str, place: Place) -> PeerMail:
    """Return a peer's mail as the runtime at its place takes it, with the receipt for the peer.

    Raises:
        ProtocolError: its metadata has a note that cannot be read.
    """
    swarm = place.owner.swarm
    receipt = {
        "swarm": swarm,
        "task_id": message["payload"]["task_id"],
        "status": "success",
        "local_runner": str(place.owner),
    }
    return PeerMail(
        peer=peer,
        envelope=unwrap(message, swarm, place.task_id),
        task_owner=message["task_owner"],
        contributors=tuple(message["task_contributors"]),
        control=PeerControl.from_metadata(message.get("metadata")),
        receipt=to_json(receipt).decode(),
        opens=place.opens,
    )


# --- mail for other swarms ------------------------------------------------------------------------


def is_forgotten(row: OutboxRow, now: datetime) -> bool:
    """Tell whether mail is so old that a peer which has taken it may not know it any more."""
    written = datetime.fromisoformat(from_json(row.wrapper)["timestamp"])
    return now - written > INBOX_AGE


async def retry_mail(store: Store, swarm: str, number: int, now: datetime) -> None:
    """Let mail for another swarm be tried at once, also mail that was given up.

    Raises:
        UnknownMail: there is none of that number, or it has been delivered.
        OutboxConflict: its answer would be for nobody, or it may have been taken long ago.
    """
    owner, row = await _mail(store, swarm, number)
    if row.state == "delivered":
        raise UnknownMail(number)
    task = await store.load_task(owner, row.task_id)
    if row.kind == "request" and (task is None or not task.state.is_open):
        state = "deleted" if task is None or owner == Owner.of_deleted(swarm) else task.state
        raise OutboxConflict(
            f"mail {number} is a request of task '{row.task_id}', which is {state}: nobody waits "
            "for the answer; discard the mail, and ask again in another task"
        )
    if is_forgotten(row, now):
        raise OutboxConflict(
            f"mail {number} is older than {INBOX_AGE.days} days: if '{row.peer}' has taken it "
            "already, it would be taken for new; discard it"
        )
    if not await store.retry_outbox(swarm, number):
        raise UnknownMail(number)


async def discard_mail(store: Store, swarm: str, number: int) -> None:
    """Remove mail for another swarm that was given up.

    Raises:
        UnknownMail: there is none of that number.
        OutboxConflict: it has not been given up.
    """
    _, row = await _mail(store, swarm, number)
    if row.state != "dead":
        reason = "waits for its answer" if row.state == "delivered" else "is still to be delivered"
        raise OutboxConflict(f"mail {number} {reason}; only mail that was given up is discarded")
    await store.change_outbox([OutboxChange(number, "done")])


async def _mail(store: Store, swarm: str, number: int) -> tuple[Owner, OutboxRow]:
    found = await store.list_outbox(swarm, after=number - 1, limit=1)
    if not found or found[0][1].id != number:
        raise UnknownMail(number)
    return found[0]

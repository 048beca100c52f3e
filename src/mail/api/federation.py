"""Federation of a library swarm: its mail to and from other swarms, without a server of its own.

A server does the same for all instances of its swarm; see `mail.server.federation`.
"""

import asyncio
from collections.abc import Callable, Collection
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, cast

from pydantic_core import from_json

from mail.core.addresses import parse_agent_address
from mail.core.interswarm import INBOX_AGE, PEER_ROLE, DeliveryOutcome
from mail.core.runtime.interswarm import Direction
from mail.core.runtime.runtime import MAILRuntime
from mail.core.schema import parse_interswarm_message, parse_message
from mail.core.wire import MAILInterswarmMessage, MAILMessage
from mail.db.records import OutboxRow, Owner, TaskRow
from mail.db.store import Store
from mail.errors import ProtocolError, UnknownTask
from mail.net.outbox import OutboxSender, PeerGateway
from mail.net.router import InterswarmRouter
from mail.services.peer_mail import check_peer_mail, find_place, opened

if TYPE_CHECKING:
    from mail.clock import Clock
    from mail.net.registry import SwarmRegistry

_PAGE: Final = 1000
_LAST_MAIL_SECONDS: Final = 5.0
_LAST_MAIL_STEP: Final = 0.02


class _OwnMail:
    """The mail of some owners in a store, which other instances of the swarm may share."""

    def __init__(self, store: Store, owners: Callable[[], Collection[Owner]]) -> None:
        self._store = store
        self._owners = owners
        self.next_outbox, self.change_outbox = store.next_outbox, store.change_outbox
        self.list_outbox, self.load_task = store.list_outbox, store.load_task

    async def due_outbox(
        self,
        swarm: str,
        now: str,
        limit: int,
        *,
        without: Collection[str] = (),
        untold: Collection[str] = (),
    ) -> list[tuple[Owner, OutboxRow]]:
        found: list[tuple[Owner, OutboxRow]] = []
        for owner in (*self._owners(), Owner.of_deleted(swarm)):
            found += await self._store.due_outbox(
                swarm, now, limit, owner=owner, without=without, untold=untold
            )
        return sorted(found, key=lambda each: each[1].id)[:limit]

    async def unanswered_outbox(
        self, swarm: str, before: str, after: int, limit: int
    ) -> list[tuple[Owner, OutboxRow]]:
        found: list[tuple[Owner, OutboxRow]] = []
        for owner in self._owners():
            found += await self._store.unanswered_outbox(swarm, before, after, limit, owner=owner)
        return sorted(found, key=lambda each: each[1].id)[:limit]


class _Gateway(PeerGateway):
    """Begins to deliver when there is something to deliver."""

    def __init__(
        self,
        registry: "SwarmRegistry",
        sender: OutboxSender,
        router: InterswarmRouter,
        deliver: Callable[[], None],
    ) -> None:
        super().__init__()
        self.registry, self._deliver = registry, deliver
        self.begin(sender, router)

    def wake(self, peers: Collection[str]) -> None:
        self._deliver()
        super().wake(peers)


class LibraryFederation:
    """A library swarm's exchange with other swarms: a router, a sender, its guests.

    A *guest* is the runtime for the tasks of one other swarm. It is made when mail of that swarm
    comes, or when `start` finds that it has work left.

    Args:
        registry: Knows the other swarms.
        store: The store of tasks and mail.
        owner: The owner of this instance of the swarm.
        make_guest: Makes the runtime for a swarm's tasks, with `gateway`.
        clock: The time.

    Attributes:
        gateway: The other swarms as the runtimes see them.
        home: The runtime for the owner's own tasks; to be set before anything is started.
    """

    home: MAILRuntime

    def __init__(
        self,
        registry: "SwarmRegistry",
        store: Store,
        owner: Owner,
        make_guest: Callable[[str], MAILRuntime],
        clock: "Clock",
    ) -> None:
        self._registry = registry
        self._store = store
        self._owner = owner
        self._make_guest = make_guest
        self._clock = clock
        self._guests: dict[str, MAILRuntime] = {}
        self._router = InterswarmRouter(registry, owner.swarm)
        self._router.register_message_handler("local_message_handler", self._take_routed)
        self._sender = OutboxSender(
            _OwnMail(store, self._owners), owner.swarm, registry, self._router, self._settle,
            clock=clock,
        )  # fmt: skip
        self.gateway = _Gateway(registry, self._sender, self._router, self._begin)
        self._opening: asyncio.Task[None] | None = None
        self._checks_health = False
        self._is_stopped = False

    # --- life -----------------------------------------------------------------------------------

    async def start(self) -> None:
        """Deliver what waits, check the health of peers, and go on with what they have begun."""
        self._is_stopped = False
        self._registry.warn_of_missing_tokens()
        await self._open()
        moment = datetime.fromisoformat(self._clock.now()) - INBOX_AGE
        aged = moment.astimezone(UTC).isoformat(timespec="microseconds")
        await self._store.drop_aged("inbox", aged, _PAGE)
        for peer in await self._peers_with_work():
            await self._guest(peer).start()
        if self._registry.health_check_task is None:
            self._checks_health = True
            await self._registry.start_health_checks()

    async def stop(self) -> None:
        """Stop it; runtimes go on, and what they send is kept."""
        self._is_stopped = True
        opening, self._opening = self._opening, None
        if opening is not None:
            opening.cancel()
            await asyncio.gather(opening, return_exceptions=True)
        await self._sender.stop()
        await self._router.stop()
        if self._checks_health:
            self._checks_health = False
            await self._registry.stop_health_checks()

    async def is_running(self) -> bool:
        """Tell whether mail is delivered."""
        return await self._router.is_running()

    async def deliver_last(self, grace: float | None) -> None:
        """Deliver what can be delivered within seconds, and stop, before the runtimes do."""
        if await self.is_running():
            await self._deliver_due(_LAST_MAIL_SECONDS if grace is None else grace)
        await self.stop()

    async def shutdown_guests(self, grace: float | None) -> None:
        """Stop the runtimes of other swarms' tasks in good order."""
        await asyncio.gather(*(guest.shutdown(grace) for guest in self._guests.values()))

    @property
    def idle(self) -> bool:
        """Tell whether no guest has anything to do."""
        return all(guest.idle for guest in self._guests.values())

    def _begin(self) -> None:
        """Begin to deliver soon, unless that goes on or was stopped."""
        opening = self._opening
        if self._is_stopped:
            return
        if opening is None or (opening.done() and opening.exception() is not None):
            self._opening = asyncio.create_task(self._open_once(), name="mail for other swarms")

    async def _open(self) -> None:
        self._begin()
        if self._opening is None:
            await self._store.open()
        else:
            await asyncio.shield(self._opening)

    async def _open_once(self) -> None:
        await self._store.open()
        await self._router.start()
        await self._sender.start()

    async def _deliver_due(self, seconds: float) -> None:
        """Wait until no mail is left that could be delivered now."""
        swarm, own = self._owner.swarm, _OwnMail(self._store, self._owners)
        try:
            async with asyncio.timeout(min(seconds, _LAST_MAIL_SECONDS)):
                while True:
                    if not await own.due_outbox(swarm, self._clock.now(), 1):
                        return
                    await asyncio.sleep(_LAST_MAIL_STEP)
        except TimeoutError:
            return  # it is in the store

    # --- guests ---------------------------------------------------------------------------------

    def _owners(self) -> list[Owner]:
        return [self._owner, *(Owner(self._owner.swarm, PEER_ROLE, peer) for peer in self._guests)]

    def _guest(self, peer: str) -> MAILRuntime:
        guest = self._guests.get(peer)
        if guest is None:
            guest = self._guests[peer] = self._make_guest(peer)
        guest.action_override = self.home.action_override
        return guest

    async def _peers_with_work(self) -> list[str]:
        """Return the swarms whose tasks are unfinished here, or have mail that waits."""
        owners = dict.fromkeys(await self._store.open_owners(self._owner.swarm))
        last = 0
        while rows := await self._store.list_outbox(self._owner.swarm, after=last, limit=_PAGE):
            owners |= dict.fromkeys(owner for owner, row in rows if row.state == "waiting")
            last = rows[-1][1].id
        return [owner.id for owner in owners if owner.role == PEER_ROLE]

    async def _settle(self, owner: Owner, row: OutboxRow, outcome: DeliveryOutcome) -> None:
        runtime = self.home if owner == self._owner else self._guest(owner.id)
        await runtime.peers.settle(row, outcome)

    # --- mail in --------------------------------------------------------------------------------

    async def receive(
        self, message: MAILInterswarmMessage, direction: Direction, peer: str | None
    ) -> dict[str, Any]:
        """Take a message of another swarm; see `mail.api.MAILSwarm.receive_interswarm_message`."""
        message = parse_interswarm_message(message)
        peer, swarm = peer or message["source_swarm"], self._owner.swarm
        if peer == swarm:
            raise ProtocolError(f"'{swarm}' is the own swarm; its mail is not received")
        check_peer_mail(message, peer, swarm)
        await self._open()
        known = await self._store.find_inbox(swarm, peer, message["message_id"])
        if known is None:
            may_open = direction == "forward"
            place = await find_place(self._store, swarm, message, peer, may_open=may_open)
            runtime = self._runtime_of(place.owner, message)
            try:
                known = await runtime.peers.take(opened(message, peer, place))
            except UnknownTask:  # by the name that the other swarm knows
                raise UnknownTask(message["payload"]["task_id"]) from None
        receipt: dict[str, Any] = from_json(known)
        return receipt

    def _runtime_of(self, owner: Owner, message: MAILInterswarmMessage) -> MAILRuntime:
        if owner == self._owner:
            return self.home
        if owner.role != PEER_ROLE:  # another instance that shares the store
            raise UnknownTask(message["payload"]["task_id"])
        return self._guest(owner.id)

    async def take_response(self, message: MAILMessage) -> None:
        """Take a message as an answer of another swarm to one of this swarm's own tasks."""
        message = parse_message(message)
        sender = message["message"]["sender"]
        peer = parse_agent_address(sender["address"])[1]
        if message["msg_type"] != "response" or sender["address_type"] != "agent" or not peer:
            raise ProtocolError("not a response of an agent of another swarm, agent@swarm")
        task_id = message["message"]["task_id"]
        await self._open()
        row = await self._store.load_task(self._owner, task_id)
        if row is None:
            raise UnknownTask(task_id)
        wrapper = self._wrapped(message, peer, row)
        await self.receive(wrapper, "back", peer)

    def _wrapped(self, message: MAILMessage, peer: str, row: TaskRow) -> MAILInterswarmMessage:
        return {
            "message_id": message["id"],
            "source_swarm": peer,
            "target_swarm": self._owner.swarm,
            "timestamp": message["timestamp"],
            "payload": cast("Any", message["message"]),
            "msg_type": "response",
            "task_owner": row.task_owner,
            "task_contributors": list(row.task_contributors),
            "metadata": {},
        }

    async def _take_routed(self, message: MAILInterswarmMessage) -> None:
        """Take mail that the router has for this swarm."""
        if message["source_swarm"] != self._owner.swarm:
            await self.receive(message, "forward", None)
            return
        local: MAILMessage = {
            "id": message["message_id"],
            "timestamp": message["timestamp"],
            "message": message["payload"],
            "msg_type": message["msg_type"],
        }
        await self.home.start()
        await self.home.submit(local)

    # --- mail out -------------------------------------------------------------------------------

    async def route(self, message: MAILMessage) -> MAILMessage:
        """Deliver a message to its recipients here and in other swarms, once."""
        message = parse_message(message)
        await self._open()
        row = await self._store.load_task(self._owner, message["message"]["task_id"])
        contributors = row.task_contributors if row is not None else ()
        owner = row.task_owner if row is not None else str(self._owner)
        return await self._router.route_message(
            message,
            task_owner=owner,
            task_contributors=[*dict.fromkeys((*contributors, str(self._owner)))],
        )

    async def send(self, message: MAILInterswarmMessage, direction: Direction) -> None:
        """Send a wrapped message to its swarm, once."""
        await self._open()
        if direction == "back":
            await self._router.send_interswarm_message_back(message)
        else:
            await self._router.send_interswarm_message_forward(message)

    async def post_user_message(self, message: MAILInterswarmMessage) -> MAILMessage:
        """Have another swarm run a user's task; return its answer."""
        await self._open()
        return await self._router.post_interswarm_user_message(message)

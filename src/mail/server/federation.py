"""Mail between this server's swarm and others: which token is whose, and what carries the mail.

What peers may claim is checked by `mail.services.peer_mail`.
"""

import re
import time
from collections.abc import (
    AsyncGenerator,
    Callable,
    Mapping,
)
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from mail.auth.callers import Caller
from mail.config.server import FederationConfig
from mail.core.interswarm import (
    PEER_ROLE,
    DeliveryOutcome,
    PeerMail,
    wire_task_id,
)
from mail.core.tasks import TaskState
from mail.core.wire import MAILInterswarmMessage
from mail.db.records import OutboxRow, Owner
from mail.db.store import Store
from mail.errors import (
    Forbidden,
    MAILError,
    Misdirected,
    ShuttingDown,
    UnknownSwarm,
    UnknownTask,
)
from mail.logcontext import note
from mail.net.outbox import OutboxSender, PeerGateway, SendingSettings, Share
from mail.net.registry import SwarmRegistry
from mail.net.router import InterswarmRouter
from mail.net.signatures import SignatureRules, SignedRequest, check_digest, check_signature
from mail.net.sse import SSEEvent
from mail.server.instances import InstancePool
from mail.server.quotas import Quotas
from mail.server.storage import StorageShares
from mail.services.peer_mail import (
    Place,
    check_peer_mail,
    discard_mail,
    find_place,
    opened,
    retry_mail,
)

if TYPE_CHECKING:
    from starlette.requests import Request


_HOST: Final = re.compile(r"([\w.-]+|\[[\da-fA-F:.]+\])(:\d+)?", re.ASCII)
_NO_HOST: Final = "host.invalid"
_DUTY_SECONDS: Final = 2.0
"""For so long it is known who sends to a peer."""
"""The host that a signature of the address fits when the request names none."""


def swarms_of(registry: SwarmRegistry, caller: Caller) -> list[str]:
    """Return the registered swarms that a caller of the role ``agent`` is the principal of."""
    own = registry.local_swarm_name
    return [
        name
        for name, entry in registry.get_all_endpoints().items()
        if name != own and _principal(name, entry["metadata"]) == caller.id
    ]


def peer_of(registry: SwarmRegistry, caller: Caller) -> str:
    """Return the swarm that a caller of the role ``agent`` speaks for.

    That is the registered swarm whose name is the caller's id, or whose entry names the caller as
    ``metadata.principal``.

    Raises:
        Misdirected: it is this server's own swarm.
        Forbidden: there is none, or more than one.
    """
    own = registry.local_swarm_name
    found = swarms_of(registry, caller)
    if not found and caller.id == own:
        raise Misdirected(f"'{own}' is this server's own swarm; its mail takes no HTTP")
    if not found:
        raise Forbidden(
            f"no registered swarm has the principal '{caller.id}': an administrator registers it "
            "with POST /swarms under this name, or with this id as metadata.principal"
        )
    if len(found) > 1:
        raise Forbidden(
            f"the registry has several swarms with the principal '{caller.id}': "
            f"{', '.join(sorted(found)[:5])}"
        )
    return found[0]


def _principal(name: str, metadata: Mapping[str, Any] | None) -> str:
    """Return the id that the tokens of a swarm have."""
    given = (metadata or {}).get("principal")
    return given if isinstance(given, str) and given else name


class _Link(NamedTuple):
    """The parts that carry the mail of one swarm."""

    swarm: str
    router: InterswarmRouter
    sender: OutboxSender
    deaf: Callable[[], None]


class Federation:
    """One server's exchange of its swarm's mail with others.

    Args:
        config: ``[server.federation]``.
        store: The store of tasks and mail.
        registry: The swarms that the server knows.
        pool: The instances of the swarm.
        quotas: The limits on each owner's work at a time.
        shares: The limits on each owner's storage.
        gateway: The gateway of the instances.
    """

    def __init__(
        self,
        config: FederationConfig,
        store: Store,
        registry: SwarmRegistry,
        pool: InstancePool,
        quotas: Quotas,
        shares: StorageShares,
        gateway: PeerGateway,
    ) -> None:
        self._config = config
        self._store = store
        self.registry = registry
        self._pool = pool
        self._quotas = quotas
        self._shares = shares
        self._gateway = gateway
        gateway.registry = registry
        self._rules = SignatureRules(
            config.require_signatures, config.signature_max_age, config.clock_skew
        )
        self._link: _Link | None = None

    async def serve(self) -> None:
        """Carry the mail of the swarm that is served; that of an earlier one waits for its return.

        Does nothing for a swarm that exchanges no mail.
        """
        carries = self._pool.served.template.enable_interswarm
        if carries and self._link is not None and self._link.swarm == self.swarm:
            return
        await self.stop()
        if carries:
            router = InterswarmRouter(self.registry, self.swarm)
            settings = SendingSettings(
                give_up_after=self._config.give_up_after,
                answer_within=self._config.answer_within,
            )
            sender = OutboxSender(
                *(self._store, self.swarm, self.registry, router, self._settle, settings),
                share=self._share(self.swarm),
            )
            deaf = self._store.driver.on_hint(
                lambda topics: sender.look() if "outbox" in topics or not topics else None
            )
            self._link = _Link(self.swarm, router, sender, deaf)
            self._gateway.begin(sender, router)
            self.registry.warn_of_missing_tokens()
            await router.start()
            await sender.start()

    def _share(self, swarm: str) -> Share | None:
        """Return which peers this server sends to: those that no other one does."""
        store, known = self._store, dict[str, tuple[bool, float]]()
        if not store.shared:
            return None

        async def on_duty(peer: str) -> bool:
            mine, until = known.get(peer, (False, 0.0))
            if until < time.monotonic():
                mine = await store.on_duty(f"{swarm}: mail for {peer}")
                known[peer] = mine, time.monotonic() + _DUTY_SECONDS
            return mine

        return Share(on_duty, lambda: store.driver.tell("outbox"))

    async def stop(self) -> None:
        """Deliver no more mail; what was not delivered is in the store."""
        link, self._link = self._link, None
        self._gateway.end()
        if link is not None:
            link.deaf()
            await link.sender.stop()
            await link.router.stop()

    @property
    def swarm(self) -> str:
        """The swarm that is served."""
        return str(self._pool.served.template.name)

    def check_enabled(self) -> None:
        """Check that the swarm exchanges mail with others.

        Raises:
            UnknownSwarm: it does not.
        """
        if not self._pool.served.template.enable_interswarm:
            raise UnknownSwarm(
                f"the swarm '{self.swarm}' exchanges no mail with other swarms; its definition "
                "sets enable_interswarm to false"
            )

    # --- mail of people to other swarms -----------------------------------------------------------

    def _router(self) -> InterswarmRouter:
        if self._link is None:
            raise ShuttingDown()
        return self._link.router

    async def ask(self, message: MAILInterswarmMessage) -> Any:
        """Let another swarm run a person's task, and return the final message of the run.

        Raises:
            UnknownSwarm: the registry does not have it.
            RoutingError: it does not answer, or not well.
        """
        answer = await self._router().post_user_message(message)
        return answer.get("response")

    async def stream(self, message: MAILInterswarmMessage) -> AsyncGenerator[SSEEvent, None]:
        """Let another swarm run a person's task, and return the events of the run.

        Raises:
            UnknownSwarm, RoutingError: see `ask`.
        """
        return await self._router().stream_interswarm_user_message(message)

    async def follow(
        self, swarm: str, task_id: str, token: str, after: int
    ) -> AsyncGenerator[SSEEvent, None]:
        """Return the events of a person's task in another swarm after one of them.

        Raises:
            UnknownSwarm, RoutingError: see `ask`.
        """
        return await self._router().follow_interswarm_user_task(swarm, task_id, token, str(after))

    # --- the outbox -------------------------------------------------------------------------------

    async def retry(self, number: int) -> None:
        """Have mail delivered again.

        Raises:
            UnknownMail, OutboxConflict: see `retry_mail`.
        """
        await retry_mail(self._store, self.swarm, number, datetime.now(UTC))
        if self._link is not None:
            self._link.sender.probe(self.registry.get_all_endpoints())

    async def discard(self, number: int) -> None:
        """Remove mail that was given up.

        Raises:
            UnknownMail, OutboxConflict: see `discard_mail`.
        """
        await discard_mail(self._store, self.swarm, number)

    async def _settle(self, owner: Owner, row: OutboxRow, outcome: DeliveryOutcome) -> None:
        """Tell the runtime that wrote mail what came of it."""
        async with self._pool.lend_owner(owner) as swarm:
            await swarm.runtime.peers.settle(row, outcome)

    # --- mail of peers ----------------------------------------------------------------------------

    def peer_of(self, caller: Caller) -> str:
        """Return the swarm that a caller speaks for; see `peer_of`."""
        return peer_of(self.registry, caller)

    async def open_tasks(self, peer: str, *, cancel: bool) -> int:
        """Return how many open tasks a swarm has here, and cancel them if that is asked."""
        owner, states = Owner(self.swarm, PEER_ROLE, peer), (TaskState.RUNNING, TaskState.PAUSED)
        found = await self._store.list_tasks(owner, states=states)
        if found and cancel:
            async with self._pool.lend_owner(owner) as swarm:
                for row in found:
                    await swarm.cancel_task(row.task_id)
        return len(found)

    def check_signature(self, request: "Request", peer: str) -> Callable[[bytes], None] | None:
        """Check the signature of a peer's request, as far as that goes without its body.

        Returns:
            What checks the body; None when it is not signed and need not be.

        Raises:
            Unauthenticated: see `mail.net.signatures.check_signature`.
        """
        entry = self.registry.get_swarm_endpoint(peer)
        scope, host = request.scope, request.headers.get("host", "")
        if not _HOST.fullmatch(host):  # it could bring along a path, which must be the request's
            host = _NO_HOST
        # A proxy may have changed what it was sent to; the path is behind that of our address.
        base = self._config.base_url or f"{scope['scheme']}://{host}"
        path = scope.get("raw_path", scope["path"].encode()).decode("latin-1")
        signed = SignedRequest(request.method, f"{base}{path}", request.headers)
        digest = check_signature(signed, entry.get("public_keys", ()) if entry else (), self._rules)
        return None if digest is None else partial(check_digest, digest)

    async def take(
        self, message: MAILInterswarmMessage, peer: str, token: str, *, may_open: bool
    ) -> str:
        """Hand mail of a peer to the runtime that it is for, once; return the receipt as JSON.

        A repeated delivery gets the first receipt.

        Args:
            message: The wrapper, which `mail.core.schema.parse_interswarm_message` has accepted.
            peer: The swarm that has sent it.
            token: Its bearer token.
            may_open: Whether it may open a task.

        Raises:
            Forbidden, ProtocolError: see `check_peer_mail`.
            UnknownTask: the peer takes part in no such task, whether or not there is one.
            TaskTaken: the peer has another task of that id.
            QuotaExceeded, StorageFull: the task's owner has as much as one gets.
            ServerBusy, ShuttingDown: it cannot be taken now.
        """
        check_peer_mail(message, peer, self.swarm)
        if self._link is not None:
            self._link.sender.heard_from(peer)
        try:
            return await self._take(message, peer, token, may_open=may_open)
        except MAILError:  # its task may be gone by now
            known = await self._store.find_inbox(self.swarm, peer, message["message_id"])
            if known is None:
                raise
            return known

    async def _take(
        self, message: MAILInterswarmMessage, peer: str, token: str, *, may_open: bool
    ) -> str:
        place = await find_place(self._store, self.swarm, message, peer, may_open=may_open)
        note(task_id=place.task_id)
        mail = opened(message, peer, place)
        if place.opens and mail.control is not None and mail.control.is_silent:
            raise UnknownTask(message["payload"]["task_id"])
        return await self._hand_over(mail, place, token)

    async def _hand_over(self, mail: PeerMail, place: Place, token: str) -> str:
        peer = mail.peer
        theirs = token if place.owner == Owner(self.swarm, PEER_ROLE, peer) else ""
        async with self._pool.lend_owner(place.owner, theirs) as swarm:
            try:
                owner, here = place.owner, swarm.runtime.open_tasks
                await self._shares.admit(owner, resumes=not place.opens)
                if place.opens:
                    caller, others = Caller(owner.role, owner.id), self._shares.elsewhere(owner)
                    self._quotas.message(caller, place.task_id, here, others)
                taken: str = await swarm.runtime.peers.take(mail)
            except UnknownTask:
                wire_id = wire_task_id(place.owner.role, place.task_id)
                raise UnknownTask(wire_id) from None
        return taken

"""The documented calls for mail between swarms, which a swarm and its runtime have in common."""

from typing import Final, Literal, Protocol

from mail.core.wire import MAILInterswarmMessage, MAILMessage
from mail.errors import ConfigError

Direction = Literal["forward", "back"]

NO_ROUTER: Final = "interswarm router not available"


class MailCarrier(Protocol):
    """Carries mail between this swarm and others; see the methods of `Federation`."""

    async def start(self) -> None:
        """Begin."""

    async def stop(self) -> None:
        """Stop."""

    async def is_running(self) -> bool:
        """Tell whether it has begun."""

    async def route(self, message: MAILMessage) -> MAILMessage:
        """Deliver a message where its recipients are."""

    async def take_response(self, message: MAILMessage) -> None:
        """Take the answer of another swarm."""

    async def send(self, message: MAILInterswarmMessage, direction: Direction) -> None:
        """Send a message to another swarm."""

    async def post_user_message(self, message: MAILInterswarmMessage) -> MAILMessage:
        """Post a user's message to another swarm and return its answer."""


class Federation:
    """Mail between this swarm and others.

    Every method but `is_interswarm_running` raises `ConfigError` (a ValueError) where mail between
    swarms is not enabled, or a server carries it.

    Attributes:
        carrier: Carries the mail, if this is not a server's affair.
    """

    enable_interswarm: bool
    carrier: MailCarrier | None = None

    async def start_interswarm(self) -> None:
        """Exchange mail with other swarms from now on, and check whether they answer.

        Tasks of other swarms that are unfinished go on. Of several instances of a swarm that share
        a store, only the one that gets the mail of other swarms does this. Mail that agents send
        needs no call of this method.
        """
        self._refuse_when_disabled()
        await self._carrier().start()

    async def stop_interswarm(self) -> None:
        """Stop the exchange of mail with other swarms; what waits is kept in the store."""
        self._refuse_when_disabled()
        await self._carrier().stop()

    async def is_interswarm_running(self) -> bool:
        """Tell whether mail is exchanged with other swarms."""
        return self.carrier is not None and await self.carrier.is_running()

    async def route_interswarm_message(self, message: MAILMessage) -> MAILMessage:
        """Deliver a message where its recipients are, once and at once: here, and in other swarms.

        Answers are messages of their own, which ``receive_interswarm_message`` takes if they belong
        to a task of this swarm.

        Args:
            message: The message; recipients of other swarms are ``agent@swarm``.

        Returns:
            The message, or a response of the system under ``Router Error`` with the reason when
            somebody did not get it.
        """
        return await self._carrier().route(message)

    async def handle_interswarm_response(self, response_message: MAILMessage) -> None:
        """Take the answer of an agent of another swarm, ``agent@swarm``, in a task of this one.

        Raises:
            UnknownTask: that swarm takes part in no such task.
            ProtocolError: it is not such a message.
        """
        await self._carrier().take_response(response_message)

    async def send_interswarm_message(
        self, message: MAILInterswarmMessage, direction: Direction = "forward"
    ) -> None:
        """Send a message to another swarm, once and at once.

        Raises:
            UnknownSwarm: the registry has no such swarm.
            RoutingError: it could not be delivered (a ValueError, too).
        """
        await self._carrier().send(message, direction)

    async def post_interswarm_user_message(self, message: MAILInterswarmMessage) -> MAILMessage:
        """Let another swarm run a user's task, and return its answer.

        Args:
            message: The wrapper; its ``auth_token`` is the user's own token for that swarm.

        Raises:
            UnknownSwarm: the registry has no such swarm.
            RoutingError: there is no answer (a ValueError, too).
        """
        return await self._carrier().post_user_message(message)

    def _refuse_when_disabled(self) -> None:
        if not self.enable_interswarm:
            raise ConfigError("interswarm messaging is not enabled for this swarm")

    def _carrier(self) -> MailCarrier:
        if self.carrier is None:
            raise ConfigError(NO_ROUTER)
        return self.carrier

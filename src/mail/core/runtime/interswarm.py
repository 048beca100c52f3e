"""The calls for interswarm messaging, which raise an error because there is no router yet."""

from typing import Literal, NoReturn

from mail.core.wire import MAILInterswarmMessage, MAILMessage
from mail.errors import ConfigError

__all__ = ["Federation"]

_Direction = Literal["forward", "back"]


class Federation:
    """Mail between this swarm and others.

    Every method but `is_interswarm_running` raises `ConfigError` (a ValueError): mail between
    swarms is not enabled, or the router for it is not available.
    """

    enable_interswarm: bool

    async def start_interswarm(self) -> None:
        """Begin to exchange mail with other swarms."""
        self._refuse_when_disabled()
        self._refuse()

    async def stop_interswarm(self) -> None:
        """Stop the exchange of mail with other swarms."""
        self._refuse_when_disabled()
        self._refuse()

    async def is_interswarm_running(self) -> bool:
        """Tell whether mail is exchanged with other swarms."""
        return False

    async def route_interswarm_message(self, message: MAILMessage) -> MAILMessage:
        """Send a message to where its recipient is and return the answer."""
        self._refuse()

    async def handle_interswarm_response(self, response_message: MAILMessage) -> None:
        """Take the answer of another swarm."""
        self._refuse()

    async def receive_interswarm_message(
        self, message: MAILInterswarmMessage, direction: _Direction = "forward"
    ) -> None:
        """Take a message of another swarm."""
        self._refuse()

    async def send_interswarm_message(
        self, message: MAILInterswarmMessage, direction: _Direction = "forward"
    ) -> None:
        """Send a message to another swarm."""
        self._refuse()

    async def post_interswarm_user_message(self, message: MAILInterswarmMessage) -> MAILMessage:
        """Post a user's message to another swarm and return its answer."""
        self._refuse()

    def _refuse_when_disabled(self) -> None:
        if not self.enable_interswarm:
            raise ConfigError("interswarm messaging is not enabled for this swarm")

    def _refuse(self) -> NoReturn:
        raise ConfigError("interswarm router not available")

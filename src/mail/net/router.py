"""`InterswarmRouter`: carries mail to the servers of other swarms, and theirs to the local runtime.

What it is given is never changed: wrappers and payloads that go out are copies.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final, Literal, cast

from pydantic_core import to_json

from mail.clock import SystemClock
from mail.core.addresses import (
    create_agent_address,
    create_system_address,
    parse_agent_address,
    parse_task_contributor,
)
from mail.core.render import recipients_of
from mail.core.schema import parse_message
from mail.core.wire import MAILInterswarmMessage, MAILMessage
from mail.errors import AddressError, MAILError, RoutingError, UnknownSwarm
from mail.net.peers import PeerAccess
from mail.net.registry import SwarmRegistry
from mail.net.sse import SSEEvent
from mail.net.types import SwarmEndpoint
from mail.net.user_streams import UserStream, data_of

if TYPE_CHECKING:
    import httpx

    from mail.egress.posts import GuardedPosts

Direction = Literal["forward", "back"]
"""A peer's route for mail: ``back`` if the peer takes part in the task already."""

MessageHandler = Callable[[MAILInterswarmMessage], Awaitable[object]]
StreamHandler = Callable[[str, str | None], Awaitable[None]]
"""Takes the events of a stream: the name and the data of each."""

LOCAL: Final = "local_message_handler"
_DELIVERY_SECONDS: Final = 30.0
_RUN_SECONDS: Final = 3600.0
_LARGEST_RECEIPT: Final = 64 * 1024
_LARGEST_ANSWER: Final = 8 * 1024 * 1024
_SHOWN: Final = 300
_REFS: Final = ("request_id", "broadcast_id", "interrupt_id")
_FLAGS: Final = ("stream", "ignore_stream_pings")
_GIVEN: Final = ("subject", "task_id", "routing_info")
_NOT_OPEN: Final = "HTTP client session is not open"

_log = logging.getLogger("mail.router")


def direction_to(swarm: str, contributors: Iterable[str]) -> Direction:
    """Return the route for mail to a swarm: ``back`` once one of the contributors is of it."""
    for each in contributors:
        try:
            if parse_task_contributor(each).swarm == swarm:
                return "back"
        except AddressError:
            continue  # 1.3.6 sends bare ids
    return "forward"


class InterswarmRouter:
    """Sends mail to other swarms over one pool of connections, and hands their mail on.

    Errors are `mail.errors.RoutingError` (a ValueError) unless said otherwise.

    Args:
        swarm_registry: Knows where the swarms are, and the tokens for them.
        local_swarm_name: The own swarm.
        access: The rules for requests to peers; by default the registry's.

    Attributes:
        session: The pool, while the router runs.
        message_handlers: The functions that take mail, by kind: ``local_message_handler`` gets all
            that is for the own swarm.
    """

    def __init__(
        self,
        swarm_registry: SwarmRegistry,
        local_swarm_name: str,
        *,
        access: PeerAccess | None = None,
    ) -> None:
        self.swarm_registry = swarm_registry
        self.local_swarm_name = local_swarm_name
        self.session: httpx.AsyncClient | None = None
        self.message_handlers: dict[str, MessageHandler] = {}
        self._posts: GuardedPosts | None = None
        self.access = access or swarm_registry.access
        self._clock = SystemClock()

    # --- lifecycle ------------------------------------------------------------------------------

    async def start(self) -> None:
        """Open the pool; does nothing when it is open."""
        if self.session is None:
            name = f"MAIL-Interswarm-Router/{self.local_swarm_name}"
            self._posts = self.access.posts(name)
            self.session = self.access.client(name)

    async def stop(self) -> None:
        """Close the pool, and with it what is under way."""
        session, self.session = self.session, None
        posts, self._posts = self._posts, None
        if posts is not None:
            await posts.aclose()
        if session is not None:
            await session.aclose()

    async def is_running(self) -> bool:
        """Tell whether the pool is open."""
        return self.session is not None

    def register_message_handler(self, message_type: str, handler: MessageHandler) -> None:
        """Let a coroutine function take mail; it replaces the one before.

        Args:
            message_type: ``local_message_handler``, for mail to the own swarm.
            handler: It gets the wrapper.
        """
        self.message_handlers[message_type] = handler

    def get_routing_stats(self) -> dict[str, Any]:
        """Return the local swarm's name, and how many swarms and handlers there are."""
        everybody = self.swarm_registry.get_all_endpoints()
        return {
            "local_swarm_name": self.local_swarm_name,
            "total_endpoints": len(everybody),
            "active_endpoints": sum(1 for each in everybody.values() if each["is_active"]),
            "registered_handlers": list(self.message_handlers),
        }

    # --- mail that came in ----------------------------------------------------------------------

    async def receive_interswarm_message_forward(self, message: MAILInterswarmMessage) -> None:
        """Hand mail that opens a task here, or goes on with it, to the local handler."""
        await self._receive(message, "forward")

    async def receive_interswarm_message_back(self, message: MAILInterswarmMessage) -> None:
        """Hand mail of a task that this swarm takes part in to the local handler."""
        await self._receive(message, "back")

    async def _receive(self, message: MAILInterswarmMessage, direction: Direction) -> None:
        target = message["target_swarm"]
        if target != self.local_swarm_name:
            raise RoutingError(f"received interswarm message for wrong swarm: '{target}'")
        handler = self.message_handlers.get(LOCAL)
        if handler is None:
            raise RoutingError("no local message handler registered")
        try:
            await handler(message)
        except Exception as error:
            text = f"router failed to receive interswarm message {direction}: {error}"
            raise RoutingError(text) from error

    # --- mail that goes out ---------------------------------------------------------------------

    async def send_interswarm_message_forward(self, message: MAILInterswarmMessage) -> None:
        """Deliver mail to a swarm that does not take part in its task yet. It is not repeated.

        Raises:
            UnknownSwarm: the registry does not know that swarm (a ValueError, too).
        """
        await self._send(message, "forward")

    async def send_interswarm_message_back(self, message: MAILInterswarmMessage) -> None:
        """Deliver mail to a swarm that takes part in its task. It is not repeated.

        Raises:
            UnknownSwarm: the registry does not know that swarm (a ValueError, too).
        """
        await self._send(message, "back")

    async def _send(self, message: MAILInterswarmMessage, direction: Direction) -> None:
        target = message["target_swarm"]
        if target == self.local_swarm_name:
            await self._receive(self._prep_message_for_interswarm(message), direction)
            return
        self._active_endpoint(target)
        self._token(target, message)
        try:
            await self.deliver(message, direction)
        except RoutingError as error:
            failed = f"router failed to send interswarm message {direction}"
            raise RoutingError(
                f"{failed}: {failed} to swarm '{target}': {error}",
                status=error.status,
                detail=error.detail,
                told=error.told,
                retry_after=error.retry_after,
            ) from None

    async def deliver(self, message: MAILInterswarmMessage, direction: Direction) -> dict[str, Any]:
        """Make one attempt to hand mail to its swarm, whether or not that answers health checks.

        Returns:
            The receipt: the peer's answer.

        Raises:
            UnknownSwarm: the registry does not know that swarm.
        """
        endpoint = self._endpoint(message["target_swarm"])
        if self._posts is None:
            raise RoutingError(_NOT_OPEN)
        token = self._token(message["target_swarm"], message)
        wrapper = self._prep_message_for_interswarm(message)
        wrapper["auth_token"] = token
        return await self.access.deliver(
            self._posts,
            f"{_base_url(endpoint)}/interswarm/{direction}",
            {"message": wrapper},
            token,
            seconds=_DELIVERY_SECONDS,
            max_bytes=_LARGEST_RECEIPT,
        )

    def _endpoint(self, swarm: str) -> SwarmEndpoint:
        endpoint = self.swarm_registry.get_swarm_endpoint(swarm)
        if endpoint is None:
            raise UnknownSwarm(f"unknown swarm endpoint: '{swarm}'")
        return endpoint

    def _active_endpoint(self, swarm: str) -> SwarmEndpoint:
        endpoint = self._endpoint(swarm)
        if not endpoint["is_active"]:
            raise RoutingError(f"swarm '{swarm}' is not active")
        self._opened()
        return endpoint

    def _resolve_auth_token_ref(self, swarm_name: str | None) -> str | None:
        return self.swarm_registry.get_resolved_auth_token(swarm_name) if swarm_name else None

    def _token(self, swarm: str, message: MAILInterswarmMessage) -> str:
        token = self._resolve_auth_token_ref(swarm) or message.get("auth_token")
        if not token:
            raise RoutingError(f"authentication token missing for swarm '{swarm}'")
        return token

    def _prep_message_for_interswarm(self, message: MAILInterswarmMessage) -> MAILInterswarmMessage:
        """Return a copy with the ten fields of a wrapper, and the agent's full address as sender.

        Only an agent's own name gets the swarm: nobody is made an agent, or of another swarm.
        """
        payload = dict(message["payload"])
        sender = cast("Mapping[str, Any]", payload["sender"])
        if sender["address_type"] == "agent" and "@" not in sender["address"]:
            payload["sender"] = {
                **sender,
                "address": f"{sender['address']}@{self.local_swarm_name}",
            }
        return {
            "message_id": message["message_id"],
            "source_swarm": message["source_swarm"],
            "target_swarm": message["target_swarm"],
            "timestamp": message["timestamp"],
            "payload": cast("Any", payload),
            "msg_type": message["msg_type"],
            "auth_token": message.get("auth_token"),
            "task_owner": message["task_owner"],
            "task_contributors": list(message["task_contributors"]),
            "metadata": dict(message.get("metadata") or {}),
        }

    def _opened(self) -> "httpx.AsyncClient":
        if self.session is None:
            raise RoutingError(_NOT_OPEN)
        return self.session

    # --- messages as local code has them --------------------------------------------------------

    async def route_message(
        self,
        message: MAILMessage,
        *,
        task_owner: str | None = None,
        task_contributors: Sequence[str] = (),
    ) -> MAILMessage:
        """Deliver a message where its recipients are: to the local handler, and to their swarms.

        Each swarm gets one wrapper with the recipients that it has. Answers are messages of their
        own, which come later.

        Args:
            message: The message. Recipients of other swarms are ``agent@swarm``.
            task_owner: The owner of the task, as ``role:id@swarm``; the sender by default.
            task_contributors: The participants of the task.

        Returns:
            The message, or a response of the system under ``Router Error`` with the reason when
            somebody did not get it.
        """
        owner = task_owner or self._owner(message)
        contributors = list(task_contributors) or [owner]
        parts: dict[str, list[str]] = {}
        for one in recipients_of(cast("Any", message["message"])):
            name, swarm = parse_agent_address(one["address"])
            parts.setdefault(swarm or self.local_swarm_name, []).append(name)
        every = (self._route(message, *part, owner, contributors) for part in parts.items())
        problems = [problem for problem in await asyncio.gather(*every) if problem]
        return self._system_router_message(message, "; ".join(problems)) if problems else message

    async def _route(
        self,
        message: MAILMessage,
        swarm: str,
        agents: Sequence[str],
        owner: str,
        contributors: Sequence[str],
    ) -> str | None:
        """Deliver a message in one swarm, and say what went wrong."""
        try:
            if swarm == self.local_swarm_name:
                await self._route_to_local_agent(message, agents, owner, contributors)
            else:
                await self._route_to_remote_swarm(message, agents, swarm, owner, contributors)
        except MAILError as error:
            _log.warning("a message for swarm %r was not delivered: %s", swarm, error)
            return str(error)
        return None

    async def _route_to_local_agent(
        self,
        message: MAILMessage,
        agents: Sequence[str],
        task_owner: str,
        task_contributors: Sequence[str],
    ) -> None:
        local = self._create_local_message(message, agents)
        wrapper = self._wrapped(local, self.local_swarm_name, task_owner, task_contributors)
        await self._receive(wrapper, direction_to(self.local_swarm_name, task_contributors))

    async def _route_to_remote_swarm(
        self,
        message: MAILMessage,
        agents: Sequence[str],
        swarm: str,
        task_owner: str,
        task_contributors: Sequence[str],
    ) -> None:
        remote = self._create_remote_message(message, agents, swarm)
        wrapper = self._wrapped(remote, swarm, task_owner, task_contributors)
        await self._send(wrapper, direction_to(swarm, task_contributors))

    def convert_local_message_to_interswarm(
        self,
        message: MAILMessage,
        task_owner: str,
        task_contributors: Sequence[str],
        metadata: Mapping[str, Any] | None = None,
    ) -> MAILInterswarmMessage:
        """Wrap a message for the first other swarm among its recipients.

        The wrapper holds the token for that swarm, so it is for sending at once and not for
        keeping. `route_message` serves several swarms.

        Raises:
            RoutingError: all recipients are local.
        """
        others = (swarm for swarm in self._get_target_swarms(message) if swarm)
        target = next((swarm for swarm in others if swarm != self.local_swarm_name), None)
        if target is None:
            raise RoutingError("the message has no recipient in another swarm")
        return self._wrapped(message, target, task_owner, task_contributors, metadata)

    def _wrapped(
        self,
        message: MAILMessage,
        target: str,
        task_owner: str,
        task_contributors: Sequence[str],
        metadata: Mapping[str, Any] | None = None,
    ) -> MAILInterswarmMessage:
        return {
            "message_id": message["id"],
            "source_swarm": self.local_swarm_name,
            "target_swarm": target,
            "timestamp": message["timestamp"],
            "payload": cast("Any", dict(message["message"])),
            "msg_type": cast("Any", message["msg_type"]),
            "auth_token": self._resolve_auth_token_ref(target),
            "task_owner": task_owner,
            "task_contributors": list(task_contributors),
            "metadata": dict(metadata or {}),
        }

    def _convert_interswarm_message_to_local(self, message: MAILInterswarmMessage) -> MAILMessage:
        return {
            "id": message["message_id"],
            "timestamp": message["timestamp"],
            "message": message["payload"],
            "msg_type": message["msg_type"],
        }

    def _get_target_swarms(self, message: MAILMessage) -> list[str]:
        """Return the swarm of each recipient; an empty text for a plain name."""
        every = recipients_of(cast("Any", message["message"]))
        return [parse_agent_address(one["address"])[1] or "" for one in every]

    def _owner(self, message: MAILMessage) -> str:
        sender = message["message"]["sender"]
        name, _ = parse_agent_address(sender["address"])
        return f"{sender['address_type']}:{name}@{self.local_swarm_name}"

    def _create_local_message(
        self, original: MAILMessage, local_recipients: Sequence[str]
    ) -> MAILMessage:
        """Return the message for recipients of the own swarm."""
        return self._addressed(original, local_recipients, self.local_swarm_name)

    def _create_remote_message(
        self, original: MAILMessage, remote_agents: Sequence[str], swarm_name: str
    ) -> MAILMessage:
        """Return the message for recipients of another swarm."""
        names = [f"{name}@{swarm_name}" for name in remote_agents]
        return self._addressed(original, names, swarm_name)

    def _addressed(
        self, original: MAILMessage, addresses: Sequence[str], swarm: str
    ) -> MAILMessage:
        payload: dict[str, Any] = {**original["message"], "sender_swarm": self.local_swarm_name}
        recipients = [create_agent_address(address) for address in addresses]
        if "recipient" in payload:
            payload |= {"recipient": recipients[0], "recipient_swarm": swarm}
        else:
            payload |= {"recipients": recipients, "recipient_swarms": [swarm]}
        return {**original, "message": cast("Any", payload)}

    def _system_router_message(self, message: MAILMessage, reason: str) -> MAILMessage:
        """Return what the system tells a sender whose message was not delivered."""
        payload = cast("Mapping[str, Any]", message["message"])
        ref = next((payload[name] for name in _REFS if name in payload), None)
        if ref is None:
            raise RoutingError(f"unknown message type: '{message['msg_type']}'")
        return {
            "id": self._clock.new_id(),
            "timestamp": self._clock.now(),
            "message": {
                "task_id": payload["task_id"],
                "request_id": ref,
                "sender": create_system_address(self.local_swarm_name),
                "recipient": payload["sender"],
                "subject": "Router Error",
                "body": reason,
                "sender_swarm": self.local_swarm_name,
                "recipient_swarm": self.local_swarm_name,
                "routing_info": {},
            },
            "msg_type": "response",
        }

    # --- messages of users ----------------------------------------------------------------------

    async def post_interswarm_user_message(self, message: MAILInterswarmMessage) -> MAILMessage:
        """Let another swarm run a user's task, and return its answer.

        With ``stream`` in the payload's routing information the answer is read from the stream of
        events.

        Args:
            message: The wrapper; ``auth_token`` is the user's own token for the target swarm. It is
                sent there and nowhere else.

        Raises:
            UnknownSwarm: the registry does not know that swarm (a ValueError, too).
        """
        if _flags(message).get("stream"):
            local = self._convert_interswarm_message_to_local(message)
            stream = await self.stream_interswarm_user_message(message)
            return await self._consume_stream(stream, local, message["target_swarm"])
        answer = (await self.post_user_message(message)).get("response")
        try:
            return parse_message(answer)
        except MAILError as error:
            raise _not_posted(f"the answer is not a message: {error}") from None

    async def post_user_message(self, message: MAILInterswarmMessage) -> dict[str, Any]:
        """Do as `post_interswarm_user_message`, and return the peer's whole answer, unchecked."""
        base_url, token = self._user_target(message)
        body = _user_body(message, token)
        try:
            return await self.access.post_object(
                self._opened(),
                f"{base_url}/interswarm/message",
                body,
                token,
                seconds=_RUN_SECONDS,
                max_bytes=_LARGEST_ANSWER,
            )
        except RoutingError as error:
            raise _failed_to_post(message["target_swarm"], error) from None

    async def stream_interswarm_user_message(
        self, message: MAILInterswarmMessage
    ) -> AsyncGenerator[SSEEvent, None]:
        """Let another swarm run a user's task, and return the events as they happen there.

        When the connection breaks, the stream goes on after the last event that came, as far as
        the peer numbers its events. It ends with the run. Close the iterator to leave early.

        Args:
            message: As in `post_interswarm_user_message`. ``ignore_stream_pings`` in its routing
                information leaves out the ``ping`` events.
        """
        base_url, token = self._user_target(message)
        body = _user_body(message, token) | {"stream": True}
        stream = self._user_stream(base_url, token, body.get("task_id"), _flags(message))
        try:
            await stream.post(f"{base_url}/interswarm/message", to_json(body))
        except RoutingError as error:
            raise _failed_to_post(message["target_swarm"], error) from None
        return stream.events()

    async def follow_interswarm_user_task(
        self, swarm: str, task_id: str, user_token: str, last_event_id: str = "0"
    ) -> AsyncGenerator[SSEEvent, None]:
        """Return the events of a user's task in another swarm after one of them, to its run's end.

        Args:
            swarm: The swarm that runs the task.
            task_id: The task.
            user_token: The user's own token for that swarm.
            last_event_id: The id of the last event that came.
        """
        base_url = _base_url(self._active_endpoint(swarm))
        stream = self._user_stream(base_url, user_token, task_id, {}, last_event_id)
        try:
            await stream.follow()
        except RoutingError as error:
            raise _failed_to_post(swarm, error) from None
        return stream.events()

    def _user_stream(
        self,
        base_url: str,
        token: str,
        task_id: str | None,
        flags: Mapping[str, bool],
        last_event_id: str | None = None,
    ) -> UserStream:
        return UserStream(
            self.access,
            self._opened(),
            base_url,
            token,
            task_id=task_id,
            last_event_id=last_event_id,
            pings=not flags.get("ignore_stream_pings", False),
        )

    def _user_target(self, message: MAILInterswarmMessage) -> tuple[str, str]:
        """Return the address of a user message's swarm, and the user's token there."""
        target = message["target_swarm"]
        if target == self.local_swarm_name:
            raise _not_posted(f"'{target}' is the local swarm; submit the message to it")
        endpoint = self._active_endpoint(target)
        token = message.get("auth_token")
        if not token:
            raise _not_posted("user token is required for interswarm user messages")
        return _base_url(endpoint), token

    async def _consume_stream(
        self,
        response: AsyncGenerator[SSEEvent, None],
        original_message: MAILMessage,
        swarm_name: str,
        *,
        stream_handler: StreamHandler | None = None,
        ignore_stream_pings: bool = False,
    ) -> MAILMessage:
        """Read a stream to its end and return the last message of the task in it.

        Returns:
            That message, or the system's word about what went wrong.
        """
        task_id, last = original_message["message"]["task_id"], None
        reason = "stream ended before a final response was received"
        async with aclosing(response) as events:
            async for event in events:
                if event.event == "ping" and ignore_stream_pings:
                    continue
                if stream_handler is not None:
                    await stream_handler(event.event, event.data)
                if event.event == "new_message":
                    last = _message_in(event, task_id) or last
                elif event.event == "task_error":
                    reason, last = str(data_of(event).get("response", ""))[:_SHOWN], None
        if last is not None:
            return last
        return self._system_router_message(original_message, f"swarm '{swarm_name}': {reason}")


def _base_url(endpoint: SwarmEndpoint) -> str:
    return endpoint["base_url"].rstrip("/")


def _flags(message: MAILInterswarmMessage) -> dict[str, bool]:
    """Return what a user's message says about streaming."""
    payload: object = message["payload"]
    asked = payload.get("routing_info") if isinstance(payload, Mapping) else None
    return {name: bool(asked[name]) for name in _FLAGS if name in asked} if asked else {}


def _user_body(message: MAILInterswarmMessage, token: str) -> dict[str, Any]:
    """Return the body for a peer's ``/interswarm/message``.

    Raises:
        RoutingError: something is missing, or not for that swarm.
    """
    payload, kind = cast("Any", message["payload"]), message["msg_type"]
    if not isinstance(payload, Mapping):
        raise _not_posted("invalid interswarm payload")
    if kind not in ("request", "broadcast"):
        raise _not_posted(f"msg_type '{kind}' is not supported for interswarm user messages")
    if not payload.get("body"):
        raise _not_posted("body is required for interswarm user messages")
    targets = [one["address"] for one in recipients_of(cast("Any", payload))]
    if not targets:
        raise _not_posted("targets are required for interswarm user messages")
    target = message["target_swarm"]
    if any(parse_agent_address(one)[1] not in (None, target) for one in targets):
        raise _not_posted(f"a user's token is for one swarm, and a target is not in '{target}'")
    given = {name: payload[name] for name in _GIVEN if payload.get(name)}
    return {
        "user_token": token,
        "body": payload["body"],
        "targets": targets,
        "msg_type": kind,
        **given,
        **{name: value for name, value in _flags(message).items() if name != "stream"},
    }


def _not_posted(problem: str) -> RoutingError:
    return RoutingError(f"error posting interswarm user message: {problem}")


def _failed_to_post(swarm: str, error: RoutingError) -> RoutingError:
    text = f"failed to post interswarm user message to swarm '{swarm}': {error}"
    return RoutingError(
        f"error posting interswarm user message: {text}",
        status=error.status,
        detail=error.detail,
        told=error.told,
        retry_after=error.retry_after,
    )


def _message_in(event: SSEEvent, task_id: str) -> MAILMessage | None:
    """Return the message that an event reports, when it is of the task."""
    extra = data_of(event).get("extra_data")
    try:
        found = parse_message(extra.get("full_message") if isinstance(extra, dict) else None)
    except MAILError:
        return None
    return found if found["message"]["task_id"] == task_id else None

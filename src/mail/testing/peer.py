"""Other MAIL servers, on loopback: what they answer, and a record of who asked for what."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Self

from mail.clock import SystemClock
from mail.core.addresses import parse_agent_address
from mail.version import get_protocol_version, get_version

if TYPE_CHECKING:
    from aiohttp import web

_OK: Final = 200
_SHUTDOWN_SECONDS: Final = 0.5
_FIELDS: Final = (
    ("message_id", str),
    ("source_swarm", str),
    ("target_swarm", str),
    ("timestamp", str),
    ("payload", dict),
    ("msg_type", str),
    ("auth_token", str),
    ("metadata", dict),
    ("task_owner", str),
    ("task_contributors", list),
)
"""The checks of 1.3.6 on a wrapper, in its order."""


@dataclass(frozen=True, slots=True)
class PeerRequest:
    """A request that a peer got: method, path, lower-case headers and the JSON body, if any."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: Any = None


@dataclass(slots=True, kw_only=True)
class LoopbackPeer:
    """A MAIL server that answers from memory, on a free port of 127.0.0.1::

        async with LoopbackPeer(name="archive") as peer:
            ...  # whatever talks to peer.url
            assert peer.requests[0].path == "/health"

    ``GET /``, ``/health`` and ``/swarms`` answer as a real server's; ``POST /interswarm/forward``
    and ``/interswarm/back`` accept whatever message comes. Change an attribute, and the next
    answer changes.

    Attributes:
        name: The peer's swarm.
        entrypoint: Its entrypoint agent.
        health: The answer of ``/health``.
        swarms: The entries that ``/swarms`` lists; `swarm_entry` makes one.
        failing: A status with which every route answers, or None.
        headers: Headers of every answer.
        delay: Seconds until it answers.
        requests: The requests so far.
    """

    name: str = "peer"
    entrypoint: str = "supervisor"
    health: str = "healthy"
    swarms: Sequence[Mapping[str, Any]] = ()
    failing: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    delay: float = 0.0
    requests: list[PeerRequest] = field(default_factory=list)
    _runner: "web.AppRunner | None" = None
    _port: int = 0

    @property
    def url(self) -> str:
        """The address of the peer."""
        return f"http://127.0.0.1:{self._port}"

    async def __aenter__(self) -> Self:
        from aiohttp import web

        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(app, shutdown_timeout=_SHUTDOWN_SECONDS)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self._port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *raised: object) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _answer(self, request: "web.Request") -> "web.StreamResponse":
        from aiohttp import web

        body = await request.json() if request.can_read_body else None
        headers = {name.lower(): value for name, value in request.headers.items()}
        asked = PeerRequest(request.method, request.path, headers, body)
        self.requests.append(asked)
        await asyncio.sleep(self.delay)
        if self.failing is not None:
            status, answer = self.failing, {"detail": "told to fail"}
        else:
            status, answer = self._answered(asked)
        return web.json_response(answer, status=status, headers=self.headers)

    def _answered(self, asked: PeerRequest) -> tuple[int, dict[str, Any]]:
        known = self._routes(asked.body or {}).get((asked.method, asked.path))
        return (404, {"detail": "Not Found"}) if known is None else (_OK, known)

    def _routes(self, body: Mapping[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
        now = SystemClock().now()
        message = body.get("message") or body
        taken = {
            "swarm": self.name,
            "task_id": (message.get("payload") or {}).get("task_id", ""),
            "status": "success",
            "local_runner": f"swarm:{message.get('source_swarm', '')}@{self.name}",
        }
        about = {
            "name": "mail",
            "version": get_version(),
            "protocol_version": get_protocol_version(),
            "status": "running",
            "swarm": {
                "name": self.name,
                "version": get_version(),
                "description": "a peer for tests",
                "entrypoint": self.entrypoint,
                "keywords": [],
                "public": True,
            },
            "uptime": 1.0,
        }
        return {
            ("GET", "/"): about,
            ("GET", "/health"): {
                "status": self.health,
                "swarm_name": self.name,
                "timestamp": now,
            },
            ("GET", "/swarms"): {"swarms": [dict(swarm) for swarm in self.swarms]},
            ("POST", "/interswarm/forward"): taken,
            ("POST", "/interswarm/back"): taken,
        }

    def swarm_entry(self, **fields: Any) -> dict[str, Any]:
        """Return an entry for ``/swarms`` about this peer, with these fields changed."""
        entry: dict[str, Any] = {
            "swarm_name": self.name,
            "base_url": self.url,
            "version": get_version(),
            "last_seen": None,
            "is_active": True,
            "latency": None,
            "swarm_description": "a peer for tests",
            "keywords": [],
            "metadata": None,
        }
        return entry | fields


@dataclass(slots=True)
class _LegacyTask:
    owner: str
    contributors: list[str]


@dataclass(kw_only=True)
class LegacyPeer(LoopbackPeer):
    """A server of MAIL 1.3.6, as far as other swarms see it.

    It demands a token in the wrapper and an object as metadata, refuses a second forward of a task,
    and takes mail back only for tasks that it knows. It writes when `send` is called, and answers
    requests at once through `reply`.

    Attributes:
        callers: The ids of the callers by their bearer tokens.
        agents: The agents that take mail.
        home: The address of the server that mail goes to.
        home_token: The token for it.
        reply: Returns the body of the answer to a request's payload, or None.
        taken: The wrappers that were accepted.
        failures: Why its own mail was not accepted.
    """

    callers: Mapping[str, str] = field(default_factory=dict)
    agents: Sequence[str] = ("supervisor",)
    home: str = ""
    home_token: str = ""
    reply: Callable[[Mapping[str, Any]], str | None] = lambda payload: None
    taken: list[dict[str, Any]] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    _tasks: dict[tuple[str, str], _LegacyTask] = field(default_factory=dict)
    _replying: set[asyncio.Task[None]] = field(default_factory=set)

    async def __aexit__(self, *raised: object) -> None:
        await asyncio.gather(*self._replying, return_exceptions=True)
        await super().__aexit__(*raised)

    def _answered(self, asked: PeerRequest) -> tuple[int, dict[str, Any]]:
        route = asked.path.removeprefix("/interswarm/")
        if asked.method != "POST" or route not in ("forward", "back"):
            return super()._answered(asked)
        caller = self.callers.get(asked.headers.get("authorization", "").removeprefix("Bearer "))
        if caller is None:
            return 401, {"detail": "invalid token"}
        message: dict[str, Any] = (asked.body or {}).get("message") or {}
        problem = _legacy_problem(message)
        if problem:
            return 400, {"detail": problem}
        runner = f"swarm:{caller}@{self.name}"
        refused = self._take_back(message) if route == "back" else self._take(runner, message)
        if isinstance(refused, str):
            told = f"router failed to receive interswarm message {route}: {refused}"
            refused = (
                500,
                {
                    "detail": f"server failed to receive interswarm {route} message: "
                    f"error routing interswarm message: {told}"
                },
            )
        if refused is not None:
            return refused
        self.taken.append(message)
        self._begin_reply(message)
        return _OK, {
            "swarm": self.name,
            "task_id": message["payload"]["task_id"],
            "status": "success",
            "local_runner": runner,
        }

    def _take_back(self, message: Mapping[str, Any]) -> str | tuple[int, dict[str, Any]] | None:
        """Find the instance that takes mail of a task which goes on, as the server does."""
        task_id = message["payload"]["task_id"]
        if task_id not in {known for _, known in self._tasks}:
            return 400, {"detail": "task is not running"}
        local = (each for each in message["task_contributors"] if each.endswith(f"@{self.name}"))
        runner = next(local, None)
        if runner is None:
            return 404, {"detail": f"no mail instance found for task with id {task_id}"}
        if runner not in {known for known, _ in self._tasks}:
            return 404, {"detail": f"no mail instance found for contributor: {runner}"}
        return self._take(runner, message)

    def _take(self, runner: str, message: Mapping[str, Any]) -> str | None:
        """Do what an instance does with mail; return why it is refused."""
        task_id, owner = message["payload"]["task_id"], message["task_owner"]
        contributors, task = message["task_contributors"], self._tasks.get((runner, task_id))
        if message["target_swarm"] != self.name:
            return f"received interswarm message for wrong swarm: '{message['target_swarm']}'"
        unknown = self._unknown_agent(message["payload"])
        if unknown is not None:
            return f"unknown local agent: '{unknown}'"
        if runner not in contributors and task is not None:
            return f"a task with ID '{task_id}' already exists in swarm memory"
        if runner in contributors and task is None:
            return f"a task with ID '{task_id}' does not exist in swarm memory"
        if task is not None and task.owner != owner:
            return f"task owner mismatch: expected '{task.owner}', got '{owner}'"
        self._tasks[runner, task_id] = _LegacyTask(owner, list(contributors))
        return None

    def _unknown_agent(self, payload: Mapping[str, Any]) -> str | None:
        for one in payload.get("recipients") or [payload["recipient"]]:
            name, swarm = parse_agent_address(one["address"])
            if swarm == self.name and name not in self.agents:
                return name
        return None

    def _begin_reply(self, message: Mapping[str, Any]) -> None:
        payload = message["payload"]
        body = self.reply(payload) if message["msg_type"] == "request" else None
        if body is not None:
            work = asyncio.create_task(self._reply(payload, body))
            self._replying.add(work)
            work.add_done_callback(self._replying.discard)

    async def _reply(self, payload: Mapping[str, Any], body: str) -> None:
        try:
            await self.send(
                payload["task_id"],
                payload["sender"]["address"],
                body,
                sender=parse_agent_address(payload["recipient"]["address"])[0],
                subject=f"Re: {payload['subject']}",
                request_id=payload["request_id"],
            )
        except AssertionError as error:
            self.failures.append(str(error))

    async def send(
        self,
        task_id: str,
        to: str,
        body: str,
        *,
        sender: str = "supervisor",
        subject: str = "Answer",
        kind: str = "response",
        request_id: str | None = None,
    ) -> None:
        """Write to an agent of `home`. A task that is not known yet is one of this peer's own.

        Args:
            task_id: The task.
            to: The recipient, as ``agent@swarm``.
            body: The text.
            sender: The agent that writes.
            subject: The subject; its last word on a task is ``::task_complete::``.
            kind: ``request`` or ``response``.
            request_id: The request that is answered.

        Raises:
            AssertionError: the other server does not accept it.
        """
        swarm, clock = parse_agent_address(to)[1] or "", SystemClock()
        runner, task = self._task(task_id)
        if runner not in task.contributors:
            task.contributors.append(runner)
        goes_back = any(each.endswith(f"@{swarm}") for each in task.contributors)
        payload = {
            "task_id": task_id,
            "request_id": request_id or clock.new_id(),
            "sender": {"address_type": "agent", "address": f"{sender}@{self.name}"},
            "recipient": {"address_type": "agent", "address": to},
            "subject": subject,
            "body": body,
            "sender_swarm": self.name,
            "recipient_swarm": swarm,
            "routing_info": {},
        }
        message = {
            "message_id": clock.new_id(),
            "source_swarm": self.name,
            "target_swarm": swarm,
            "timestamp": clock.now(),
            "payload": payload,
            "msg_type": kind,
            "auth_token": self.home_token,
            "task_owner": task.owner,
            "task_contributors": list(task.contributors),
            "metadata": {},
        }
        await self._post("back" if goes_back else "forward", message)

    async def _post(self, route: str, message: Mapping[str, Any]) -> None:
        from aiohttp import ClientSession

        headers = {
            "Authorization": f"Bearer {self.home_token}",
            "User-Agent": f"MAIL-Interswarm-Router/{self.name}",
        }
        url, body = f"{self.home}/interswarm/{route}", {"message": message}
        async with (
            ClientSession() as session,
            session.post(url, json=body, headers=headers) as answer,
        ):
            if answer.status != _OK:
                raise AssertionError(f"{answer.status}: {await answer.text()}")

    def _task(self, task_id: str) -> tuple[str, _LegacyTask]:
        """Return a task and the instance that has it; a new one is a user's."""
        for (runner, known), task in self._tasks.items():
            if known == task_id:
                return runner, task
        runner = f"user:{self.name}-user@{self.name}"
        return runner, self._tasks.setdefault((runner, task_id), _LegacyTask(runner, []))


def _legacy_problem(message: Mapping[str, Any]) -> str | None:
    """Say what 1.3.6 does not like about a wrapper."""
    if not message:
        return "parameter 'message' is required"
    for name, _ in _FIELDS:
        if name not in message:
            return f"parameter '{name}' is required"
    for name, kind in _FIELDS:
        if not isinstance(message[name], kind):
            got = type(message[name]).__name__
            return f"parameter '{name}' must be a {kind.__name__}, got {got}"
    return None

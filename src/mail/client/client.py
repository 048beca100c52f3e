"""`MAILClient`: one short method per route of the server."""

import json
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote

from mail.client.desk import DeskClient
from mail.client.http import client_errors, query_of, segment
from mail.client.stream import EventStream
from mail.errors import ClientDecodeError, ClientError, ClientHTTPError, ProtocolError
from mail.net.types import (
    UNADDRESSABLE,
    Approval,
    DeleteSwarmResponse,
    GetAdminTasksResponse,
    GetApprovalsResponse,
    GetHealthResponse,
    GetMemoriesResponse,
    GetNodesResponse,
    GetOutboxResponse,
    GetReadyResponse,
    GetRegistryResponse,
    GetRootResponse,
    GetSetAsideResponse,
    GetStatusResponse,
    GetSwarmGraphResponse,
    GetSwarmsDumpResponse,
    GetSwarmsResponse,
    GetTokensResponse,
    GetWebhookResponse,
    GetWhoamiResponse,
    MemoryDetails,
    PostApprovalResponse,
    PostInterswarmBackResponse,
    PostInterswarmForwardResponse,
    PostInterswarmMessageResponse,
    PostMessageAccepted,
    PostMessageResponse,
    PostOutboxRetryResponse,
    PostSetAsideRetryResponse,
    PostSwarmsDiscoverResponse,
    PostSwarmsLoadResponse,
    PostSwarmsResponse,
    PostTokensResponse,
    PostWebhookRetryResponse,
    TaskRecord,
    TokenRecord,
)

if TYPE_CHECKING:
    import aiohttp
    from openai.types.responses import Response

    from mail.config.client import ClientConfig
    from mail.core.wire import MAILInterswarmMessage


class MAILClient(DeskClient):
    """An asynchronous client for one MAIL server; use it as ``async with MAILClient(...)``.

    Every method raises `mail.errors.ClientHTTPError` (a RuntimeError with ``status`` and
    ``detail``) when the request fails, and `mail.errors.ClientDecodeError` (a ValueError) when the
    response is not the expected JSON.
    """

    def __init__(
        self,
        base_url: str | None = None,
        api_key: str | None = None,
        session: "aiohttp.ClientSession | None" = None,
        config: "ClientConfig | None" = None,
        *,
        url: str | None = None,
    ) -> None:
        """Describe the server; nothing is sent before the first call.

        Args:
            base_url: The root URL of the server, ``http`` or ``https``.
            api_key: Sent as ``Authorization: Bearer <api_key>`` with every request.
            session: A session of your own, which the client does not close.
            config: Overrides the ``[client]`` table of ``mail.toml``.
            url: The earlier name of ``base_url``.

        Raises:
            TypeError: both or neither of ``base_url`` and ``url`` are given.
        """
        super().__init__(_either("base_url", base_url, "url", url), api_key, session, config)
        self.user_id = "unknown"
        self.user_role = "unknown"

    async def ping(self) -> GetRootResponse:
        """Return the server's description of itself and its swarm (``GET /``)."""
        return await self._ask(GetRootResponse, "GET", "/")

    async def get_health(self) -> GetHealthResponse:
        """Return the server's health (``GET /health``)."""
        return await self._ask(GetHealthResponse, "GET", "/health")

    async def update_health(self, status: str) -> GetHealthResponse:
        """Set the status that ``GET /health`` reports (``POST /health``; admins only)."""
        return await self._ask(GetHealthResponse, "POST", "/health", {"status": status})

    async def get_ready(self) -> GetReadyResponse:
        """Return whether the server should get work (``GET /health/ready``).

        Raises:
            ClientHTTPError: it should not (503); its text has the reasons.
        """
        return await self._ask(GetReadyResponse, "GET", "/health/ready")

    async def get_nodes(self) -> GetNodesResponse:
        """Return the processes that share the server's store (``GET /nodes``; admins only)."""
        return await self._ask(GetNodesResponse, "GET", "/nodes")

    async def get_status(self) -> GetStatusResponse:
        """Return the state of the swarm and of the caller's instance (``GET /status``)."""
        return await self._ask(GetStatusResponse, "GET", "/status")

    async def get_metrics(self) -> str:
        """Return figures in Prometheus' text format (``GET /metrics``; admins only)."""
        response = await self._open_stream("GET", "/metrics", kinds=("text/plain",))
        async with client_errors(), response:
            return await response.text()

    async def get_whoami(self) -> GetWhoamiResponse:
        """Return who the caller is (``GET /whoami``)."""
        return await self._ask(GetWhoamiResponse, "GET", "/whoami")

    async def login(self, api_key: str) -> GetWhoamiResponse:
        """Switch to another key if the server accepts it; otherwise use no key.

        Returns:
            The caller the key belongs to; also stored in ``user_id`` and ``user_role``.

        Raises:
            ClientHTTPError: the server rejects the key or cannot be reached.
        """
        self.api_key = api_key
        try:
            who = await self.get_whoami()
            if not (isinstance(who.get("id"), str) and isinstance(who.get("role"), str)):
                text = "the response of /whoami contains no id and role"
                raise ClientDecodeError(text)  # noqa: TRY301 - it is a failed login, too
        except ClientError as error:
            self.api_key = None
            raise ClientHTTPError(
                f"MAIL client login failed: {error}",
                status=getattr(error, "status", None),
                detail=getattr(error, "detail", None),
            ) from error
        except BaseException:  # cancelled: the key is not accepted yet
            self.api_key = None
            raise
        self.user_id, self.user_role = who["id"], who["role"]
        return who

    async def post_message(  # noqa: PLR0913 - what a caller may ask for
        self,
        message: str | None = None,
        entrypoint: str | None = None,
        show_events: bool = False,
        *,
        subject: str = "New Message",
        msg_type: str = "request",
        task_id: str | None = None,
        resume_from: str | None = None,
        idempotency_key: str | None = None,
        body: str | None = None,
        **kwargs: Any,
    ) -> PostMessageResponse:
        """Send a message to the swarm and wait for the answer (``POST /message``).

        Args:
            message: The text of the message.
            entrypoint: The agent that receives it; by default the swarm's entrypoint.
            show_events: Also return the task's events.
            subject: The subject of the message.
            msg_type: ``request``, ``response``, ``broadcast`` or ``interrupt``.
            task_id: The task to continue, or the id of a new one.
            resume_from: ``user_response`` or ``breakpoint_tool_call``.
            idempotency_key: A unique text for this request. With it, the client repeats the
                request after a lost connection or a 503 with ``Retry-After``, until
                ``config.timeout`` is over; the server processes it once.
            body: The earlier name of ``message``.
            **kwargs: Further options of the run, for example ``max_steps`` or
                ``breakpoint_tool_call_result``.

        Returns:
            ``response`` (the answer's text), ``events`` (None unless requested), and from servers
            newer than 1.3.6 ``task_id``, ``subject``, ``status`` and ``breakpoints``.

        Raises:
            TypeError: both or neither of ``message`` and ``body`` are given, or ``show_events`` is
                not a bool.
        """
        if not isinstance(show_events, bool):
            raise TypeError("show_events must be a bool; give subject and msg_type by their names")
        payload = {
            "subject": subject,
            "body": _either("message", message, "body", body),
            "msg_type": msg_type,
            "entrypoint": entrypoint,
            "show_events": show_events,
            "task_id": task_id,
            "resume_from": resume_from,
            "kwargs": kwargs,
        }
        return await self._ask(PostMessageResponse, "POST", "/message", payload, idempotency_key)

    async def submit_message(
        self,
        message: str,
        entrypoint: str | None = None,
        *,
        subject: str = "New Message",
        msg_type: str = "request",
        task_id: str | None = None,
        resume_from: str | None = None,
        idempotency_key: str | None = None,
        **kwargs: Any,
    ) -> PostMessageAccepted:
        """Send a message to the swarm without waiting for the answer (``Prefer: respond-async``).

        The arguments are those of `post_message`. `get_task` reads what has become of it, and
        `get_task_events` follows it. Servers of MAIL 1.3.6 answer when the run ends.

        Returns:
            ``task_id`` and ``status``. The message is stored.
        """
        payload = {
            "subject": subject,
            "body": message,
            "msg_type": msg_type,
            "entrypoint": entrypoint,
            "task_id": task_id,
            "resume_from": resume_from,
            "kwargs": kwargs,
        }
        return await self._ask(
            PostMessageAccepted,
            "POST",
            "/message",
            payload,
            idempotency_key,
            headers={"Prefer": "respond-async"},
        )

    async def post_message_stream(  # noqa: PLR0913 - what a caller may ask for
        self,
        message: str | None = None,
        entrypoint: str | None = None,
        *,
        subject: str = "New Message",
        msg_type: str = "request",
        task_id: str | None = None,
        resume_from: str | None = None,
        stream_tokens: bool = False,
        idempotency_key: str | None = None,
        body: str | None = None,
        **kwargs: Any,
    ) -> EventStream:
        """Send a message to the swarm and stream its task's events up to the terminal one.

        Await it, then iterate the result. The arguments are those of `post_message`; with
        ``stream_tokens`` the stream includes model output, as ``model_delta`` events. A broken
        connection is resumed where it broke off (see `mail.client.stream`).

        Returns:
            An async iterator of ``sse_starlette.ServerSentEvent``.
        """
        payload = {
            "subject": subject,
            "body": _either("message", message, "body", body),
            "msg_type": msg_type,
            "entrypoint": entrypoint,
            "stream": True,
            "stream_tokens": stream_tokens or None,
            "task_id": task_id,
            "resume_from": resume_from,
            "kwargs": kwargs,
        }
        key = idempotency_key

        async def again(_: str, after: str) -> "aiohttp.ClientResponse":
            return await self._open_stream("POST", "/message", payload, key, after=after)

        return EventStream(
            await again("", ""),
            self._open_replay if key is None else again,
            task_id=task_id,
            last_event_id=None,
            until_terminal=True,
            reconnect=self.reconnect,
            repeats=key is not None,
        )

    async def get_tasks(
        self, *, events: bool = True, owner: str | None = None
    ) -> dict[str, TaskRecord]:
        """Return the caller's tasks by id, newest first (``GET /tasks``).

        Args:
            events: Whether to get their events, about 1 MiB at most. A record without them has
                ``events_omitted``.
            owner: For admins: whose tasks, as ``user:alice``, or ``swarm:beta`` for a peer's.
        """
        query = {"events": None if events else "false", "owner": owner}
        return await self._ask(dict[str, TaskRecord], "GET", "/tasks", query=query)

    async def get_task(
        self,
        task_id: str,
        *,
        after: int | None = None,
        limit: int | None = None,
        owner: str | None = None,
    ) -> TaskRecord:
        """Return one of the caller's tasks (``GET /task``).

        Args:
            task_id: The task.
            after: Return one page of its events: those with a greater number.
            limit: Return one page of at most so many events.
            owner: For admins: whose task it is, as ``user:alice``.

        Returns:
            Its record; without ``after`` and ``limit`` with all events, read page by page.
        """
        if after is not None or limit is not None:
            return await self._get_task_page(task_id, after or 0, limit, owner)
        task, last = await self._get_task_page(task_id, owner=owner), -1
        while (following := task.get("next_after")) is not None:  # servers of 1.3.6 send them all
            if following <= last:
                raise ClientDecodeError("the pages of the task's events do not come to an end")
            last = following
            page = await self._get_task_page(task_id, last, owner=owner)
            page["events"] = task["events"] + page["events"]
            task = page
        return task

    async def _get_task_page(
        self, task_id: str, after: int = 0, limit: int | None = None, owner: str | None = None
    ) -> TaskRecord:
        query = {"after": after or None, "limit": limit or None, "owner": owner or None}
        return await self._ask(TaskRecord, "GET", "/task", {"task_id": task_id}, query=query)

    async def get_task_events(
        self, task_id: str, last_event_id: str | int | None = None, *, owner: str | None = None
    ) -> EventStream:
        """Replay a task's events, then follow it while it runs (``GET /tasks/{task_id}/events``).

        Args:
            task_id: One of the caller's tasks.
            last_event_id: Only events after this one.
            owner: For admins: whose task it is, as ``user:alice``.

        Returns:
            An async iterator of ``sse_starlette.ServerSentEvent``.
        """
        last = None if last_event_id is None else str(last_event_id)
        replay = partial(self._open_replay, owner=owner)
        return EventStream(
            await replay(task_id, last or ""),
            replay,
            task_id=task_id,
            last_event_id=last,
            until_terminal=False,
            reconnect=self.reconnect,
        )

    async def cancel_task(self, task_id: str, *, owner: str | None = None) -> TaskRecord:
        """Cancel a task (``POST /tasks/{task_id}/cancel``); return its record without events.

        Args:
            task_id: The task.
            owner: For admins: whose task it is, as ``user:alice``.
        """
        return await self._ask(
            TaskRecord, "POST", f"{_task(task_id)}/cancel", query={"owner": owner}
        )

    async def get_set_aside(
        self, task_id: str, *, after: int = 0, limit: int = 50, owner: str | None = None
    ) -> GetSetAsideResponse:
        """Return a page of a task's mail that was set aside (``GET /tasks/{task_id}/set-aside``).

        Args:
            task_id: The task.
            after: Only mail with a greater number: the ``next_after`` of the previous page.
            limit: The size of the page, 50 at most.
            owner: For admins: whose task it is, as ``user:alice``.
        """
        query = {"after": after, "limit": limit, "owner": owner}
        path = f"{_task(task_id)}/set-aside"
        return await self._ask(GetSetAsideResponse, "GET", path, query=query)

    async def retry_set_aside(
        self, task_id: str, number: int, *, owner: str | None = None
    ) -> PostSetAsideRetryResponse:
        """Try a message again that was set aside; the task goes on.

        It is ``POST /tasks/{task_id}/set-aside/{number}/retry``.

        Args:
            task_id: The task.
            number: The ``id`` of the message.
            owner: For admins: whose task it is, as ``user:alice``.
        """
        return await self._ask(
            PostSetAsideRetryResponse,
            "POST",
            f"{_task(task_id)}/set-aside/{number}/retry",
            query={"owner": owner},
        )

    async def discard_set_aside(
        self, task_id: str, number: int, *, owner: str | None = None
    ) -> None:
        """Give a message up that was set aside (``DELETE /tasks/{task_id}/set-aside/{number}``).

        Args:
            task_id: The task.
            number: The ``id`` of the message.
            owner: For admins: whose task it is, as ``user:alice``.
        """
        path = f"{_task(task_id)}/set-aside/{number}{query_of({'owner': owner})}"
        await self._request("DELETE", path, empty=True)

    async def get_approvals(
        self,
        status: str = "open",
        *,
        task_id: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> GetApprovalsResponse:
        """Return a page of the calls that wait for a person, newest first (``GET /approvals``).

        Args:
            status: Only with this status; ``all`` for any.
            task_id: Only of this task.
            limit: The size of the page.
            cursor: The ``next_cursor`` of the page before.
        """
        given = {"status": status, "task_id": task_id, "limit": limit, "cursor": cursor}
        return await self._ask(GetApprovalsResponse, "GET", "/approvals", query=given)

    async def get_approval(self, approval_id: str) -> Approval:
        """Return one call that waits for a person (``GET /approvals/{approval_id}``)."""
        path = f"/approvals/{segment(approval_id)}"
        return await self._ask(Approval, "GET", path)

    async def stream_approvals(self, last_event_id: str | int | None = None) -> EventStream:
        """Follow what is opened and closed (``GET /approvals/events``); it goes on until you leave.

        Await it, then iterate the result. It begins with what is open. The events are
        ``approval_opened`` and ``approval_closed``; the approval is ``extra_data`` in their data.

        Args:
            last_event_id: Begin after this event instead.
        """
        last = None if last_event_id is None else str(last_event_id)

        async def follow(_: str, last: str) -> "aiohttp.ClientResponse":
            return await self._open_stream("GET", "/approvals/events", after=last)

        return EventStream(
            await follow("", last or ""),
            follow,
            task_id="approvals",
            last_event_id=last,
            until_terminal=False,
            reconnect=self.reconnect,
        )

    async def answer_approval(
        self,
        approval_id: str,
        type: Literal["accept", "edit", "ignore", "response"],
        args: dict[str, Any] | str | None = None,
        *,
        request_id: str | None = None,
    ) -> PostApprovalResponse:
        """Answer a call (``POST /approvals/{approval_id}``); it is run in the background.

        Args:
            approval_id: The id of the approval.
            type: The kind of answer.
            args: For an edit ``{"action": …, "args": {…}}``, for a response the text.
            request_id: An idempotency key. With it, the client repeats the request after a lost
                connection; without, an answer that was stored is a 409 when it is given again.
        """
        path = f"/approvals/{segment(approval_id)}"
        payload = {"type": type, "args": args}
        return await self._ask(PostApprovalResponse, "POST", path, payload, request_id)

    async def delete_task(self, task_id: str, *, cancel: bool = False) -> None:
        """Delete a task with all that is stored of it (``DELETE /tasks/{task_id}``).

        Args:
            task_id: The task.
            cancel: Cancel it first if it is running; without that a running task is 409.
        """
        query = "?cancel=true" if cancel else ""
        if UNADDRESSABLE.search(task_id):  # the request would discard mail of another task
            raise ProtocolError(f"cannot delete '{task_id}': its path is of something else")
        await self._request("DELETE", _task(task_id) + query, empty=True)

    async def get_admin_tasks(
        self,
        *,
        status: str | None = None,
        owner: str | None = None,
        q: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> GetAdminTasksResponse:
        """Return a page of the tasks of all callers (``GET /admin/tasks``; admins only).

        Args:
            status: Only tasks in this state.
            owner: Only tasks of this caller, as ``user:alice``.
            q: Only tasks whose title, id or owner has all of these words.
            limit: The size of the page, 200 at most.
            cursor: The ``next_cursor`` of the previous page.
        """
        given = {"status": status, "owner": owner, "q": q, "limit": limit, "cursor": cursor}
        return await self._ask(GetAdminTasksResponse, "GET", "/admin/tasks", query=given)

    async def get_tokens(self, *, limit: int = 100, cursor: str | None = None) -> GetTokensResponse:
        """Return a page of the access tokens (``GET /tokens``; admins only)."""
        return await self._ask(
            GetTokensResponse, "GET", "/tokens", query={"limit": limit, "cursor": cursor}
        )

    async def create_token(
        self,
        role: str,
        id: str,
        *,
        label: str = "",
        days: float | None = None,
        participant: bool = False,
    ) -> PostTokensResponse:
        """Make an access token, which only this answer has (``POST /tokens``; admins only).

        Args:
            role: ``user``, ``admin`` or ``agent``.
            id: The caller's id.
            label: A note for people.
            days: The days until it expires; never by default.
            participant: With the role ``agent``: it is the token of a participant.
        """
        payload = {
            "role": role,
            "id": id,
            "label": label,
            "days": days,
            "participant": participant or None,
        }
        return await self._ask(PostTokensResponse, "POST", "/tokens", payload)

    async def revoke_token(self, prefix: str) -> TokenRecord:
        """Revoke an access token by the beginning of its hash (``DELETE /tokens/{prefix}``).

        Admins only.
        """
        return await self._ask(TokenRecord, "DELETE", f"/tokens/{quote(prefix, safe='')}")

    async def get_swarm_graph(self) -> GetSwarmGraphResponse:
        """Return the agents, who may write to whom, and their work (``GET /swarm/graph``)."""
        return await self._ask(GetSwarmGraphResponse, "GET", "/swarm/graph")

    async def get_memories(self) -> GetMemoriesResponse:
        """Return the caller's named memories (``GET /memories``)."""
        return await self._ask(GetMemoriesResponse, "GET", "/memories")

    async def get_memory(self, name: str) -> MemoryDetails:
        """Return a memory with its versions and feedback (``GET /memories/{name}``)."""
        return await self._ask(MemoryDetails, "GET", _memory(name))

    async def put_memory(
        self,
        name: str,
        value: str | None = None,
        *,
        restore: int | None = None,
        expected_version: int | None = None,
    ) -> MemoryDetails:
        """Give a memory another text, or that of an earlier version (``PUT /memories/{name}``).

        Args:
            name: The memory; it need not be there.
            value: Its new text.
            restore: The version whose text it gets again, in place of ``value``; 0 is the default.
            expected_version: The newest version that the caller knows; with another one it is 409.
        """
        body = {"value": value, "restore": restore, "expected_version": expected_version}
        return await self._ask(MemoryDetails, "PUT", _memory(name), body)

    async def delete_memory(self, name: str) -> None:
        """Delete a memory with its versions and feedback (``DELETE /memories/{name}``)."""
        await self._request("DELETE", _memory(name), empty=True)

    async def get_swarms(self) -> GetSwarmsResponse:
        """Return the public swarms that the server knows (``GET /swarms``)."""
        return await self._ask(GetSwarmsResponse, "GET", "/swarms")

    async def register_swarm(
        self,
        name: str,
        base_url: str,
        *,
        auth_token: str | None = None,
        volatile: bool | None = None,
        metadata: dict[str, Any] | None = None,
        public_key: str | dict[str, Any] | None = None,
    ) -> PostSwarmsResponse:
        """Register a remote swarm with the server (``POST /swarms``; admins only).

        Of one that is registered already, what is left out stays as it is.

        Args:
            name: The remote swarm's name.
            base_url: The base URL of its server.
            auth_token: The bearer token the server uses to call the remote swarm.
            volatile: Discard the registration when the server stops: by default, if it is new.
            metadata: Any further data to store with it.
            public_key: The key with which it must sign its mail: a JSON Web Key, or the thumbprint
                of one that its server shows. All that its server shows now by default.
        """
        payload = {
            "name": name,
            "base_url": base_url,
            "volatile": volatile,
            "auth_token": auth_token,
            "metadata": metadata,
            "public_key": public_key,
        }
        return await self._ask(PostSwarmsResponse, "POST", "/swarms", payload)

    async def unregister_swarm(
        self, name: str, *, cancel_tasks: bool = False
    ) -> DeleteSwarmResponse:
        """Remove a swarm, or its proposal, from the server's registry (``DELETE /swarms/{name}``).

        Admins only.

        Args:
            name: The swarm.
            cancel_tasks: Cancel the tasks that it has open there; without that they go on.
        """
        query = "?cancel_tasks=true" if cancel_tasks else ""
        return await self._ask(
            DeleteSwarmResponse, "DELETE", f"/swarms/{quote(name, safe='')}{query}"
        )

    async def get_swarm_registry(self) -> GetRegistryResponse:
        """Return all swarms that the server knows (``GET /swarms/registry``; admins only)."""
        return await self._ask(GetRegistryResponse, "GET", "/swarms/registry")

    async def discover_swarms(self, discovery_urls: Sequence[str]) -> PostSwarmsDiscoverResponse:
        """Let the server propose the swarms that others list (``POST /swarms/discover``).

        Admins only.

        Args:
            discovery_urls: The base URLs of MAIL servers.
        """
        payload = {"discovery_urls": list(discovery_urls)}
        return await self._ask(PostSwarmsDiscoverResponse, "POST", "/swarms/discover", payload)

    async def accept_swarm(self, name: str) -> PostSwarmsResponse:
        """Register a proposed swarm (``POST /swarms/{name}/accept``; admins only)."""
        return await self._ask(PostSwarmsResponse, "POST", f"/swarms/{quote(name, safe='')}/accept")

    async def dump_swarm(self) -> GetSwarmsDumpResponse:
        """Write the swarm template to the server's log (``GET /swarms/dump``; admins only)."""
        return await self._ask(GetSwarmsDumpResponse, "GET", "/swarms/dump")

    async def load_swarm_from_json(self, swarm_json: str) -> PostSwarmsLoadResponse:
        """Replace the server's swarm template (``POST /swarms/load``; admins only).

        Args:
            swarm_json: The definition of one swarm, as JSON text.
        """
        return await self._ask(PostSwarmsLoadResponse, "POST", "/swarms/load", {"json": swarm_json})

    async def send_interswarm_message(  # noqa: PLR0913 - the documented signature
        self,
        body: str,
        user_token: str,
        subject: str | None = None,
        targets: list[str] | None = None,
        msg_type: str | None = None,
        task_id: str | None = None,
        routing_info: dict[str, Any] | None = None,
        stream: bool | None = None,
        ignore_stream_pings: bool | None = None,
    ) -> PostInterswarmMessageResponse:
        """Send a message to agents of other swarms (``POST /interswarm/message``).

        Args:
            body: The message.
            user_token: The token to send to the other swarm.
            subject: Its subject.
            targets: Addresses like ``agent@swarm``; exactly one for a request.
            msg_type: ``request`` or ``broadcast``.
            task_id: The task to continue, or the id of a new one.
            routing_info: Routing hints.
            stream: Ask the other swarm to stream, and read the stream to its end; see
                `stream_interswarm_message` for the events as they come.
            ignore_stream_pings: Omit its heartbeats.

        Returns:
            ``response`` (the final message of the run) and, of a stream, ``events``.

        Raises:
            ClientHTTPError: also when the streamed run fails.
        """
        payload = {
            "body": body,
            "user_token": user_token,
            "subject": subject,
            "targets": targets,
            "msg_type": msg_type,
            "task_id": task_id,
            "routing_info": routing_info,
            "ignore_stream_pings": ignore_stream_pings,
        }
        if stream:
            return await _collected(await self._open_interswarm_stream(payload))
        payload["stream"] = stream
        return await self._ask(
            PostInterswarmMessageResponse, "POST", "/interswarm/message", payload
        )

    async def stream_interswarm_message(  # noqa: PLR0913 - as of `send_interswarm_message`
        self,
        body: str,
        user_token: str,
        subject: str | None = None,
        targets: list[str] | None = None,
        msg_type: str | None = None,
        task_id: str | None = None,
        routing_info: dict[str, Any] | None = None,
        ignore_stream_pings: bool | None = None,
    ) -> EventStream:
        """Send a message to agents of another swarm and stream the events of its run.

        Await it, then iterate the result. The arguments are those of `send_interswarm_message`. A
        broken connection is resumed where it broke off.

        Returns:
            An async iterator of ``sse_starlette.ServerSentEvent``.
        """
        return await self._open_interswarm_stream(
            {
                "body": body,
                "user_token": user_token,
                "subject": subject,
                "targets": targets,
                "msg_type": msg_type,
                "task_id": task_id,
                "routing_info": routing_info,
                "ignore_stream_pings": ignore_stream_pings,
            }
        )

    async def _open_interswarm_stream(self, payload: dict[str, Any]) -> EventStream:
        """Post a message that is answered with a stream; a repeat after an event posts nothing."""

        async def post(task_id: str, last_event_id: str) -> "aiohttp.ClientResponse":
            known = {"task_id": task_id} if task_id else {}
            return await self._open_stream(
                "POST",
                "/interswarm/message",
                {**payload, **known, "stream": True},
                after=last_event_id,
                kinds=("text/event-stream", "application/json"),  # MAIL 1.3.6 answers with JSON
            )

        return EventStream(
            await post("", ""),
            post,
            task_id=payload.get("task_id"),
            last_event_id=None,
            until_terminal=True,
            reconnect=self.reconnect,
        )

    async def post_interswarm_message(
        self, message: "MAILInterswarmMessage"
    ) -> PostInterswarmForwardResponse:
        """Start a task as another swarm (``POST /interswarm/forward``; role ``agent``)."""
        return await self._ask(
            PostInterswarmForwardResponse, "POST", "/interswarm/forward", {"message": message}
        )

    async def post_interswarm_response(
        self, message: "MAILInterswarmMessage"
    ) -> PostInterswarmBackResponse:
        """Deliver another swarm's response (``POST /interswarm/back``; role ``agent``)."""
        return await self._ask(
            PostInterswarmBackResponse, "POST", "/interswarm/back", {"message": message}
        )

    async def get_outbox(
        self, peer: str | None = None, *, after: int = 0, limit: int = 100
    ) -> GetOutboxResponse:
        """Return a page of the mail for other swarms that is not done with (``GET /outbox``).

        Admins only.

        Args:
            peer: Only mail for this swarm.
            after: Only mail with a greater number: the ``next_after`` of the previous page.
            limit: The size of the page.
        """
        return await self._ask(
            GetOutboxResponse,
            "GET",
            "/outbox",
            query={"peer": peer, "after": after, "limit": limit},
        )

    async def retry_outbox(self, number: int) -> PostOutboxRetryResponse:
        """Have mail for another swarm delivered again now (``POST /outbox/{number}/retry``).

        Admins only.

        Args:
            number: The ``id`` of the mail. It may also be ``dead``.
        """
        return await self._ask(PostOutboxRetryResponse, "POST", f"/outbox/{number}/retry")

    async def discard_outbox(self, number: int) -> None:
        """Remove mail for another swarm that was given up (``DELETE /outbox/{number}``).

        Admins only.

        Args:
            number: The ``id`` of the mail. It must be ``dead``.
        """
        await self._request("DELETE", f"/outbox/{number}", empty=True)

    async def get_webhook(self, *, after: int = 0, limit: int = 100) -> GetWebhookResponse:
        """Return the webhook, and a page of what it has not taken (``GET /webhook``).

        Admins only.

        Args:
            after: Only messages with a greater number: the ``next_after`` of the previous page.
            limit: The size of the page.
        """
        return await self._ask(
            GetWebhookResponse, "GET", "/webhook", query={"after": after, "limit": limit}
        )

    async def retry_webhook(self, number: int) -> PostWebhookRetryResponse:
        """Have a message to the webhook sent again now (``POST /webhook/{number}/retry``).

        Admins only.

        Args:
            number: The ``id`` of the message. It may also be ``dead``.
        """
        return await self._ask(PostWebhookRetryResponse, "POST", f"/webhook/{number}/retry")

    async def discard_webhook(self, number: int) -> None:
        """Remove a message to the webhook (``DELETE /webhook/{number}``). Admins only.

        Args:
            number: The ``id`` of the message.
        """
        await self._request("DELETE", f"/webhook/{number}", empty=True)

    async def _open_replay(
        self, task_id: str, last_event_id: str, owner: str | None = None
    ) -> "aiohttp.ClientResponse":
        path = f"{_task(task_id)}/events{query_of({'owner': owner})}"
        return await self._open_stream("GET", path, after=last_event_id)

    async def debug_post_responses(
        self,
        input: str | Sequence[Any],
        tools: Sequence[dict[str, Any]] = (),
        instructions: str | None = None,
        previous_response_id: str | None = None,
        tool_choice: str | dict[str, Any] | None = None,
        parallel_tool_calls: bool | None = None,
        *,
        idempotency_key: str | None = None,
        **kwargs: Any,
    ) -> "Response":
        """Call the swarm like OpenAI's ``responses.create`` (``POST /responses``).

        Args:
            input: Text, or input items; ``function_call_output`` items resume.
            tools: Functions that the caller runs.
            instructions: Appended to the entrypoint's own system prompt.
            previous_response_id: The newest response of the conversation to continue.
            tool_choice: The functions that may or must be called.
            parallel_tool_calls: Whether the model may call several at once.
            idempotency_key: As in `post_message`.
            **kwargs: Further fields of the request, for example ``metadata`` or ``store``.

        Raises:
            ClientHTTPError: the request failed, or the server is not in debug mode (404).
            ClientDecodeError: the body is not an OpenAI response.
        """
        from openai.types.responses import Response
        from pydantic import ValidationError

        payload = {
            "input": input if isinstance(input, str) else list(input),
            "tools": list(tools),
            "instructions": instructions,
            "previous_response_id": previous_response_id,
            "tool_choice": tool_choice,
            "parallel_tool_calls": parallel_tool_calls,
            **kwargs,
        }
        answer = await self._request("POST", "/responses", payload, idempotency_key)
        try:
            if isinstance(answer, str):  # 1.3.6 sends the object as JSON text
                return Response.model_validate_json(answer)
            return Response.model_validate(answer)
        except ValidationError as error:
            raise ClientDecodeError(f"expected a response in OpenAI's format: {error}") from error


def _task(task_id: str) -> str:
    return f"/tasks/{segment(task_id)}"


def _memory(name: str) -> str:
    return f"/memories/{quote(name, safe='')}"


def _either(name: str, value: str | None, alias: str, other: str | None) -> str:
    """Return the one that is given of a parameter and its earlier name."""
    if value is not None and other is not None:
        raise TypeError(f"give either '{name}' or '{alias}', its earlier name, not both")
    given = value if value is not None else other
    if given is None:
        raise TypeError(f"missing argument '{name}'")
    return given


async def _collected(stream: EventStream) -> PostInterswarmMessageResponse:
    """Read a stream to its end; return its events, and the last message among them.

    Raises:
        ClientHTTPError: the run failed.
        ClientDecodeError: an event is not JSON.
    """
    events: list[Any] = []
    response: Any = None
    async with stream:
        async for event in stream:
            try:
                data = json.loads(event.data or "{}")
            except ValueError as error:
                raise ClientDecodeError(f"an event of the stream is not JSON: {error}") from error
            data = data if isinstance(data, dict) else {}
            events.append({"event": event.event, "id": event.id, "retry": None, "data": data})
            extra = data.get("extra_data")
            if event.event == "new_message" and isinstance(extra, dict):
                response = extra.get("full_message")
            if event.event == "task_error":
                reason = data.get("response") or "the run failed"
                raise ClientHTTPError(f"MAIL client request failed: {reason}", detail=reason)
    return {"response": response, "events": events}

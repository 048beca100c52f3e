"""`InterswarmRouter`: what a peer is sent, what is refused, and what comes back."""

import asyncio
import copy
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from mail.core.wire import MAILInterswarmMessage
from mail.egress.rules import EgressPolicy
from mail.errors import RoutingError, UnknownSwarm
from mail.net import InterswarmRouter, SwarmRegistry
from mail.net.peers import PeerAccess
from mail.net.sse import SSEEvent
from mail.testing import LegacyPeer, LoopbackPeer
from tests.net.kit import HERE, OWNER, message, routing, wrapper

FIELDS = [
    "message_id",
    "source_swarm",
    "target_swarm",
    "timestamp",
    "payload",
    "msg_type",
    "auth_token",
    "task_owner",
    "task_contributors",
    "metadata",
]


async def test_the_router_starts_and_stops(tmp_path: Path) -> None:
    registry = SwarmRegistry("alpha", HERE, str(tmp_path / "r.json"))
    router = InterswarmRouter(registry, "alpha")
    assert (router.session, router.message_handlers) == (None, {})
    assert not await router.is_running()
    await router.start()
    session = router.session
    await router.start()
    assert router.session is session
    assert await router.is_running()
    await router.stop()
    await router.stop()
    assert not await router.is_running()
    assert router.get_routing_stats() == {
        "local_swarm_name": "alpha",
        "total_endpoints": 1,
        "active_endpoints": 1,
        "registered_handlers": [],
    }


@pytest.mark.parametrize("direction", ["forward", "back"])
async def test_mail_is_posted_in_its_wrapper(tmp_path: Path, direction: str) -> None:
    async with LoopbackPeer(name="beta") as peer, routing(tmp_path, peer) as router:
        mail = wrapper()
        before = copy.deepcopy(mail)
        send = {
            "forward": router.send_interswarm_message_forward,
            "back": router.send_interswarm_message_back,
        }
        await send[direction](mail)
        posted = peer.requests[-1]
        assert (posted.method, posted.path) == ("POST", f"/interswarm/{direction}")
        assert posted.headers["authorization"] == "Bearer tok"
        assert posted.headers["content-type"] == "application/json"
        assert posted.headers["user-agent"] == "MAIL-Interswarm-Router/alpha"
        told = posted.body["message"]
        assert list(told) == FIELDS
        assert (told["auth_token"], told["metadata"]) == ("tok", {})
        assert told["payload"]["sender"]["address"] == "guide@alpha"
        assert mail == before
        assert "auth_token" not in mail


async def test_a_payload_is_copied_and_nobody_becomes_an_agent(tmp_path: Path) -> None:
    async with LoopbackPeer(name="beta") as peer, routing(tmp_path, peer) as router:
        mail = wrapper()
        payload: Any = mail["payload"]
        for sender, sent in (
            ({"address_type": "agent", "address": "guide"}, "guide@alpha"),
            ({"address_type": "agent", "address": "guide@gamma"}, "guide@gamma"),
            ({"address_type": "user", "address": "ines"}, "ines"),
        ):
            payload["sender"] = sender
            await router.send_interswarm_message_forward(mail)
            assert payload["sender"] is sender
            told = peer.requests[-1].body["message"]["payload"]["sender"]
            assert told == {**sender, "address": sent}


@asynccontextmanager
async def serving(
    answer: Callable[[web.Request], Awaitable[web.StreamResponse]],
) -> AsyncIterator[str]:
    """Serve a function on loopback."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def know(router: InterswarmRouter, url: str, token: str | None = "tok", **fields: Any) -> None:
    """Let the router's registry know beta, without asking it."""
    registry = router.swarm_registry
    assert isinstance(registry, SwarmRegistry)
    own = registry.endpoints["alpha"]
    registry.endpoints["beta"] = {
        **own,
        "swarm_name": "beta",
        "base_url": url,
        "auth_token_ref": token,
        "volatile": True,
        **fields,  # type: ignore[typeddict-item]
    }


@pytest.mark.parametrize("direction", ["forward", "back"])
async def test_what_cannot_be_sent_says_why(tmp_path: Path, direction: str) -> None:
    async with routing(tmp_path) as router:
        send = getattr(router, f"send_interswarm_message_{direction}")
        with pytest.raises(UnknownSwarm, match=r"^unknown swarm endpoint: 'beta'$"):
            await send(wrapper())
        know(router, "http://127.0.0.1:9", is_active=False)
        with pytest.raises(RoutingError, match=r"^swarm 'beta' is not active$"):
            await send(wrapper())
        know(router, "http://127.0.0.1:9", token=None)
        with pytest.raises(ValueError, match=r"^authentication token missing for swarm 'beta'$"):
            await send(wrapper())
        know(router, "http://127.0.0.1:9")
        failed = f"router failed to send interswarm message {direction}"
        with pytest.raises(
            RoutingError, match=rf"^{failed}: {failed} to swarm 'beta': the connection failed$"
        ):
            await send(wrapper())
        await router.stop()
        with pytest.raises(RoutingError, match=r"^HTTP client session is not open$"):
            await send(wrapper())


async def test_a_token_of_the_payload_serves_where_the_registry_has_none(tmp_path: Path) -> None:
    async with LoopbackPeer(name="beta") as peer, routing(tmp_path) as router:
        know(router, peer.url, token=None)
        mail: MAILInterswarmMessage = {**wrapper(), "auth_token": "own"}
        await router.send_interswarm_message_forward(mail)
        assert peer.requests[-1].headers["authorization"] == "Bearer own"
        know(router, peer.url)
        await router.send_interswarm_message_forward(mail)
        assert peer.requests[-1].headers["authorization"] == "Bearer tok"
        assert peer.requests[-1].body["message"]["auth_token"] == "tok"


@pytest.mark.parametrize(
    ("status", "permanent"),
    [
        *((status, True) for status in (400, 401, 404, 413)),
        *((status, False) for status in (307, 408, 425, 429, 500, 502, 503)),
    ],
)
async def test_a_refusal_carries_status_reason_and_detail(
    tmp_path: Path, status: int, *, permanent: bool
) -> None:
    async with LoopbackPeer(name="beta") as peer, routing(tmp_path, peer) as router:
        peer.failing, peer.headers = status, {"Retry-After": "7"}
        with pytest.raises(RoutingError) as caught:
            await router.send_interswarm_message_forward(wrapper())
        failed = "router failed to send interswarm message forward"
        assert re.match(
            rf"{failed}: {failed} to swarm 'beta': HTTP status code {status}, reason '.+': told",
            str(caught.value),
        )
        assert (caught.value.status, caught.value.detail) == (status, "told to fail")
        assert caught.value.retry_after == 7
        assert caught.value.is_permanent is permanent
        assert "tok" not in str(caught.value).replace("told", "")


async def test_a_token_that_a_peer_repeats_is_blotted_out(tmp_path: Path) -> None:
    """In its ``detail``, at the place where that is cut, and in the words beside its status."""
    token = "a-token-with-nothing-special"

    async def answer(request: web.Request) -> web.StreamResponse:
        told = request.headers["Authorization"].removeprefix("Bearer ")
        detail = f"{told} is wrong{' ' * 451}{told}"  # of which 500 characters are kept
        return web.json_response({"detail": detail}, status=401, reason=f"Not {told}")

    async with serving(answer) as url, routing(tmp_path) as router:
        know(router, url, token)
        asked: MAILInterswarmMessage = {**user_message(), "auth_token": token}
        for send in (
            router.deliver(wrapper(), "forward"),
            router.send_interswarm_message_back(wrapper()),
            router.post_user_message(asked),
            router.stream_interswarm_user_message(asked),
            router.follow_interswarm_user_task("beta", "trip", token),
        ):
            with pytest.raises(RoutingError) as caught:
                await send
            assert "status code 401, reason 'Unauthorized': [redacted] is wrong" in str(
                caught.value
            )
            assert "a-token" not in str(caught.value) + caught.value.detail


ANSWERS: dict[str, Callable[[], web.Response]] = {
    "no JSON": lambda: web.Response(text="<html>login</html>"),
    "no object": lambda: web.json_response([]),
    "too large": lambda: web.Response(body=b"{" + b" " * 70_000 + b"}"),
    "a bad date": lambda: web.Response(status=503, headers={"Retry-After": "soon"}),
    "a date": lambda: web.Response(
        status=503, headers={"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}
    ),
    "a huge number": lambda: web.Response(status=503, headers={"Retry-After": "9" * 5000}),
    "a large error": lambda: web.Response(status=500, body=b"x" * 5_000_000),
    "a secret": lambda: web.json_response({"detail": "Bearer abcdefghijklmnop\x1b[2J"}, status=400),
    "no text": lambda: web.json_response({"detail": [{"loc": 1}]}, status=422),
}


@pytest.mark.parametrize("kind", ANSWERS)
async def test_odd_answers_are_errors_of_the_peer(tmp_path: Path, kind: str) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        return ANSWERS[kind]()

    async with serving(answer) as url, routing(tmp_path) as router:
        know(router, url)
        with pytest.raises(RoutingError) as caught:
            await router.deliver(wrapper(), "forward")
    text = str(caught.value)
    assert len(text) < 700
    assert "abcdefghijklmnop" not in text
    assert text.isprintable()
    if kind == "a date":
        assert caught.value.retry_after == 0
    if kind == "a bad date":
        assert caught.value.retry_after is None


async def test_addresses_are_checked_when_the_connection_is_made(tmp_path: Path) -> None:
    answers = [["127.0.0.1"], ["127.0.0.2"]]
    access = PeerAccess(EgressPolicy(("127.0.0.1",)), "the setting", lambda *_: answers.pop(0))
    async with LoopbackPeer(name="beta") as peer:
        registry = SwarmRegistry("alpha", HERE, str(tmp_path / "r.json"), access=access)
        router = InterswarmRouter(registry, "alpha")
        know(router, peer.url.replace("127.0.0.1", "beta.example"))
        await router.start()
        await router.deliver(wrapper(), "forward")
        await router.stop()
        await router.start()  # the second answer of the resolver leads elsewhere
        with pytest.raises(RoutingError) as caught:
            await router.deliver(wrapper(), "forward")
        assert "127.0.0.2 (from 'beta.example') is a loopback address" in str(caught.value)
        assert "the setting allows loopback" in str(caught.value)
        assert [one.path for one in peer.requests] == ["/interswarm/forward"]
        await router.stop()
        await registry.aclose()


# --- mail that came in --------------------------------------------------------------------------


@pytest.mark.parametrize("direction", ["forward", "back"])
async def test_mail_of_peers_goes_to_the_local_handler(tmp_path: Path, direction: str) -> None:
    async with routing(tmp_path) as router:
        receive = getattr(router, f"receive_interswarm_message_{direction}")
        mine = wrapper("guide@alpha")
        with pytest.raises(RoutingError, match=r"^no local message handler registered$"):
            await receive(mine)
        taken = []

        async def take(mail: MAILInterswarmMessage) -> None:
            if mail["payload"]["body"] == "bad":
                raise KeyError("oops")
            taken.append(mail)

        router.register_message_handler("local_message_handler", take)
        await receive(mine)
        assert taken == [mine]
        with pytest.raises(
            RoutingError, match=r"^received interswarm message for wrong swarm: 'beta'$"
        ):
            await receive(wrapper())
        mine["payload"]["body"] = "bad"
        failed = f"^router failed to receive interswarm message {direction}: 'oops'$"
        with pytest.raises(RoutingError, match=failed):
            await receive(mine)


async def test_mail_for_the_own_swarm_takes_no_network(tmp_path: Path) -> None:
    async with routing(tmp_path) as router:
        taken: list[MAILInterswarmMessage] = []

        async def take(mail: MAILInterswarmMessage) -> None:
            taken.append(mail)

        router.register_message_handler("local_message_handler", take)
        await router.send_interswarm_message_forward(wrapper("guide@alpha"))
        await router.send_interswarm_message_back(wrapper("guide@alpha"))
        assert [mail["target_swarm"] for mail in taken] == ["alpha", "alpha"]
        with pytest.raises(RoutingError, match="'alpha' is the local swarm"):
            await router.post_interswarm_user_message(user_message("guide@alpha"))


# --- messages as local code has them ------------------------------------------------------------


async def test_a_message_reaches_each_swarm_of_its_recipients(tmp_path: Path) -> None:
    async with (
        LoopbackPeer(name="beta") as beta,
        LoopbackPeer(name="gamma") as gamma,
        routing(tmp_path, beta, gamma) as router,
    ):
        taken: list[MAILInterswarmMessage] = []

        async def take(mail: MAILInterswarmMessage) -> None:
            taken.append(mail)

        router.register_message_handler("local_message_handler", take)
        everybody = ("wind@beta", "sea", "rain@gamma", "sun@beta", "sky@alpha")
        told = message(*everybody, kind="broadcast")
        before = copy.deepcopy(told)
        owner = {"task_owner": OWNER, "task_contributors": [OWNER, "swarm:alpha@gamma"]}
        assert await router.route_message(told, **owner) is told  # type: ignore[arg-type]
        assert told == before
        assert beta.requests[-1].path == "/interswarm/forward"
        assert gamma.requests[-1].path == "/interswarm/back"
        sent = beta.requests[-1].body["message"]
        assert (sent["target_swarm"], sent["task_owner"]) == ("beta", OWNER)
        assert [one["address"] for one in sent["payload"]["recipients"]] == [
            "wind@beta",
            "sun@beta",
        ]
        assert sent["payload"]["recipient_swarms"] == ["beta"]
        assert [one["address"] for one in taken[0]["payload"]["recipients"]] == ["sea", "sky"]  # type: ignore[typeddict-item]
        assert taken[0]["task_contributors"] == owner["task_contributors"]


async def test_a_message_that_does_not_arrive_is_answered_by_the_system(tmp_path: Path) -> None:
    async with LoopbackPeer(name="beta") as beta, routing(tmp_path, beta) as router:
        beta.failing = 503
        asked = message("wind@beta")
        answer = await router.route_message(asked)
        payload: Any = answer["message"]
        assert (answer["msg_type"], payload["subject"]) == ("response", "Router Error")
        assert "HTTP status code 503" in payload["body"]
        assert payload["request_id"] == asked["message"]["request_id"]  # type: ignore[typeddict-item]
        assert payload["sender"] == {"address_type": "system", "address": "alpha"}
        assert payload["recipient"] == asked["message"]["sender"]
        assert (payload["sender_swarm"], payload["recipient_swarm"]) == ("alpha", "alpha")
        several = await router.route_message(message("a@delta", "b@beta", kind="interrupt"))
        assert "unknown swarm endpoint: 'delta'" in several["message"]["body"]
        assert "503" in several["message"]["body"]


async def test_a_message_is_wrapped_for_the_first_other_swarm(tmp_path: Path) -> None:
    async with routing(tmp_path) as router:
        know(router, "http://127.0.0.1:9")
        asked = message("sea@alpha", "wind@beta", kind="broadcast")
        made = router.convert_local_message_to_interswarm(asked, OWNER, [OWNER])
        assert list(made) == FIELDS
        assert (made["message_id"], made["timestamp"]) == (asked["id"], asked["timestamp"])
        assert (made["source_swarm"], made["target_swarm"]) == ("alpha", "beta")
        assert (made["payload"], made["msg_type"]) == (asked["message"], "broadcast")
        assert made["payload"] is not asked["message"]
        assert (made["auth_token"], made["metadata"]) == ("tok", {})
        with pytest.raises(RoutingError, match="no recipient in another swarm"):
            router.convert_local_message_to_interswarm(message("sea"), OWNER, [OWNER])


# --- messages of users --------------------------------------------------------------------------


def user_message(target: str = "wind@beta", **changes: Any) -> MAILInterswarmMessage:
    """Return a user's message with a token for the target's swarm."""
    made: Any = {**wrapper(target), "auth_token": "users-own"}
    made["payload"] = {
        **made["payload"],
        "sender": {"address_type": "user", "address": "ines"},
        **changes,
    }
    return made  # type: ignore[no-any-return]


ANSWER = message("guide", sender="wind")


async def test_a_users_message_returns_the_peers_answer(tmp_path: Path) -> None:
    posts = []

    async def answer(request: web.Request) -> web.StreamResponse:
        posts.append((request.path, request.headers["Authorization"], await request.json()))
        return web.json_response({"response": ANSWER, "events": None})

    async with serving(answer) as url, routing(tmp_path) as router:
        know(router, url)
        asked = user_message(routing_info={"ignore_stream_pings": True})
        assert await router.post_interswarm_user_message(asked) == ANSWER
        assert (await router.post_user_message(asked))["events"] is None
    path, token, body = posts[0]
    assert (path, token) == ("/interswarm/message", "Bearer users-own")
    assert body == {
        "user_token": "users-own",
        "body": "How strong?",
        "targets": ["wind@beta"],
        "msg_type": "request",
        "subject": "Wind",
        "task_id": "trip",
        "routing_info": {"ignore_stream_pings": True},
        "ignore_stream_pings": True,
    }


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"auth_token": None}, "user token is required for interswarm user messages"),
        ({"payload": "x"}, "invalid interswarm payload"),
        (
            {"msg_type": "interrupt"},
            "msg_type 'interrupt' is not supported for interswarm user messages",
        ),
        (
            {"payload": {"recipient": {"address_type": "agent", "address": "wind@beta"}}},
            "body is required for interswarm user messages",
        ),
        (
            {"payload": {"body": "x", "recipients": []}},
            "targets are required for interswarm user messages",
        ),
        (
            {"payload": user_message("wind@gamma")["payload"]},
            "a user's token is for one swarm, and a target is not in 'beta'",
        ),
    ],
)
async def test_a_users_message_is_checked_before_it_leaves(
    tmp_path: Path, change: dict[str, Any], problem: str
) -> None:
    async with LoopbackPeer(name="beta") as peer, routing(tmp_path, peer) as router:
        asked: Any = {**user_message(), **change}
        before = len(peer.requests)
        for post in (
            router.post_interswarm_user_message,
            router.post_user_message,
            router.stream_interswarm_user_message,
        ):
            with pytest.raises(RoutingError) as caught:
                await post(asked)
            assert str(caught.value) == f"error posting interswarm user message: {problem}"
        assert len(peer.requests) == before


@pytest.mark.parametrize(("mebibytes", "taken"), [(7, True), (9, False)])
async def test_a_users_answer_is_read_to_8_mebibytes(
    tmp_path: Path, mebibytes: int, *, taken: bool
) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        return web.json_response({"response": ANSWER, "events": "x" * (mebibytes << 20)})

    async with serving(answer) as url, routing(tmp_path) as router:
        know(router, url)
        if taken:
            found = await router.post_user_message(user_message())
            assert len(found["events"]) == mebibytes << 20
        else:
            with pytest.raises(RoutingError, match="the answer is not that of a MAIL server"):
                await router.post_user_message(user_message())


async def test_a_users_refusal_names_the_swarm(tmp_path: Path) -> None:
    async with LoopbackPeer(name="beta") as peer, routing(tmp_path, peer) as router:
        peer.failing = 403
        with pytest.raises(
            RoutingError, match="failed to post interswarm user message to swarm"
        ) as caught:
            await router.post_interswarm_user_message(user_message())
        assert caught.value.status == 403
        peer.failing = None  # it has no such route
        with pytest.raises(RoutingError, match="HTTP status code 404"):
            await router.stream_interswarm_user_message(user_message())


def event(name: str, number: int | None, **data: Any) -> bytes:
    head = f"id: {number}\r\n" if number is not None else ""
    return (
        f"{head}event: {name}\r\ndata: {json.dumps({'task_id': 'trip', **data})}\r\n\r\n".encode()
    )


class Streamer:
    """A peer whose streams are told what to do: each is a list of events, `CUT` breaks it off."""

    def __init__(self, *streams: list[bytes | None]) -> None:
        self.streams = list(streams)
        self.asked: list[tuple[str, str, str | None]] = []

    async def answer(self, request: web.Request) -> web.StreamResponse:
        seen = request.headers.get("Last-Event-ID")
        self.asked.append((request.method, request.path, seen))
        if not self.streams:
            return web.json_response({"detail": "gone"}, status=404)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for part in self.streams.pop(0):
            if part is None:
                assert request.transport is not None
                request.transport.abort()
                break
            await response.write(part)
        return response


CUT = None
FINAL = event("new_message", 3, extra_data={"full_message": {**ANSWER}})
END = event("task_complete", 4, response="strong")


async def gathered(router: InterswarmRouter, asked: MAILInterswarmMessage) -> list[SSEEvent]:
    return [one async for one in await router.stream_interswarm_user_message(asked)]


@pytest.mark.parametrize("pings", [True, False])
async def test_a_stream_is_passed_on_until_the_run_ends(tmp_path: Path, *, pings: bool) -> None:
    peer = Streamer([event("new_message", 1), event("ping", None), FINAL, END])
    async with serving(peer.answer) as url, routing(tmp_path) as router:
        know(router, url)
        info = {} if pings else {"routing_info": {"ignore_stream_pings": True}}
        events = await gathered(router, user_message(**info))
    names = ["new_message", "ping", "new_message", "task_complete"]
    assert [one.event for one in events] == [n for n in names if pings or n != "ping"]
    assert [one.id for one in events if one.id] == ["1", "3", "4"]


async def test_a_broken_stream_goes_on_after_the_last_event(tmp_path: Path) -> None:
    peer = Streamer(
        [event("new_message", 1), event("tool_call", 2), CUT],
        [event("tool_call", 2), event("server_drain", None), event("new_message", 9)],
        [FINAL, END, event("new_message", 7)],
    )
    async with serving(peer.answer) as url, routing(tmp_path) as router:
        know(router, url)
        events = await gathered(router, user_message())
    assert [one.id for one in events] == ["1", "2", "3", "4"]
    assert peer.asked == [
        ("POST", "/interswarm/message", None),
        ("GET", "/tasks/trip/events", "2"),
        ("GET", "/tasks/trip/events", "2"),
    ]


async def test_a_stream_that_cannot_go_on_says_so(tmp_path: Path) -> None:
    for peer, problem in (
        (Streamer([event("new_message", None), CUT]), "broke off, and cannot be resumed"),
        (Streamer([event("new_message", 1), CUT]), "HTTP status code 404"),
    ):
        async with serving(peer.answer) as url, routing(tmp_path) as router:
            know(router, url)
            with pytest.raises(RoutingError, match=problem):
                await gathered(router, user_message())


async def test_a_task_can_be_followed_later(tmp_path: Path) -> None:
    peer = Streamer([FINAL, END])
    async with serving(peer.answer) as url, routing(tmp_path) as router:
        know(router, url)
        stream = await router.follow_interswarm_user_task("beta", "trip/1", "users-own", "2")
        assert [one.id async for one in stream] == ["3", "4"]
    assert peer.asked == [("GET", "/tasks/trip/1/events", "2")]


async def test_leaving_a_stream_closes_its_connection(tmp_path: Path) -> None:
    left = asyncio.Event()

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        try:
            while True:
                await response.write(event("ping", None))
                await asyncio.sleep(0.01)
        except ConnectionResetError:
            left.set()
            raise

    async with serving(answer) as url, routing(tmp_path) as router:
        know(router, url)
        stream = await router.stream_interswarm_user_message(user_message())
        assert (await anext(stream)).event == "ping"
        await stream.aclose()
        async with asyncio.timeout(20):
            await left.wait()


async def test_an_answer_is_read_from_a_stream(tmp_path: Path) -> None:
    asked = user_message(routing_info={"stream": True})
    lost = event("task_error", 4, response="out of tokens")
    for stream, subject, body in (
        ([event("new_message", 1), FINAL, END], "Wind", "How strong?"),
        ([FINAL, lost], "Router Error", "swarm 'beta': out of tokens"),
        ([END], "Router Error", "swarm 'beta': stream ended before a final response was received"),
    ):
        peer = Streamer(list(stream))
        async with serving(peer.answer) as url, routing(tmp_path) as router:
            know(router, url)
            answer = await router.post_interswarm_user_message(asked)
        assert (answer["message"]["subject"], answer["message"]["body"]) == (subject, body)


# --- peers of MAIL 1.3.6 ------------------------------------------------------------------------


async def test_a_peer_of_1_3_6_takes_what_is_sent(tmp_path: Path) -> None:
    async with (
        LegacyPeer(name="beta", callers={"tok": "alpha"}) as peer,
        routing(tmp_path, peer) as router,
    ):
        receipt = await router.deliver(wrapper(), "forward")
        assert receipt["local_runner"] == "swarm:alpha@beta"
        with pytest.raises(RoutingError, match="already exists in swarm memory") as caught:
            await router.deliver(wrapper(), "forward")
        assert caught.value.status == 500
        known = [OWNER, receipt["local_runner"]]
        await router.deliver(wrapper(contributors=known), "back")
        with pytest.raises(RoutingError, match="task is not running"):
            await router.deliver(wrapper(task="other", contributors=known), "back")
        with pytest.raises(RoutingError, match="unknown local agent: 'nobody'"):
            await router.deliver(wrapper("nobody@beta", task="third"), "forward")
        assert [mail["task_contributors"] for mail in peer.taken] == [[OWNER], known]


async def test_a_peer_of_1_3_6_answers_and_writes_first() -> None:
    async with (
        LoopbackPeer(name="alpha") as home,
        LegacyPeer(
            name="beta",
            callers={"tok": "alpha"},
            home=home.url,
            home_token="t2",
            reply=lambda payload: f"heard {payload['body']}",
        ) as peer,
    ):
        from aiohttp import ClientSession

        mail: Any = {**wrapper(), "auth_token": "tok", "metadata": {}}
        headers = {"Authorization": "Bearer tok"}
        async with (
            ClientSession() as http,
            http.post(
                f"{peer.url}/interswarm/forward", json={"message": mail}, headers=headers
            ) as got,
        ):
            assert got.status == 200
        async with asyncio.timeout(20):
            while not home.requests:
                await asyncio.sleep(0.01)
        answered = home.requests[0]
        assert answered.path == "/interswarm/back"
        assert answered.headers["authorization"] == "Bearer t2"
        told = answered.body["message"]
        assert (told["msg_type"], told["payload"]["body"]) == ("response", "heard How strong?")
        assert told["payload"]["request_id"] == mail["payload"]["request_id"]
        assert told["task_contributors"] == [OWNER, "swarm:alpha@beta"]
        assert told["task_owner"] == OWNER
        await peer.send("own", "guide@alpha", "hello", kind="request")
        assert home.requests[1].path == "/interswarm/forward"
        assert home.requests[1].body["message"]["task_owner"] == "user:beta-user@beta"
        home.failing = 500
        with pytest.raises(AssertionError, match="500"):
            await peer.send("own", "guide@alpha", "again")
